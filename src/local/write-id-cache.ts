import { REMEMBERED_WRITE_ID_CHARS, REMEMBERED_WRITE_IDS } from "../exec/input-limits.ts";

/** The ids of the writes a process was given: a write that is sent again is not done again. */
export class WriteIds {
  readonly #ids = new Set<string>();
  #chars = 0;

  has(writeId: string): boolean {
    return this.#ids.has(writeId);
  }

  add(writeId: string): void {
    if (this.#ids.has(writeId)) return;
    this.#ids.add(writeId);
    this.#chars += writeId.length;
    for (const oldest of this.#ids) {
      const isTooMuch = this.#ids.size > REMEMBERED_WRITE_IDS || this.#chars > REMEMBERED_WRITE_ID_CHARS;
      if (!isTooMuch || this.#ids.size === 1) return;
      this.#ids.delete(oldest);
      this.#chars -= oldest.length;
    }
  }
}
