/**
 * Frees the memory of `bytes` immediately. The caller must not use `bytes` afterwards. In an idle server the garbage
 * collector does not run, so the memory would stay allocated.
 */
export function freeBuffer(bytes: Uint8Array): void {
  if (bytes.buffer instanceof ArrayBuffer) bytes.buffer.transfer(0);
}

/** Minimum size of an explicitly freed buffer. Smaller ones may share Node's buffer pool. */
const MIN_FREED_BYTES = 16 * 1024;

/** Frees `bytes`, which the caller has copied, if they are large enough and own their whole memory. */
export function freeCopiedBuffer(bytes: Uint8Array): void {
  if (bytes.length >= MIN_FREED_BYTES && bytes.length === bytes.buffer.byteLength) freeBuffer(bytes);
}

/** Maximum bytes before a file block in the memory of its message. */
const MAX_BYTES_BEFORE_BLOCK = 16 * 1024;

/** Frees a received file block like `freeCopiedBuffer`, and the message that ends with it. */
export function freeReceivedBlock(bytes: Uint8Array): void {
  const { byteOffset, length, buffer } = bytes;
  if (byteOffset + length !== buffer.byteLength || byteOffset > MAX_BYTES_BEFORE_BLOCK) return;
  if (length >= MIN_FREED_BYTES) freeBuffer(bytes);
}
