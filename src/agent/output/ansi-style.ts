/** Style of a piece of text on a terminal. */
export type Style = "heading" | "strong" | "good" | "bad" | "warning" | "faint";

export interface StyledText {
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

/** Reports whether to use colors. `auto`: on a terminal with color support, unless NO_COLOR is set (no-color.org). */
export function shouldUseColor(
  choice: ColorChoice,
  stream: { readonly isTTY?: boolean },
  env: Readonly<Record<string, string | undefined>>,
): boolean {
  if (choice !== "auto") return choice === "always";
  return stream.isTTY === true && !env.NO_COLOR && env.TERM !== "dumb";
}

/** Adds escape sequences. The text must not contain control characters. */
export function styleText(text: string, style: Style): string {
  return text === "" ? "" : `\x1b[${CODES[style]}m${text}\x1b[0m`;
}
