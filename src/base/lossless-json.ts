declare global {
  interface JSON {
    /** Returns a value that `stringify` writes as the given text. */
    rawJSON(text: string): object;
  }
}

/** Numbers with this many digits may exceed the exact range. */
const LONG_NUMBER = /\d{16}/;

/**
 * Parses JSON without rounding. A number that JavaScript cannot represent exactly becomes a raw JSON value, which
 * `JSON.stringify` writes unchanged. Use `toPlainNumbers` before calculations.
 */
export function parseLosslessJson(text: string): unknown {
  return LONG_NUMBER.test(text) ? JSON.parse(text, keepLongNumber) : JSON.parse(text);
}

/** Replaces raw JSON numbers by JavaScript numbers, rounded if necessary. */
export function toPlainNumbers(value: unknown): unknown {
  const text = JSON.stringify(value);
  return LONG_NUMBER.test(text) ? JSON.parse(text) : value;
}

function keepLongNumber(_key: string, value: unknown, context?: { source?: string }): unknown {
  const source = context?.source;
  if (typeof value !== "number" || source === undefined || !LONG_NUMBER.test(source.replace(".", ""))) {
    return value;
  }
  return String(value) === source ? value : JSON.rawJSON(source);
}
