declare global {
  interface JSON {
    /** A value that `stringify` writes as the given text. */
    rawJSON(text: string): object;
  }
}

/** As many digits in a row may be more than a number can hold. */
const LONG_NUMBER = /\d{16}/;

/**
 * Parses JSON without rounding: a number that would come out as another one is kept as its own text, which `JSON.stringify`
 * writes as it was. For calculations with such a value there is `roundedJson`.
 */
export function parseExactJson(text: string): unknown {
  return LONG_NUMBER.test(text) ? JSON.parse(text, keepLongNumber) : JSON.parse(text);
}

/** The same value with numbers only, rounded where they must be. */
export function roundedJson(value: unknown): unknown {
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
