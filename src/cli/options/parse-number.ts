import { UsageError } from "../usage-error.ts";

/** Parses a whole number of at least `min`. Returns undefined if the option is absent. */
export function parseCount(name: string, text: string | undefined, min = 1): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(value) && value >= min) return value;
  throw new UsageError(`invalid --${name} \`${text}\`; expected a whole number of at least ${min}`);
}

/** Parses a number above 0. Returns undefined if the option is absent. */
export function parsePositive(name: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new UsageError(`invalid --${name} \`${text}\`; expected a positive number`);
}

/** Parses a finite number of at least 0. Returns null for any other text. */
export function parseAmount(text: string): number | null {
  const value = Number(text);
  return text.trim() === "" || !Number.isFinite(value) || value < 0 ? null : value;
}
