/** Generated files, and texts of other authors. */
const EXCLUDED =
  /^docs\/api\.md$|^PROTOCOL\.md$|^LICENSE|^package-lock\.json$|(?:^|\/)node_modules\/|^(?:dist|native\/build)\/|^test\/fixtures\/transcripts\//;
const SCRIPT = /\.(?:ts|tsx|mts|mjs|cjs)$/;
const C = /\.(?:c|cc|h|hpp)$/;
const SHELL = /\.sh$|^bin\/procwire$|^\.ci\/run$/;
/** Strings of these files are texts that users read. */
const HELP = /^(?:src\/cli\/|src\/protocol\/(?:methods|.*-schemas)\.ts$)/;
const PRODUCT = /^(?:src|native|bin|scripts)\//;
const TESTS = /^(?:test|interop|bench)\//;

export type Language = "markdown" | "script" | "c" | "shell";

/** Returns the language that decides how prose is extracted, or null if the file is not checked. */
export function languageOf(file: string): Language | null {
  if (EXCLUDED.test(file)) return null;
  if (file.endsWith(".md")) return "markdown";
  if (SCRIPT.test(file)) return "script";
  if (C.test(file)) return "c";
  return SHELL.test(file) ? "shell" : null;
}

/** Reports whether the strings of a file are help texts. */
export function hasHelpTexts(file: string): boolean {
  return HELP.test(file);
}

/** Reports whether the file is part of the product or its tooling, which have error messages and checked identifiers. */
export function isProductCode(file: string): boolean {
  return PRODUCT.test(file);
}

export function isTestCode(file: string): boolean {
  return TESTS.test(file);
}
