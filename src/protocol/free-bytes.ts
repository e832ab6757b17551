/**
 * Gives the memory behind bytes back at once; nobody may look at them any more. The collector counts such memory too, but
 * a server that has nothing to do is not collected, and would keep it for good.
 */
export function freeBytes(bytes: Uint8Array): void {
  if (bytes.buffer instanceof ArrayBuffer) bytes.buffer.transfer(0);
}

/** Smaller buffers are soon collected, and may share a pool. */
const WORTH_FREEING_BYTES = 16 * 1024;

/** The same for bytes of which copies were made, where that is worth it and nothing else shares their memory. */
export function freeCopied(bytes: Uint8Array): void {
  if (bytes.length >= WORTH_FREEING_BYTES && bytes.length === bytes.buffer.byteLength) freeBytes(bytes);
}
