/** How a piece of a line looks on a terminal. */
export type Style = "heading" | "strong" | "good" | "bad" | "warning" | "faint";

export interface Painted {
  text: string;
  style: Style;
}

const CODES: Readonly<Record<Style, string>> = {
  heading: "35;3",
  strong: "1",
  good: "32",
  bad: "31",
  warning: "33",
  faint: "2",
};

export type ColorChoice = "always" | "never" | "auto";

export const COLOR_CHOICES: readonly ColorChoice[] = ["always", "never", "auto"];

/** `auto`: on a terminal that can show colours, unless NO_COLOR says that nobody wants them (no-color.org). */
export function wantsColor(
  choice: ColorChoice,
  stream: { readonly isTTY?: boolean },
  env: Readonly<Record<string, string | undefined>>,
): boolean {
  if (choice !== "auto") return choice === "always";
  return stream.isTTY === true && !env.NO_COLOR && env.TERM !== "dumb";
}

/** The text itself must be free of control characters already. */
export function paint(text: string, style: Style): string {
  return text === "" ? "" : `\x1b[${CODES[style]}m${text}\x1b[0m`;
}
