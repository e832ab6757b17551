import { MAX_WRITE_ID_CHARS, MAX_WRITE_IDS } from "../exec/backend/input-limits.ts";

/** The write ids that a process has accepted, so that a resent write is not written twice. */
export class WriteIdCache {
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
      const isTooMuch = this.#ids.size > MAX_WRITE_IDS || this.#chars > MAX_WRITE_ID_CHARS;
      if (!isTooMuch || this.#ids.size === 1) return;
      this.#ids.delete(oldest);
      this.#chars -= oldest.length;
    }
  }
}
