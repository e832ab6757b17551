import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { decodeOutputNotification } from "../../../src/client/rpc/output-decoder.ts";

const STREAMS = ["stdout", "stderr", "pty"] as const;

function message(params: Record<string, unknown>): Buffer {
  return Buffer.from(JSON.stringify({ method: "process/output", params }));
}

describe("decodeOutputNotification", () => {
  test("decodes any bytes of any length", () => {
    fc.assert(
      fc.property(
        fc.string({ maxLength: 40 }),
        fc.nat(),
        fc.constantFrom(...STREAMS),
        fc.uint8Array({ maxLength: 300 }),
        fc.constantFrom(0, 1, 49_151, 49_152, 49_153, 98_304, 200_000),
        (processId, seq, stream, bytes, more) => {
          const chunk = Buffer.concat([bytes, Buffer.alloc(more, 7)]);
          const read = decodeOutputNotification(
            message({ processId, seq, stream, chunk: chunk.toString("base64") }),
          );
          // An id with escapes or non-ASCII characters uses the general decoder.
          if (read === null) return assert.match(processId, /[^ !#-[\]-~]/);
          assert.deepEqual({ ...read, chunk: null }, { processId, seq, stream, chunk: null });
          assert.ok(chunk.equals(read.chunk));
        },
      ),
    );
  });

  test("returns null for any other form of the message", () => {
    const good = { processId: "p", seq: 1, stream: "stdout", chunk: "aGk=" };
    assert.ok(decodeOutputNotification(message(good)));
    for (const odd of [
      message({ ...good, chunk: "aG k" }),
      message({ ...good, chunk: "aGk" }),
      message({ ...good, chunk: "a=k=" }),
      message({ ...good, stream: "other" }),
      message({ ...good, seq: "1" }),
      message({ ...good, more: 1 }),
      message({ seq: 1, processId: "p", stream: "stdout", chunk: "aGk=" }),
      Buffer.from(`${message(good)} `),
      Buffer.from(JSON.stringify({ method: "process/other!", params: good })),
      Buffer.from(JSON.stringify({ id: 1, result: good })),
      Buffer.from("{}"),
      Buffer.alloc(0),
      new TextEncoder().encode(message(good).toString()),
    ])
      assert.equal(decodeOutputNotification(odd), null, odd.toString());
  });
});
