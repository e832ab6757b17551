import { useState } from "preact/hooks";
import { handleSubmit } from "../app/handle-submit.ts";
import type { TerminalView } from "../processes/terminal-view.ts";

/** Search in the terminal and its scrollback. */
export function FindBar({ view }: { view: () => TerminalView | null }) {
  const [text, setText] = useState("");
  const [hasMatch, setHasMatch] = useState(true);
  const find = (direction: "next" | "previous") => {
    if (text !== "") setHasMatch(view()?.find(text, direction) ?? false);
  };
  return (
    <form class="search" onSubmit={handleSubmit(() => find("next"))}>
      <input
        type="search"
        aria-label="Find in the output"
        aria-invalid={!hasMatch}
        placeholder="find"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button type="button" aria-label="find previous" onClick={() => find("previous")}>
        ↑
      </button>
      <button type="submit" aria-label="find next">
        ↓
      </button>
    </form>
  );
}
