import { randomBytes } from "../auth/random-bytes.ts";

/** Twelve letters of five bits: short enough to paste, and too many for two of them to meet by chance. */
const LENGTH = 12;
/** So many are drawn at once: a start should not wait for the system's generator each time. */
const DRAWN_AT_ONCE = 64;
const LETTERS = "abcdefghijklmnopqrstuvwxyz234567";

/** The public names of a server's processes. They are random, so nothing else can be told or guessed from one. */
export class ProcessHandles<P> {
  readonly #taken = new Map<string, P>();
  readonly #random: (count: number) => Uint8Array;
  #drawn: Uint8Array = new Uint8Array(0);

  constructor(random: (count: number) => Uint8Array = randomBytes) {
    this.#random = random;
  }

  /** One that no other process of this server has. */
  take(process: P): string {
    const handle = this.draw();
    this.#taken.set(handle, process);
    return handle;
  }

  /** One that was drawn before, by this server or an earlier one. */
  put(handle: string, process: P): void {
    this.#taken.set(handle, process);
  }

  /** One that nobody has, for a process that is not there yet. */
  draw(): string {
    for (;;) {
      if (this.#drawn.length === 0) this.#drawn = this.#random(LENGTH * DRAWN_AT_ONCE);
      const handle = Array.from(this.#drawn.subarray(0, LENGTH), (byte) => LETTERS[byte & 31]).join("");
      this.#drawn = this.#drawn.subarray(LENGTH);
      if (!this.#taken.has(handle)) return handle;
    }
  }

  find(handle: string): P | null {
    return this.#taken.get(handle) ?? null;
  }

  release(handle: string): void {
    this.#taken.delete(handle);
  }
}
