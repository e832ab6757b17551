import type { ToolOutput } from "../tool.ts";

/** Adds a notice to the text and to the structured result. */
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

/** A notice that is added only to the first output it concerns. */
export class OneTimeNotice {
  #isShown = false;

  addTo(output: ToolOutput, notice: string): ToolOutput {
    if (this.#isShown) return output;
    this.#isShown = true;
    return withNotice(output, notice);
  }
}
