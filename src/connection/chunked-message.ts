/** A message with the text `head`, `bytes` as base64, then `tail`. Sent in parts, because it is too long for one buffer. */
export interface ChunkedMessage {
  head: string;
  bytes: Uint8Array;
  tail: string;
}
