import { MAX_WRITE_IDS } from "../../exec/backend/input-limits.ts";

/** Maximum bytes of one message, well below the frame limit of every server. */
export const MAX_WRITE_BYTES = 512 * 1024;
/**
 * Maximum writes in flight to one process. A server remembers its last write ids to recognize a repeated write; this
 * limit keeps every write that may be repeated among them.
 */
const MAX_WRITES_IN_FLIGHT = MAX_WRITE_IDS / 4;
/** Maximum bytes in flight, so that a large input does not pile up in the connection. */
const MAX_BYTES_IN_FLIGHT = 4 * 1024 * 1024;

/** Sends the writes of one process in order, a bounded number at a time. */
export class WriteWindow {
  readonly #waiting: { bytes: number; start: () => void }[] = [];
  #writes = 0;
  #bytes = 0;

  /** Runs `write` when there is capacity, in the order of the calls. */
  run<T>(bytes: number, write: () => Promise<T>): Promise<T> {
    if (this.#waiting.length === 0 && this.#hasCapacity(bytes)) return this.#start(bytes, write);
    return new Promise((resolve) => {
      this.#waiting.push({ bytes, start: () => resolve(this.#start(bytes, write)) });
    });
  }

  #hasCapacity(bytes: number): boolean {
    if (this.#writes === 0) return true;
    return this.#writes < MAX_WRITES_IN_FLIGHT && this.#bytes + bytes <= MAX_BYTES_IN_FLIGHT;
  }

  #start<T>(bytes: number, write: () => Promise<T>): Promise<T> {
    this.#writes++;
    this.#bytes += bytes;
    const onDone = () => {
      this.#writes--;
      this.#bytes -= bytes;
      for (;;) {
        const next = this.#waiting[0];
        if (!next || !this.#hasCapacity(next.bytes)) return;
        this.#waiting.shift();
        next.start();
      }
    };
    const running = write();
    running.then(onDone, onDone);
    return running;
  }
}
