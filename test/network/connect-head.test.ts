import assert from "node:assert/strict";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import { connect, createServer } from "node:net";
import { describe, test } from "node:test";
import fc from "fast-check";
import { readConnectHead } from "../../src/network/connect-head.ts";
import { createProxyServer } from "../../src/network/proxy-server.ts";

const read = (text: string) => readConnectHead(Buffer.from(text, "latin1"));

describe("the head of a CONNECT request", () => {
  test("is read with its length, and bytes may follow", () => {
    const head = "CONNECT good.test:443 HTTP/1.1\r\nHost: good.test:443\r\nProxy-Connection: Keep-Alive\r\n\r\n";
    for (const more of ["", "\x16\x03\x01", "\r\n\r\n"])
      assert.deepEqual(read(head + more), { target: "good.test:443", length: head.length });
    assert.deepEqual(read("CONNECT [::1]:80 HTTP/1.1\r\n\r\n"), { target: "[::1]:80", length: 29 });
  });

  const target = "CONNECT good.test:443 HTTP/1.1\r\n";
  const others: Record<string, string> = {
    "another method": "GET http://good.test/ HTTP/1.1\r\n\r\n",
    "an incomplete head": `${target}Host: good.test\r\n`,
    "another version": "CONNECT good.test:443 HTTP/1.0\r\n\r\n",
    "line feeds alone": "CONNECT good.test:443 HTTP/1.1\nHost: a\n\r\n\r\n",
    "a user": "CONNECT user@good.test:443 HTTP/1.1\r\n\r\n",
    "a path": "CONNECT good.test:443/x HTTP/1.1\r\n\r\n",
    "a folded header": `${target}X-A: 1\r\n 2\r\n\r\n`,
    "a space before the colon": `${target}X-A : 1\r\n\r\n`,
    "a NUL byte": `${target}X-A: \0\r\n\r\n`,
    "a carriage return": `${target}X-A: 1\rX-B: 2\r\n\r\n`,
    "a length": `${target}content-length: 4\r\n\r\n`,
    "a transfer coding": `${target}X-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n`,
    "a head above 4 KiB": `${target}X-A: ${"a".repeat(4096)}\r\n\r\n`,
  };
  for (const [title, text] of Object.entries(others))
    test(`is left to the parser with ${title}`, () => assert.equal(read(text), null));

  test("is the same to the parser of Node, whenever it is read here", async () => {
    const http = createProxyServer();
    let accepted: string | null = null;
    http.on("connect", (request: IncomingMessage, socket) => {
      accepted = `${request.url}`;
      socket.destroy();
    });
    const server = createServer((socket) => http.emit("connection", socket)).listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    assert.ok(typeof address === "object" && address);
    const token = fc.constantFrom(
      "a",
      "Z",
      "9",
      "-",
      "_",
      "!",
      "~",
      ".",
      ":",
      "\t",
      " ",
      "\r",
      "\n",
      "\0",
      "\x7f",
      "\xe9",
    );
    const line = fc.array(token, { maxLength: 8 }).map((tokens) => tokens.join(""));
    const header = fc.oneof(
      line,
      fc.tuple(fc.constantFrom("Host", "Connection", "X-A"), line).map((two) => two.join(":")),
    );
    const authorities = fc.oneof(fc.constantFrom("good.test:443", "[::1]:80", "a-b:1"), line);
    try {
      await fc.assert(
        fc.asyncProperty(authorities, fc.array(header, { maxLength: 3 }), async (authority, headers) => {
          const text = [`CONNECT ${authority} HTTP/1.1`, ...headers, "", ""].join("\r\n");
          const head = read(text);
          if (head === null) return;
          accepted = null;
          const socket = connect(address.port, "127.0.0.1").on("error", () => undefined);
          socket.end(text.slice(0, head.length), "latin1");
          await once(socket.resume(), "close");
          // llhttp rejects some targets that `parseConnectTarget` rejects too.
          if (/^(?:[\w.-]+|\[[\da-f:]+\]):\d+$/.test(head.target)) assert.equal(accepted, head.target);
        }),
        { numRuns: 500 },
      );
    } finally {
      server.close();
    }
  });
});
