import type { ModelAnswer } from "../../agent/api/model-caller.ts";
import type { ToolOutput } from "../../tools/tool.ts";
import type { TranscriptEntry } from "../job.ts";

/** A command's output is kept to show what the agent saw; more than this per output would outgrow the table. */
const MAX_OUTPUT_CHARS = 16 * 1024;

/** What was said in one attempt, without the prompt: that can be rebuilt from the task and the row. */
export class Transcript {
  #entries: TranscriptEntry[] = [];

  answered({ items }: ModelAnswer): void {
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

  returned(tool: string, { text, ok }: ToolOutput): void {
    const left = text.length - MAX_OUTPUT_CHARS;
    const shown = left > 0 ? `${text.slice(0, MAX_OUTPUT_CHARS)} ... and ${left} characters more` : text;
    this.#entries.push({ type: "returned", tool, text: shown, ok });
  }

  askedAgain(reason: string): void {
    this.#entries.push({ type: "asked_again", reason });
  }

  /** As JSON text; undefined when nothing was said. */
  get json(): string | undefined {
    return this.#entries.length === 0 ? undefined : JSON.stringify(this.#entries);
  }
}
