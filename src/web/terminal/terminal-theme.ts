/** Colors of the terminal. The background is the token `--color-terminal`. */
export interface TerminalTheme {
  background: string;
  foreground: string;
  cursor: string;
  cursorAccent: string;
  selectionBackground: string;
  black: string;
  red: string;
  green: string;
  yellow: string;
  blue: string;
  magenta: string;
  cyan: string;
  white: string;
  brightBlack: string;
  brightRed: string;
  brightGreen: string;
  brightYellow: string;
  brightBlue: string;
  brightMagenta: string;
  brightCyan: string;
  brightWhite: string;
}

/**
 * Minimum contrast of text in the terminal: WCAG AA. xterm.js adjusts the foreground of cells below it, which covers
 * text on colored backgrounds and the colors outside of this palette.
 */
export const MIN_CONTRAST = 4.5;

/** Palette on white. All sixteen colors are dark enough to read, also white. */
export const LIGHT_THEME: TerminalTheme = {
  ...{ background: "#ffffff", foreground: "#1f2328", cursor: "#1f2328", cursorAccent: "#ffffff" },
  selectionBackground: "#b6d4fe",
  black: "#24292f",
  red: "#c21c28",
  green: "#116329",
  yellow: "#7a4a00",
  blue: "#0757b8",
  magenta: "#7a3fd0",
  cyan: "#0f6b75",
  white: "#656d76",
  brightBlack: "#57606a",
  brightRed: "#a40e26",
  brightGreen: "#1a7332",
  brightYellow: "#8a5500",
  brightBlue: "#0969da",
  brightMagenta: "#9a3fb5",
  brightCyan: "#157a85",
  brightWhite: "#424a53",
};

/** Palette on black. Black itself stays dark, because programs use it as a background. */
export const DARK_THEME: TerminalTheme = {
  ...{ background: "#0d1117", foreground: "#e6edf3", cursor: "#e6edf3", cursorAccent: "#0d1117" },
  selectionBackground: "#264f78",
  black: "#484f58",
  red: "#ff7b72",
  green: "#3fb950",
  yellow: "#d29922",
  blue: "#58a6ff",
  magenta: "#bc8cff",
  cyan: "#39c5cf",
  white: "#b1bac4",
  brightBlack: "#8b949e",
  brightRed: "#ffa198",
  brightGreen: "#56d364",
  brightYellow: "#e3b341",
  brightBlue: "#79c0ff",
  brightMagenta: "#d2a8ff",
  brightCyan: "#56d4dd",
  brightWhite: "#ffffff",
};
