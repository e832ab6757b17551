/** Frames at least this large are worth keeping: a fresh buffer of that size costs its page faults each time. */
const KEEP_ABOVE_BYTES = 32 * 1024;
/** Room for the largest chunk a process gives at once (256 KiB) as base64, with its envelope. */
const CAPACITY_BYTES = 384 * 1024;
/** Free buffers kept: enough for what one busy connection has under way. */
const MAX_FREE = 8;

/** Lends out buffers for large frames and takes them back once they are sent. */
export class FrameBuffers {
  #free: Buffer[] = [];

  take(bytes: number): Buffer {
    if (bytes < KEEP_ABOVE_BYTES || bytes > CAPACITY_BYTES) return Buffer.allocUnsafe(bytes);
    const whole = this.#free.pop() ?? Buffer.allocUnsafeSlow(CAPACITY_BYTES);
    return whole.subarray(0, bytes);
  }

  /** Only buffers that nobody looks at any more; those that are not of this size are left to the collector. */
  give(buffer: Buffer): void {
    if (buffer.buffer.byteLength !== CAPACITY_BYTES || this.#free.length >= MAX_FREE) return;
    this.#free.push(Buffer.from(buffer.buffer));
  }

  /** Whether `give` has any use for it. */
  isLent(buffer: Buffer): boolean {
    return buffer.buffer.byteLength === CAPACITY_BYTES;
  }
}

/** One for all connections. */
export const frameBuffers = new FrameBuffers();
