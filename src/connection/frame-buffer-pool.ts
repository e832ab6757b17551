import { freeCopiedBuffer } from "../base/free-buffer.ts";

/** Minimum size of a pooled frame. A new buffer of this size costs page faults each time. */
const MIN_POOLED_BYTES = 32 * 1024;
/** Size of a pooled buffer. Fits the largest output chunk (256 KiB) as base64 with its envelope. */
const CAPACITY_BYTES = 384 * 1024;
/** Maximum free buffers. Enough for the frames in flight of one busy connection. */
const MAX_FREE = 8;

/** A pool of buffers for large frames. */
export class FrameBufferPool {
  #free: Buffer[] = [];

  acquire(bytes: number): Buffer {
    if (bytes < MIN_POOLED_BYTES || bytes > CAPACITY_BYTES) return Buffer.allocUnsafe(bytes);
    const whole = this.#free.pop() ?? Buffer.allocUnsafeSlow(CAPACITY_BYTES);
    return whole.subarray(0, bytes);
  }

  /**
   * Returns a buffer that is no longer used to the pool. Frees other large buffers immediately, because the garbage
   * collector may run much later.
   */
  release(buffer: Buffer): void {
    if (buffer.buffer.byteLength !== CAPACITY_BYTES) freeCopiedBuffer(buffer);
    else if (this.#free.length < MAX_FREE) this.#free.push(Buffer.from(buffer.buffer));
  }
}

/** The pool of all connections. */
export const frameBufferPool = new FrameBufferPool();
