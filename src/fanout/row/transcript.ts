import type { ModelAnswer } from "../../agent/api/model-caller.ts";
import type { ToolOutput } from "../../tools/tool.ts";
import type { TranscriptEntry } from "../job.ts";

/**
 * Maximum stored characters of one command output. Stored outputs show what the agent saw; longer ones would make the
 * ledger much larger than the table.
 */
const MAX_OUTPUT_CHARS = 16 * 1024;

/** The transcript of one attempt, without the prompt, which can be rebuilt from task and row. */
export class Transcript {
  #entries: TranscriptEntry[] = [];

  addAnswer({ items }: ModelAnswer): void {
    for (const item of items) {
      if (item.type === "functionCall") {
        this.#entries.push({ type: "called", tool: item.name, arguments: item.arguments });
      } else if (item.type === "reasoning" && item.summary !== "") {
        this.#entries.push({ type: "thought", text: item.summary });
      } else if (item.type === "message" && item.refusal !== null) {
        this.#entries.push({ type: "refused", text: item.refusal });
      } else if (item.type === "message") this.#entries.push({ type: "said", text: item.text });
    }
  }

  addToolOutput(tool: string, { text, ok }: ToolOutput): void {
    const left = text.length - MAX_OUTPUT_CHARS;
    const shown = left > 0 ? `${text.slice(0, MAX_OUTPUT_CHARS)} ... and ${left} characters more` : text;
    this.#entries.push({ type: "returned", tool, text: shown, ok });
  }

  addRepairRequest(reason: string): void {
    this.#entries.push({ type: "asked_again", reason });
  }

  /** The transcript as JSON; undefined if it is empty. */
  get json(): string | undefined {
    return this.#entries.length === 0 ? undefined : JSON.stringify(this.#entries);
  }
}
