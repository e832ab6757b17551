import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { handleSubmit } from "../app/handle-submit.ts";
import type { TerminalView } from "./terminal-view.ts";

/** Search in the terminal and its scrollback, over its upper edge. Escape closes it. */
export function FindBar({ view, onClose }: { view: TerminalView | null; onClose: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  const [text, setText] = useState("");
  const [hasMatch, setHasMatch] = useState(true);
  const find = (direction: "next" | "previous") => {
    if (text !== "") setHasMatch(view?.find(text, direction) ?? false);
  };
  useLayoutEffect(() => input.current?.focus(), []);
  return (
    <form
      class="find"
      onSubmit={handleSubmit(() => find("next"))}
      onKeyDown={(event) => {
        if (event.key === "Escape") onClose();
      }}
    >
      <output aria-live="polite" class="no-match">
        {hasMatch ? "" : "no match"}
      </output>
      <input
        ref={input}
        type="search"
        aria-label="Find in the output"
        aria-invalid={!hasMatch}
        placeholder="Find"
        value={text}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setHasMatch(true);
        }}
      />
      <button type="button" class="plain" aria-label="Find previous" onClick={() => find("previous")}>
        ↑
      </button>
      <button type="submit" class="plain" aria-label="Find next">
        ↓
      </button>
      <button type="button" class="plain" aria-label="Close the search" onClick={onClose}>
        ✕
      </button>
    </form>
  );
}
