import { REMEMBERED_WRITE_IDS } from "../../exec/input-limits.ts";

/** One message carries at most this much, far below what any server takes in one frame. */
export const MAX_WRITE_BYTES = 512 * 1024;
/**
 * Writes on their way to one process. A server remembers its last write ids to tell a repeated write from a new one;
 * staying well below keeps every write that may have to be repeated among them.
 */
const MAX_WRITES_UNDER_WAY = REMEMBERED_WRITE_IDS / 4;
/** And their bytes, so that a large input does not pile up in the connection. */
const MAX_BYTES_UNDER_WAY = 4 * 1024 * 1024;

/** Sends the writes of one process in order, a bounded number at a time. */
export class WriteWindow {
  readonly #waiting: { bytes: number; go: () => void }[] = [];
  #writes = 0;
  #bytes = 0;

  /** Runs `write` when there is room. What was asked first runs first. */
  run<T>(bytes: number, write: () => Promise<T>): Promise<T> {
    if (this.#waiting.length === 0 && this.#hasRoom(bytes)) return this.#start(bytes, write);
    return new Promise((resolve) => {
      this.#waiting.push({ bytes, go: () => resolve(this.#start(bytes, write)) });
    });
  }

  #hasRoom(bytes: number): boolean {
    if (this.#writes === 0) return true;
    return this.#writes < MAX_WRITES_UNDER_WAY && this.#bytes + bytes <= MAX_BYTES_UNDER_WAY;
  }

  #start<T>(bytes: number, write: () => Promise<T>): Promise<T> {
    this.#writes++;
    this.#bytes += bytes;
    const done = () => {
      this.#writes--;
      this.#bytes -= bytes;
      for (;;) {
        const next = this.#waiting[0];
        if (!next || !this.#hasRoom(next.bytes)) return;
        this.#waiting.shift();
        next.go();
      }
    };
    const running = write();
    running.then(done, done);
    return running;
  }
}
