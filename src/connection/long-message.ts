/** A message whose middle is `bytes` as base64, too long to be made at once. */
export interface LongMessage {
  head: string;
  bytes: Uint8Array;
  tail: string;
}
