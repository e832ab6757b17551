import type { RowDetails } from "../../protocol/console/console-job-schemas.ts";

type Entry = RowDetails["attempts"][number]["transcript"][number];

/** Escape sequences of terminals: colors, cursor movements and titles. */
const ESCAPE_SEQUENCE = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])/g;

/** Conversation of an attempt: messages, tool calls and their output. */
export function Transcript({ entries }: { entries: readonly Entry[] }) {
  if (entries.length === 0) return <p class="muted">No transcript.</p>;
  return (
    <ol class="transcript">
      {entries.map((entry, index) => (
        <li key={index} class={entry.type}>
          <div class="speaker">{speakerOf(entry)}</div>
          <TranscriptText entry={entry} />
        </li>
      ))}
    </ol>
  );
}

function TranscriptText({ entry }: { entry: Entry }) {
  switch (entry.type) {
    case "said":
    case "thought":
    case "refused":
    case "asked_again":
      return <p>{entry.text}</p>;
    case "called":
      return <pre>{describeArguments(entry.text)}</pre>;
    case "returned":
      return <pre class={entry.ok === false ? "error" : undefined}>{entry.text.replace(ESCAPE_SEQUENCE, "")}</pre>;
  }
}

function speakerOf({ type, tool, ok }: Entry): string {
  switch (type) {
    case "said":
      return "Model";
    case "thought":
      return "Reasoning";
    case "refused":
      return "Model refused";
    case "asked_again":
      return "Call repeated";
    case "called":
      return `Tool call: ${tool}`;
    case "returned":
      return ok === false ? `Tool error: ${tool}` : `Output of ${tool}`;
  }
}

/** Returns the command of an `exec_command` call, and the arguments of other calls as indented JSON. */
export function describeArguments(json: string): string {
  try {
    const parsed: unknown = JSON.parse(json);
    if (typeof parsed === "object" && parsed !== null && "cmd" in parsed && typeof parsed.cmd === "string")
      return `$ ${parsed.cmd}`;
    return JSON.stringify(parsed, null, 2);
  } catch {
    return json;
  }
}
