import { useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import { handleSubmit } from "../app/handle-submit.ts";
import { toHref } from "../app/route.ts";
import { Alert } from "../components/alert.tsx";
import { TextField } from "../components/text-field.tsx";
import { startDetached } from "./start-process.ts";

/** Starts a command or a shell, and opens its page. */
export function StartForm({ client }: { client: ExecServerClient }) {
  const [command, setCommand] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isStarting, setStarting] = useState(false);
  const start = async () => {
    setStarting(true);
    try {
      location.hash = toHref({ page: "process", handle: await startDetached(client, command.trim()) });
    } catch (error) {
      setProblem(userMessage(error));
    } finally {
      setStarting(false);
    }
  };
  return (
    <form class="start" onSubmit={handleSubmit(() => void start())}>
      <TextField
        class="command"
        value={command}
        placeholder="Command (empty: a shell)"
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        onValue={setCommand}
      >
        <span class="hidden">Command (empty: a shell)</span>
      </TextField>
      <button type="submit" class="primary" disabled={isStarting}>
        Start
      </button>
      <Alert message={problem} />
    </form>
  );
}
