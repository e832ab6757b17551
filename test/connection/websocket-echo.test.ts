import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { closePayload, cut, type RawFrame, RawWebSocket, rawFrame } from "../support/faults/raw-frames.ts";
import { serveEcho } from "../support/servers/echo-server.ts";
import { tcpPort } from "../support/servers/websocket-server.ts";

/** The rules of WebSocket, tested over TCP with both kinds of sockets that the server uses. */

const MAX_MESSAGE_BYTES = 2 * 1024 * 1024;
const servers = {
  "the addon's sockets": await serveEcho("native", { maxMessageBytes: MAX_MESSAGE_BYTES }),
  "Node's sockets": await serveEcho("node", { maxMessageBytes: MAX_MESSAGE_BYTES }),
};
after(() => {
  for (const server of Object.values(servers)) server.close();
});

const bytes = (text: string) => Buffer.from(text);
const text = (payload: string | Uint8Array, more: Partial<RawFrame> = {}) =>
  rawFrame({ opcode: 1, payload: Buffer.from(payload), ...more });
const binary = (payload: Uint8Array, more: Partial<RawFrame> = {}) => rawFrame({ opcode: 2, payload, ...more });
const more = (payload: string | Uint8Array, fin = true) => rawFrame({ opcode: 0, fin, payload: Buffer.from(payload) });
const ping = (payload = "") => rawFrame({ opcode: 9, payload: bytes(payload) });
const pong = (payload = "") => rawFrame({ opcode: 10, payload: bytes(payload) });
const close = (payload: Uint8Array = new Uint8Array(0)) => rawFrame({ opcode: 8, payload });
const reply = (kind: string, payload: string | Uint8Array) => `${kind} ${Buffer.from(payload).toString("base64")}`;

const BAD_CODES = [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 1999, 2000, 2999, 5000, 65_535];
const GOOD_CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999];
/** Overlong forms, surrogates, values above U+10FFFF, truncated sequences, lone continuations, invalid bytes. */
const BAD_UTF8 = [
  "c080",
  "e08080",
  "eda080",
  "f4908080",
  "f8888080",
  "ce",
  "e282",
  "f09f98",
  "80",
  "fe",
  "ff",
  "6180",
  // The highest value of each overlong form, sequences of five and six bytes, and a pair of surrogates.
  "c1bf",
  "e09fbf",
  "f08fbfbf",
  "fc8080808080",
  "edafbfedbfbf",
  // Text that is valid up to its last byte, and text with an invalid middle.
  "cebae1bdb9cf83cebcce",
  "cebae1bdb9cf83eda080656469746564",
];
const GOOD_UTF8 = [
  "",
  "κόσμε",
  "\u0000",
  "\u007f\u0080\u07ff\u0800\uffff",
  "\ufffd",
  "\u{10000}\u{10ffff}",
  "\ufdd0\ufffe",
  "\u{1fffe}\u{10ffff}",
  "\ufeffκόσμε",
];

/** The sent frames, and all received frames until both sides have closed. */
type Case = [what: string, sent: Buffer[], expectedFrames: string[]];

const cases: Case[] = [
  ["an empty text", [text("")], [reply("text", "")]],
  ["an empty binary message", [binary(bytes(""))], [reply("binary", "")]],
  ["binary that is not UTF-8", [binary(Buffer.from("ff00fe", "hex"))], [reply("binary", Buffer.from("ff00fe", "hex"))]],
  ["a JSON-RPC message", [text('{"id":1,"method":"x"}')], [reply("text", '{"id":1,"method":"x"}')]],
  [
    "a length in more bytes than it needs",
    [text("a", { lengthBytes: 8 }), text("b", { lengthBytes: 2 })],
    [reply("text", "a"), reply("text", "b")],
  ],
  ["a mask of zero", [text("a", { mask: 0 })], [reply("text", "a")]],

  ["a ping with a payload", [ping("x".repeat(125)), ping()], [reply("pong", "x".repeat(125)), reply("pong", "")]],
  ["an unsolicited pong and a ping", [pong(), pong("x"), ping("y")], [reply("pong", "y")]],
  [
    "ten pings in a row",
    Array.from({ length: 10 }, (_, at) => ping(`${at}`)),
    Array.from({ length: 10 }, (_, at) => reply("pong", `${at}`)),
  ],
  ["a pong in fragments", [rawFrame({ opcode: 10, fin: false }), text("a")], ["close 1002"]],
  ["a ping with a reserved bit", [rawFrame({ opcode: 9, rsv: 4 }), text("a")], ["close 1002"]],
  ["a close with a reserved bit", [rawFrame({ opcode: 8, rsv: 7, payload: closePayload(1000) })], ["close 1002"]],
  ["a ping that is too long", [ping("x".repeat(126)), text("a")], ["close 1002"]],
  ["a ping in fragments", [rawFrame({ opcode: 9, fin: false }), text("a")], ["close 1002"]],
  ["an unmasked ping", [rawFrame({ opcode: 9, mask: null })], ["close 1002"]],

  [
    "a text in fragments, pings between",
    [text("a", { fin: false }), ping("1"), more("b", false), ping("2"), more("c")],
    [reply("pong", "1"), reply("pong", "2"), reply("text", "abc")],
  ],
  ["binary in fragments", [binary(bytes("a"), { fin: false }), more("b")], [reply("binary", "ab")]],
  ["empty fragments", [text("", { fin: false }), more("", false), more("")], [reply("text", "")]],
  [
    "a message after a fragmented message",
    [text("a", { fin: false }), more("b"), text("c")],
    [reply("text", "ab"), reply("text", "c")],
  ],
  ["a continuation without a message", [more("a")], ["close 1002"]],
  ["an unfinished continuation without a message", [more("a", false), text("b")], ["close 1002"]],
  [
    "a continuation after the last fragment",
    [text("a", { fin: false }), more("b"), more("c", false), text("d")],
    [reply("text", "ab"), "close 1002"],
  ],
  [
    "64 KiB in fragments of 1,300 bytes",
    Array.from({ length: 51 }, (_, at) =>
      at === 0
        ? text("*".repeat(1300), { fin: false })
        : more("*".repeat(at < 50 ? 1300 : 65_536 - 50 * 1300), at === 50),
    ),
    [reply("text", "*".repeat(65_536))],
  ],
  ["a continuation after a complete message", [text("a"), more("b")], [reply("text", "a"), "close 1002"]],
  ["a new text inside another", [text("a", { fin: false }), text("b")], ["close 1002"]],
  ["new binary inside a text", [text("a", { fin: false }), binary(bytes("b"), { fin: false })], ["close 1002"]],
  [
    "fragments that are too large together",
    [text(Buffer.alloc(MAX_MESSAGE_BYTES, 97), { fin: false }), more("b")],
    ["close 1009"],
  ],
  ["a message that is too large", [text(Buffer.alloc(MAX_MESSAGE_BYTES + 1))], ["close 1009"]],

  ...[1, 2, 4, 7].map(
    (rsv): Case => [`reserved bits ${rsv}`, [text("a"), text("b", { rsv })], [reply("text", "a"), "close 1002"]],
  ),
  ...[3, 4, 5, 6, 7, 11, 12, 13, 14, 15].map(
    (opcode): Case => [
      `opcode ${opcode}`,
      [text("a"), rawFrame({ opcode }), ping()],
      [reply("text", "a"), "close 1002"],
    ],
  ),
  ...[3, 7, 11, 15].map(
    (opcode): Case => [
      `opcode ${opcode} with a payload`,
      [text("a"), rawFrame({ opcode, payload: bytes("b") }), ping()],
      [reply("text", "a"), "close 1002"],
    ],
  ),
  ["a frame without a mask", [text("a", { mask: null })], ["close 1002"]],

  ...GOOD_UTF8.map((good): Case => [`the text ${JSON.stringify(good)}`, [text(good)], [reply("text", good)]]),
  [
    "a character over two fragments",
    [text(bytes("é").subarray(0, 1), { fin: false }), more(bytes("é").subarray(1))],
    [reply("text", "é")],
  ],
  ...BAD_UTF8.flatMap((hex): Case[] => [
    [`a text with ${hex}`, [text(Buffer.from(hex, "hex")), text("a")], ["close 1007"]],
    [
      `a text with ${hex} in fragments`,
      [text("a", { fin: false }), more(Buffer.from(hex, "hex")), text("a")],
      ["close 1007"],
    ],
  ]),

  ["an empty close", [close(), text("a")], ["close 1000"]],
  ["a close in the middle of a message", [text("a", { fin: false }), close(closePayload(1000))], ["close 1000"]],
  ["two closes", [close(closePayload(1000)), close(closePayload(1001))], ["close 1000"]],
  [
    "a close before the rest of a message",
    [text("a", { fin: false }), close(closePayload(1000)), more("b")],
    ["close 1000"],
  ],
  [
    "a close after 256 KiB",
    [text("*".repeat(262_144)), close(closePayload(1000))],
    [reply("text", "*".repeat(262_144)), "close 1000"],
  ],
  ["a close with one byte", [close(Buffer.of(3))], ["close 1002"]],
  ["a close that is too long", [close(closePayload(1000, "x".repeat(124)))], ["close 1002"]],
  ["a close in fragments", [rawFrame({ opcode: 8, fin: false })], ["close 1002"]],
  ["a close with the longest reason", [close(closePayload(1000, "x".repeat(123)))], ["close 1000"]],
  ...BAD_CODES.map((code): Case => [`a close with ${code}`, [close(closePayload(code)), ping()], ["close 1002"]]),
  ...BAD_CODES.map(
    (code): Case => [`a close with ${code} and a reason`, [close(closePayload(code, "bye"))], ["close 1002"]],
  ),
  ...GOOD_CODES.map((code): Case => [`a close with ${code}`, [close(closePayload(code, "é")), ping()], ["close 1000"]]),
  ...BAD_UTF8.map(
    (hex): Case => [
      `a close with the reason ${hex}`,
      [close(closePayload(1000, Buffer.from(hex, "hex")))],
      ["close 1007"],
    ],
  ),
];

for (const [sockets, server] of Object.entries(servers)) {
  describe(`an echo over ${sockets}`, () => {
    async function answers(parts: Buffer[]): Promise<string[]> {
      const client = await RawWebSocket.open(tcpPort(server));
      for (const part of parts) {
        client.send(part);
        // Small pieces arrive separately only if the receiver reads between them.
        if (parts.length < 50) await new Promise((resolve) => setImmediate(resolve));
      }
      return client.finish();
    }

    for (const [what, sent, expectedFrames] of cases) {
      test(`replies to ${what} with ${expectedFrames.at(-1)?.split(" ", 1)[0] === "close" ? expectedFrames.at(-1) : "the expected frames"}`, async () => {
        assert.deepEqual(await answers([Buffer.concat(sent)]), expectedFrames);
        const whole = Buffer.concat(sent);
        if (whole.length > 1000) return;
        assert.deepEqual(await answers(cut(whole, [1, 3, 5, 8, 13, 21])), expectedFrames);
        assert.deepEqual(await answers(cut(whole, [...whole.keys()])), expectedFrames);
      });
    }

    test("returns every message of any length, split at any position", async () => {
      const length = fc.oneof(
        fc.constantFrom(0, 1, 125, 126, 127, 128, 65_535, 65_536, 65_537, 1_048_576, 1_048_577, MAX_MESSAGE_BYTES),
        fc.nat(70_000),
      );
      const message = fc.record({
        length,
        letter: fc.constantFrom("a", "é", "😀"),
        opcode: fc.constantFrom(1, 2),
      });
      await fc.assert(
        fc.asyncProperty(
          fc.array(message, { minLength: 1, maxLength: 4 }),
          fc.array(fc.nat(), { maxLength: 8 }),
          async (messages, places) => {
            const payloads = messages.map(({ length, letter }) => {
              const size = Buffer.byteLength(letter);
              return bytes(letter.repeat(Math.floor(length / size)) + "x".repeat(length % size));
            });
            const sent = messages.map(({ opcode }, at) => rawFrame({ opcode, payload: payloads[at] ?? bytes("") }));
            const expected = messages.map(({ opcode }, at) =>
              reply(opcode === 1 ? "text" : "binary", payloads[at] ?? ""),
            );
            const received = await answers([...cut(Buffer.concat(sent), places), close()]);
            assert.deepEqual(received, [...expected, "close 1000"]);
          },
        ),
        { numRuns: 25 },
      );
    });
  });
}
