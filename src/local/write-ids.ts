import { REMEMBERED_WRITE_IDS } from "../exec/input-limits.ts";

/** The ids of the writes a process was given: a write that is sent again is not done again. */
export class WriteIds {
  readonly #ids = new Set<string>();

  has(writeId: string): boolean {
    return this.#ids.has(writeId);
  }

  add(writeId: string): void {
    this.#ids.add(writeId);
    if (this.#ids.size <= REMEMBERED_WRITE_IDS) return;
    for (const oldest of this.#ids) {
      this.#ids.delete(oldest);
      break;
    }
  }
}
