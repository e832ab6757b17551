import { UsageError } from "../usage-error.ts";

export const DEFAULT_ESCAPE_KEY = "~";

/** The byte that begins an escape at the beginning of a line; null for `none`. */
export function parseEscapeKey(text: string): number | null {
  if (text === "none") return null;
  if (!/^[!-~]$/.test(text))
    throw new UsageError(`invalid --escape-key \`${text}\`; expected one ASCII character or none`);
  return text.charCodeAt(0);
}

const DOT = 0x2e;
const LINE_ENDS: ReadonlySet<number> = new Set([0x0a, 0x0d]);

/**
 * What is typed, as ssh reads it: at the beginning of a line the key and a dot mean to leave, the key twice means the key
 * itself, and anything else is passed on as it is.
 */
export class EscapeKey {
  readonly #key: number;
  #isLineStart = true;
  #isHeld = false;

  constructor(key: number) {
    this.#key = key;
  }

  /** What goes to the program, and whether it was asked to leave behind that. */
  take(bytes: Uint8Array): { pass: Uint8Array; leaves: boolean } {
    const pass: number[] = [];
    for (const byte of bytes) {
      if (this.#isHeld) {
        this.#isHeld = false;
        if (byte === DOT) return { pass: Uint8Array.from(pass), leaves: true };
        pass.push(this.#key);
        this.#isLineStart = false;
        if (byte === this.#key) continue;
      } else if (this.#isLineStart && byte === this.#key) {
        this.#isHeld = true;
        continue;
      }
      pass.push(byte);
      this.#isLineStart = LINE_ENDS.has(byte);
    }
    return { pass: Uint8Array.from(pass), leaves: false };
  }
}
