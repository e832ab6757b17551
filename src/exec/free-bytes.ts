/**
 * Gives the memory behind bytes back at once; nobody may look at them any more. The collector counts such memory too, but
 * a server that has nothing to do is not collected, and would keep it for good.
 */
export function freeBytes(bytes: Uint8Array): void {
  if (bytes.buffer instanceof ArrayBuffer) bytes.buffer.transfer(0);
}
