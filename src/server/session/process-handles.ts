import { randomBytes } from "../auth/random-bytes.ts";

/** Twelve characters of five bits: short enough to paste, long enough to avoid collisions. */
const LENGTH = 12;
/** Number of handles drawn at once, so that not every start reads from the system's generator. */
const DRAW_COUNT = 64;
const LETTERS = "abcdefghijklmnopqrstuvwxyz234567";

/** Handles of a server's processes. They are random, so a handle reveals nothing and cannot be guessed. */
export class ProcessHandles<P> {
  readonly #byHandle = new Map<string, P>();
  readonly #random: (count: number) => Uint8Array;
  #drawn: Uint8Array = new Uint8Array(0);
  /** Number of bytes of `#drawn` that handles have used. */
  #used = 0;

  constructor(random: (count: number) => Uint8Array = randomBytes) {
    this.#random = random;
  }

  /** Assigns a new unique handle to a process. */
  allocate(process: P): string {
    const handle = this.generate();
    this.#byHandle.set(handle, process);
    return handle;
  }

  /** Assigns a handle that this server or an earlier one generated. */
  reserve(handle: string, process: P): void {
    this.#byHandle.set(handle, process);
  }

  /** Returns an unused handle for a process that does not exist yet. */
  generate(): string {
    for (;;) {
      if (this.#drawn.length - this.#used < LENGTH) {
        this.#drawn = this.#random(LENGTH * DRAW_COUNT);
        this.#used = 0;
      }
      let handle = "";
      for (let at = 0; at < LENGTH; at++) handle += LETTERS.charAt((this.#drawn[this.#used++] ?? 0) & 31);
      if (!this.#byHandle.has(handle)) return handle;
    }
  }

  find(handle: string): P | null {
    return this.#byHandle.get(handle) ?? null;
  }

  release(handle: string): void {
    this.#byHandle.delete(handle);
  }
}
