import { randomBytes } from "./random-bytes.ts";

/**
 * Returns a random UUID (version 4). A client of the same principal can take over a session if it knows the id, so
 * the server sends the id only to the session's own client.
 */
export function newSessionId(): string {
  const bytes = randomBytes(16);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
