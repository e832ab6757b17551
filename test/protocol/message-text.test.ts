import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import fc from "fast-check";
import { isObject } from "../../src/base/type-guards.ts";
import { type Message, parseMessage } from "../../src/protocol/envelope.ts";
import { parseJsonText } from "../../src/protocol/json-text.ts";
import {
  CHUNK_TAIL,
  decodeOutputNotification,
  encodeError,
  encodeListing,
  encodeNotification,
  encodeRequest,
  encodeResponse,
  forwardDataHead,
  outputHead,
  parseWithBinaryChunk,
  readBlockHead,
  readBlockTail,
  readFileHead,
  v0OutputHead,
  writeBlockHead,
  writeBlockTail,
  writeHead,
} from "../../src/protocol/message-text.ts";
import { outputParams } from "../../src/protocol/process-schemas.ts";
import { bytes } from "../../src/protocol/schema.ts";

const BYTES = randomBytes(60_000);
const TEXT = BYTES.toString("base64");
const STREAMS = ["stdout", "stderr", "pty"] as const;

interface Built {
  head: string;
  tail: string;
  /** The message as JSON.parse must return it; `chunk` is the base64 text. */
  expected: (chunk: string) => unknown;
}

const name = fc.string({ unit: "binary", maxLength: 40 });
/** Names without escapes and braces, which the recognizers accept in front of a chunk. */
const plainName = fc.stringMatching(/^[a-z0-9 .:/_-]{0,40}$/);
const requestIdOf = (text: fc.Arbitrary<string>) => fc.oneof(text, fc.maxSafeInteger());
const number = fc.nat();
const stream = fc.constantFrom(...STREAMS);
const trace = fc.option(fc.record({ traceparent: plainName, tracestate: plainName }), { nil: undefined });

/** Every message that is built around a chunk. */
function builtMessages(text: fc.Arbitrary<string>): Record<string, fc.Arbitrary<Built>> {
  return {
    "process/output": fc.tuple(text, number, stream).map(([processId, seq, from]) => ({
      head: outputHead(JSON.stringify(processId), seq, from),
      tail: CHUNK_TAIL,
      expected: (chunk) => ({ method: "process/output", params: { processId, seq, stream: from, chunk } }),
    })),
    "forward/data": text.map((streamId) => ({
      head: forwardDataHead(JSON.stringify(streamId)),
      tail: CHUNK_TAIL,
      expected: (chunk) => ({ method: "forward/data", params: { streamId, chunk } }),
    })),
    "command/exec/outputDelta": fc.tuple(text, stream).map(([sessionId, from]) => ({
      head: v0OutputHead(JSON.stringify(sessionId), from),
      tail: CHUNK_TAIL,
      expected: (chunk) => ({
        method: "command/exec/outputDelta",
        params: { sessionId, stream: from, chunk },
      }),
    })),
    "process/write": fc.tuple(number, text, fc.option(text, { nil: undefined })).map(([id, processId, writeId]) => ({
      head: writeHead(id, processId, writeId),
      tail: CHUNK_TAIL,
      expected: (chunk) => ({
        id,
        method: "process/write",
        params: { processId, ...(writeId !== undefined && { writeId }), chunk },
      }),
    })),
    "fs/writeBlock": fc.tuple(number, text, number, trace).map(([id, handleId, offset, context]) => ({
      head: writeBlockHead(id, handleId, offset),
      tail: writeBlockTail(context),
      expected: (chunk) => ({
        id,
        method: "fs/writeBlock",
        params: { handleId, offset, chunk },
        ...(context && { trace: { ...context } }),
      }),
    })),
    "a response to fs/readBlock": fc.tuple(requestIdOf(text), fc.boolean()).map(([id, eof]) => ({
      head: readBlockHead(id),
      tail: readBlockTail(eof),
      expected: (chunk) => ({ id, result: { chunk, eof } }),
    })),
    "a response to fs/readFile": requestIdOf(text).map((id) => ({
      head: readFileHead(id),
      tail: CHUNK_TAIL,
      expected: (dataBase64) => ({ id, result: { dataBase64 } }),
    })),
  };
}

/** Replaces a decoded chunk by its base64 text. */
function withChunkText(value: unknown): unknown {
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, withChunkText(member)]));
}

/** The general parser's result for the bytes of an output notification, or null if it is invalid. */
function decodeByJson(message: Uint8Array): unknown {
  try {
    const parsed: unknown = JSON.parse(Buffer.from(message).toString());
    if (!isObject(parsed) || parsed.method !== "process/output") return null;
    return outputParams.decode(parsed.params);
  } catch {
    return null;
  }
}

describe("messages built around a chunk", () => {
  for (const [what, built] of Object.entries(builtMessages(name)))
    test(`${what} parses to its members`, () => {
      fc.assert(
        fc.property(built, fc.uint8Array({ maxLength: 50 }), ({ head, tail, expected }, chunk) => {
          const text = Buffer.from(chunk).toString("base64");
          assert.deepEqual(JSON.parse(head + text + tail), expected(text));
          assert.ok(parseMessage(head + text + tail).ok);
        }),
      );
    });

  for (const [what, built] of Object.entries(builtMessages(plainName)))
    test(`${what} with a large chunk has the result of the general parser`, () => {
      fc.assert(
        fc.property(built, ({ head, tail, expected }) => {
          const text = head + TEXT + tail;
          const found = parseWithBinaryChunk(text);
          // `dataBase64` is the only chunk with another name. The server sends it in parts.
          assert.equal(found === null, what === "a response to fs/readFile");
          const parsed = found ?? parseJsonText(text);
          assert.ok(parsed.ok);
          assert.deepEqual(withChunkText(parsed.value), expected(TEXT));
        }),
        { numRuns: 20 },
      );
    });
});

describe("messages without a chunk", () => {
  test("parse to the same message", () => {
    const parse = (text: string): Message => {
      const parsed = parseMessage(text);
      assert.ok(parsed.ok, text);
      return JSON.parse(JSON.stringify(parsed.message));
    };
    fc.assert(
      fc.property(requestIdOf(fc.string()), fc.string(), fc.jsonValue(), (id, method, value) => {
        const json = JSON.parse(JSON.stringify(value));
        const error = { code: 7, message: method };
        assert.deepEqual(parse(encodeRequest(id, method, value)), {
          ...{ type: "request", id, method, params: json },
        });
        assert.deepEqual(parse(encodeNotification(method, value)), {
          ...{ type: "notification", method, params: json },
        });
        assert.deepEqual(parse(encodeResponse(id, value)), { type: "response", id, result: json });
        for (const others of [{}, { others: json }])
          assert.equal(
            encodeListing(id, JSON.stringify([json, json]).slice(1, -1), others),
            encodeResponse(id, { entries: [json, json], ...others }),
          );
        assert.deepEqual(parse(encodeError(id, error)), { type: "error", id, error });
      }),
    );
  });
});

describe("decodeOutputNotification", () => {
  test("decodes every built notification, or leaves it to the general parser", () => {
    const length = fc.constantFrom(0, 1, 49_151, 49_152, 49_153, 98_304, 200_000);
    fc.assert(
      fc.property(
        name,
        number,
        stream,
        fc.uint8Array({ maxLength: 300 }),
        length,
        (processId, seq, from, part, more) => {
          const chunk = Buffer.concat([part, Buffer.alloc(more, 7)]);
          const head = outputHead(JSON.stringify(processId), seq, from);
          const found = decodeOutputNotification(Buffer.from(head + chunk.toString("base64") + CHUNK_TAIL));
          // An id with escapes or non-ASCII characters needs the general parser.
          if (found === null) return assert.match(processId, /[^ !#-[\]-~]/);
          assert.deepEqual({ ...found, chunk: null }, { processId, seq, stream: from, chunk: null });
          assert.ok(chunk.equals(found.chunk));
        },
      ),
    );
  });

  const good = { processId: "p", seq: 1, stream: "stdout", chunk: "aGk=" };
  const encode = (params: object, method = "process/output") => Buffer.from(JSON.stringify({ method, params }));

  test("returns null for every other form of the message", () => {
    assert.ok(decodeOutputNotification(encode(good)));
    for (const other of [
      encode({ ...good, chunk: "aG k" }),
      encode({ ...good, chunk: "aGk" }),
      encode({ ...good, chunk: "a=k=" }),
      encode({ ...good, chunk: "aGl=" }),
      encode({ ...good, chunk: "_-8=" }),
      encode({ ...good, stream: "other" }),
      encode({ ...good, seq: "1" }),
      encode({ ...good, more: 1 }),
      encode({ seq: 1, processId: "p", stream: "stdout", chunk: "aGk=" }),
      Buffer.from(`${encode(good)} `),
      encode(good, "process/other!"),
      Buffer.from(JSON.stringify({ id: 1, result: good })),
      Buffer.from("{}"),
      Buffer.alloc(0),
      new TextEncoder().encode(encode(good).toString()),
    ])
      assert.equal(decodeOutputNotification(other), null, other.toString());
  });

  test("never differs from the general parser after a change of one byte", () => {
    const message = encode({ ...good, processId: "p-1", seq: 12, chunk: "aGVsbG8=" });
    const letters = '"\\{},:09aZ+/=-_ \n\u0000\u00e9';
    for (let at = 0; at < message.length; at++)
      for (const letter of letters) {
        const changed = Buffer.from(message);
        changed[at] = letter.charCodeAt(0);
        const found = decodeOutputNotification(changed);
        if (found === null) continue;
        assert.deepEqual({ ...found, chunk: Buffer.from(found.chunk) }, decodeByJson(changed), changed.toString());
      }
  });
});

describe("parseWithBinaryChunk", () => {
  test("returns the chunk of a request or response as bytes, and the rest unchanged", () => {
    const request = `{"id":7,"method":"fs/writeBlock","params":{"handleId":"h","offset":3,"chunk":"${TEXT}"},"trace":{"traceparent":"t"}}`;
    assert.deepEqual(parseMessage(request), {
      ok: true,
      message: {
        type: "request",
        id: 7,
        method: "fs/writeBlock",
        params: { handleId: "h", offset: 3, chunk: BYTES },
        trace: { traceparent: "t", tracestate: undefined },
      },
    });
    const response = ` {"id":1.0,"result":{"chunk":"${TEXT}","eof":true}}`;
    assert.deepEqual(parseWithBinaryChunk(response), {
      ok: true,
      value: { id: 1, result: { chunk: BYTES, eof: true } },
      idLiteral: "1.0",
    });
    assert.equal(bytes.decode(BYTES), BYTES);
  });

  for (const [what, text] of [
    ["a short message", `{"id":1,"result":{"chunk":"QUJD"}}`],
    ["a chunk of a nested object", `{"id":1,"params":{"inner":{"chunk":"${TEXT}"},"chunk":""}}`],
    ["nested params", `{"id":1,"x":{"params":{"chunk":"${TEXT}"}},"params":{"chunk":"QUJD"}}`],
    ["a top-level chunk", `{"id":1,"chunk":"${TEXT}"}`],
    ["a chunk after a string with a brace", `{"id":1,"params":{"path":"{","chunk":"${TEXT}"}}`],
    ["a chunk after an escape", `{"id":1,"params":{"path":"\\"","chunk":"${TEXT}"}}`],
    ["a chunk that is not base64", `{"id":1,"params":{"chunk":"${TEXT}!"}}`],
    ["an escape in the chunk", `{"id":1,"params":{"chunk":"${TEXT}\\u0041AAA"}}`],
    ["a duplicate chunk", `{"id":1,"params":{"chunk":"${TEXT}","chunk":"QUJD"}}`],
    ["an unterminated chunk", `{"id":1,"params":{"chunk":"${TEXT}`],
    ["a missing brace after the chunk", `{"id":1,"params":{"chunk":"${TEXT}"}`],
    ["a duplicate comma before the chunk", `{"id":1,,"params":{"chunk":"${TEXT}"}}`],
    ["a key in an array", `{"params":["params":{"chunk":"${TEXT}"}]}`],
  ] as const)
    test(`leaves ${what} to the general parser`, () => {
      assert.equal(parseWithBinaryChunk(text), null);
    });

  test("has the result of the general parser for every envelope", () => {
    const member = fc.constantFrom(
      '"a":1',
      '"chunk":"QUJD"',
      '"params":{"x":1}',
      '"result":{',
      '"x":[',
      '"}"',
      "}",
      "]",
      "{",
      `"chunk":"${TEXT}"`,
      `"params":{"chunk":"${TEXT}"}`,
      `"params":{"a":[1,"b"],"chunk":"${TEXT}"`,
    );
    fc.assert(
      fc.property(fc.array(member, { maxLength: 6 }), (members) => {
        const text = `{"id":1,${members.join(",")}}`;
        const fast = parseWithBinaryChunk(text);
        if (fast === null) return;
        const slow = parseJsonText(text);
        assert.ok(fast.ok && slow.ok);
        assert.deepEqual(withChunkText(fast.value), slow.value);
      }),
      { numRuns: 500 },
    );
  });
});
