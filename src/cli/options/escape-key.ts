import { UsageError } from "../usage-error.ts";

export const DEFAULT_ESCAPE_KEY = "~";

/** Returns the byte of the escape key, or null for `none`. */
export function parseEscapeKey(text: string): number | null {
  if (text === "none") return null;
  if (!/^[!-~]$/.test(text))
    throw new UsageError(`invalid --escape-key \`${text}\`; expected one ASCII character or none`);
  return text.charCodeAt(0);
}

const DOT = 0x2e;
const LINE_ENDS: ReadonlySet<number> = new Set([0x0a, 0x0d]);

/**
 * Filters typed input like ssh: at the start of a line, the escape key and a dot disconnect, the escape key twice sends it
 * once, and other input passes unchanged.
 */
export class EscapeKey {
  readonly #key: number;
  #isLineStart = true;
  #isEscapePending = false;

  constructor(key: number) {
    this.#key = key;
  }

  /** Returns the input for the process, and whether the user asked to disconnect after it. */
  take(bytes: Uint8Array): { pass: Uint8Array; leaves: boolean } {
    const pass: number[] = [];
    for (const byte of bytes) {
      if (this.#isEscapePending) {
        this.#isEscapePending = false;
        if (byte === DOT) return { pass: Uint8Array.from(pass), leaves: true };
        pass.push(this.#key);
        this.#isLineStart = false;
        if (byte === this.#key) continue;
      } else if (this.#isLineStart && byte === this.#key) {
        this.#isEscapePending = true;
        continue;
      }
      pass.push(byte);
      this.#isLineStart = LINE_ENDS.has(byte);
    }
    return { pass: Uint8Array.from(pass), leaves: false };
  }
}
