import type { ToolOutput } from "../tool.ts";

/** An answer with a note on top, in its text and among its facts. */
export function withNotice(output: ToolOutput, notice: string): ToolOutput {
  const earlier = output.structured?.notice;
  return {
    ...output,
    text: `Note: ${notice}\n${output.text}`,
    structured: {
      ...output.structured,
      notice: typeof earlier === "string" ? `${notice}\n${earlier}` : notice,
    },
  };
}

/** A note that is told once, on top of the first answer it concerns. */
export class Notice {
  #isTold = false;

  addTo(output: ToolOutput, notice: string): ToolOutput {
    if (this.#isTold) return output;
    this.#isTold = true;
    return withNotice(output, notice);
  }
}
