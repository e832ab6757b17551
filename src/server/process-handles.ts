import { randomBytes } from "./random-bytes.ts";

/** Twelve letters of five bits: short enough to paste, and too many for two of them to meet by chance. */
const LENGTH = 12;
const LETTERS = "abcdefghijklmnopqrstuvwxyz234567";

/** The public names of a server's processes. They are random, so nothing else can be told or guessed from one. */
export class ProcessHandles {
  readonly #taken = new Set<string>();

  /** One that no other process of this server has. */
  take(): string {
    for (;;) {
      const handle = [...randomBytes(LENGTH)].map((byte) => LETTERS[byte & 31]).join("");
      if (this.#taken.has(handle)) continue;
      this.#taken.add(handle);
      return handle;
    }
  }

  release(handle: string): void {
    this.#taken.delete(handle);
  }
}
