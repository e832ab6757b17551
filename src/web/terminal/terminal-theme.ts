/**
 * Minimum contrast of text in the terminal: WCAG AA. xterm.js adjusts the foreground of cells below it, which covers
 * text on colored backgrounds and the colors outside of this palette.
 */
export const MIN_CONTRAST = 4.5;

/**
 * Colors on white and on black. The background is the token `--color-terminal`. On white, all sixteen colors are dark enough
 * to read, also white. On black, black itself stays dark, because programs use it as a background.
 */
const COLORS = {
  background: ["#ffffff", "#0d1117"],
  foreground: ["#1f2328", "#e6edf3"],
  cursor: ["#1f2328", "#e6edf3"],
  cursorAccent: ["#ffffff", "#0d1117"],
  selectionBackground: ["#b6d4fe", "#264f78"],
  black: ["#24292f", "#484f58"],
  red: ["#c21c28", "#ff7b72"],
  green: ["#116329", "#3fb950"],
  yellow: ["#7a4a00", "#d29922"],
  blue: ["#0757b8", "#58a6ff"],
  magenta: ["#7a3fd0", "#bc8cff"],
  cyan: ["#0f6b75", "#39c5cf"],
  white: ["#656d76", "#b1bac4"],
  brightBlack: ["#57606a", "#8b949e"],
  brightRed: ["#a40e26", "#ffa198"],
  brightGreen: ["#1a7332", "#56d364"],
  brightYellow: ["#8a5500", "#e3b341"],
  brightBlue: ["#0969da", "#79c0ff"],
  brightMagenta: ["#9a3fb5", "#d2a8ff"],
  brightCyan: ["#157a85", "#56d4dd"],
  brightWhite: ["#424a53", "#ffffff"],
} satisfies Record<string, readonly [light: string, dark: string]>;

/** Returns the colors of a terminal. */
export function terminalTheme(isDark: boolean): Partial<Record<keyof typeof COLORS, string>> {
  return Object.fromEntries(Object.entries(COLORS).map(([name, [light, dark]]) => [name, isDark ? dark : light]));
}
