import { randomUuid } from "../../base/random-uuid.ts";
import { randomBytes } from "./random-bytes.ts";

/**
 * Returns a random UUID (version 4). A client of the same principal can take over a session if it knows the id, so
 * the server sends the id only to the session's own client.
 */
export function newSessionId(): string {
  return randomUuid(randomBytes(16));
}
