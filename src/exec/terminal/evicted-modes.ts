import { concatBytes, latin1 } from "../../base/bytes.ts";
import { ESC, incompleteCharacterFrom, sequenceEnd } from "./escape-sequences.ts";

/** Maximum remembered private modes; programs use about twenty. */
const MAX_MODES = 64;
/** Maximum length of a remembered sequence, such as a title. */
const MAX_REMEMBERED_BYTES = 1024;
const NOTHING = new Uint8Array(0);

/**
 * Terminal modes that evicted output has set: alternate screen, cursor, mouse, scroll region, character set and title. A
 * full-screen program sets them once and repeats only the characters, so a screen drawn from retained output needs
 * them. Output without escape sequences costs one search.
 */
export class EvictedModes {
  /** Private modes by number, in the order of their last change. */
  readonly #modes = new Map<string, string>();
  /** The last sequence of each kind, such as the scroll region. */
  readonly #last = new Map<string, string>();
  #incomplete: Uint8Array = NOTHING;

  /** Call this with each evicted chunk, in order. */
  add(chunk: Uint8Array): void {
    const bytes = this.#incomplete.length === 0 ? chunk : concatBytes([this.#incomplete, chunk]);
    let at = bytes.indexOf(ESC);
    while (at >= 0) {
      const end = sequenceEnd(bytes, at);
      if (end === null) break;
      if (isMode(bytes, at, end)) this.#apply(latin1(bytes.subarray(at, end)));
      at = bytes.indexOf(ESC, end);
    }
    const cutAt = at >= 0 ? at : incompleteCharacterFrom(bytes);
    this.#incomplete = bytes.length - cutAt <= MAX_REMEMBERED_BYTES ? bytes.slice(cutAt) : NOTHING;
  }

  /** Returns output that sets the modes on a terminal in its initial state, and an incomplete last sequence. */
  toOutput(): Uint8Array {
    const modes = [...this.#modes].map(([number, final]) => `\x1b[?${number}${final}`);
    const text = [...modes, ...this.#last.values()].join("");
    return concatBytes([Uint8Array.from(text, (letter) => letter.charCodeAt(0)), this.#incomplete]);
  }

  #apply(text: string): void {
    if (text === "\x1bc" || text === "\x1b[!p") {
      this.#modes.clear();
      this.#last.clear();
      return;
    }
    const [, numbers, final] = PRIVATE_MODE.exec(text) ?? [];
    if (numbers !== undefined && final !== undefined) {
      for (const number of numbers.split(";")) this.#setMode(number, final);
      return;
    }
    const kind = KINDS.find(([pattern]) => pattern.test(text))?.[1];
    if (kind !== undefined) this.#last.set(kind, text);
  }

  #setMode(number: string, final: string): void {
    // The three numbers of the alternate screen set the same mode.
    if (ALTERNATE_SCREEN.includes(number)) for (const other of ALTERNATE_SCREEN) this.#modes.delete(other);
    this.#modes.delete(number);
    this.#modes.set(number, final);
    const [oldest] = this.#modes.keys();
    if (this.#modes.size > MAX_MODES && oldest !== undefined) this.#modes.delete(oldest);
  }
}

const ALTERNATE_SCREEN: readonly string[] = ["47", "1047", "1049"];
const PRIVATE_MODE = /^\x1b\[\?([\d;]+)([hl])$/;
const KINDS: readonly (readonly [RegExp, string])[] = [
  [/^\x1b\[[\d;]*r$/, "scroll region"],
  [/^\x1b\[4[hl]$/, "insert mode"],
  [/^\x1b\[\d* q$/, "cursor style"],
  [/^\x1b[=>]$/, "keypad"],
  [/^\x1b\([0-9A-Z]$/, "character set"],
  [/^\x1b\][02];.*(?:\x07|\x1b\\)$/s, "title"],
];

/** Reports whether a sequence may set a mode. Most sequences set colors or move the cursor. */
function isMode(bytes: Uint8Array, at: number, end: number): boolean {
  if (end - at > MAX_REMEMBERED_BYTES) return false;
  if (bytes[at + 1] !== 0x5b) return true;
  return MODE_FINALS.has(bytes[end - 1] ?? 0);
}

/** Final bytes of control sequences that may set a mode. */
const MODE_FINALS = new Set(Array.from("hlpqr", (letter) => letter.charCodeAt(0)));
