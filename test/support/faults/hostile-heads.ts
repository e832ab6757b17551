/** Slightly malformed request heads, and node:http's result for each. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { connect } from "node:net";
import fc from "fast-check";

export const token = fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}$/);
export const value = fc.stringMatching(/^[!-~\x80-\xff]([ \t!-~\x80-\xff]{0,40}[!-~\x80-\xff])?$/);
export const blank = fc.stringMatching(/^[ \t]{0,3}$/);

const SPECIAL_CHARACTERS = [...'\0\t\n\r :;,"()<>@[]{}\\/?#%\x01\x1f\x7f\x80\xa0\xff'];
const header = fc
  .record({
    name: fc.oneof(token, fc.constantFrom("connection", "upgrade", "origin", "x")),
    value: fc.oneof(value, fc.constant("")),
    before: blank,
    after: blank,
  })
  // This server responds to the head and closes, so bodies do not matter.
  .filter(({ name }) => !/^(content-length|transfer-encoding|expect|host)$/i.test(name));
/** Returns a well-formed head with a few bytes inserted, replaced or removed. */
export const hostileHead = fc
  .record({
    method: fc.constantFrom("GET", "HEAD", "POST", "OPTIONS"),
    target: fc.stringMatching(/^\/[a-z0-9/._~-]{0,20}$/),
    headers: fc.array(header, { maxLength: 5 }),
    changes: fc.array(
      fc.tuple(fc.nat(), fc.constantFrom("insert", "replace", "remove"), fc.constantFrom(...SPECIAL_CHARACTERS)),
      {
        maxLength: 2,
      },
    ),
  })
  .map(({ method, target, headers, changes }) => {
    const lines = headers.map(({ name, value, before, after }) => `${name}:${before}${value}${after}\r\n`);
    let text = `${method} ${target} HTTP/1.1\r\nhost: localhost\r\n${lines.join("")}`;
    for (const [place, how, odd] of changes) {
      const at = place % text.length;
      text = text.slice(0, at) + (how === "remove" ? "" : odd) + text.slice(how === "insert" ? at : at + 1);
    }
    return Buffer.from(`${text}\r\n`, "latin1");
  });

/** Returns the method, path and headers that node:http parses from a head, or null if node:http rejects the head. */
export class NodeReader {
  readonly #server = createServer({ joinDuplicateHeaders: true });
  readonly #outcomes = new Map<number, (message: IncomingMessage) => void>();

  async listen(): Promise<this> {
    const deliver = (message: IncomingMessage) => this.#outcomes.get(message.socket.remotePort ?? 0)?.(message);
    this.#server.on("request", deliver);
    this.#server.on("upgrade", deliver);
    this.#server.on("clientError", (_, socket) => socket.destroy());
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return this;
  }

  async read(head: Buffer): Promise<IncomingMessage | null> {
    const address = this.#server.address();
    assert.ok(typeof address === "object" && address !== null);
    const socket = connect(address.port, "127.0.0.1");
    socket.on("error", () => undefined);
    await once(socket, "connect");
    const outcome = new Promise<IncomingMessage>((resolve) => this.#outcomes.set(socket.localPort ?? 0, resolve));
    socket.end(head);
    socket.resume();
    // node:http closes a connection silently if it ends before the end of the head.
    const message = await Promise.race([outcome, once(socket, "close").then(() => null)]);
    this.#outcomes.delete(socket.localPort ?? 0);
    socket.destroy();
    return message;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
