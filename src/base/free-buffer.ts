/**
 * Frees the memory behind bytes at once; nobody may use them afterwards. The garbage collector would free it too, but
 * it does not run in an idle server, which would keep the memory for good.
 */
export function freeBytes(bytes: Uint8Array): void {
  if (bytes.buffer instanceof ArrayBuffer) bytes.buffer.transfer(0);
}

/** Smaller buffers are soon collected, and may share a pool. */
const WORTH_FREEING_BYTES = 16 * 1024;

/** The same for bytes that have been copied, if they are large enough and nothing else shares their memory. */
export function freeCopied(bytes: Uint8Array): void {
  if (bytes.length >= WORTH_FREEING_BYTES && bytes.length === bytes.buffer.byteLength) freeBytes(bytes);
}
