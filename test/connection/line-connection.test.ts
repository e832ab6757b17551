import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { ConnectionEvent } from "../../src/connection/connection.ts";
import { LineConnection } from "../../src/connection/line-connection.ts";
import { encodeResponse } from "../../src/protocol/message-text.ts";
import { flushEventLoop } from "../support/system/flush-event-loop.ts";

function open(options: { maxMessageBytes?: number } = {}) {
  const input = new PassThrough();
  const output = new PassThrough();
  const events: ConnectionEvent[] = [];
  const connection = new LineConnection(input, output, { label: "test", ...options });
  connection.open((event) => events.push(event));
  return { input, output, events, connection };
}

const written = (output: PassThrough) => String(output.read() ?? "");

describe("a stdio connection", () => {
  test("reads and writes JSON-RPC messages", async () => {
    const { input, output, events, connection } = open();
    input.write('{"id":7,"method":"initialize","params":{"clientName":"test-client"}}\n');
    await flushEventLoop();
    assert.deepEqual(events, [
      {
        type: "message",
        message: {
          type: "request",
          id: 7,
          method: "initialize",
          params: { clientName: "test-client" },
          trace: undefined,
        },
      },
    ]);
    connection.send(encodeResponse(7, { protocolVersion: "exec-server.v0" }));
    assert.equal(written(output), '{"id":7,"result":{"protocolVersion":"exec-server.v0"}}\n');
  });

  /** Unlike the v0 exec-server, which closes the connection. */
  test("reports a malformed line and stays open", async () => {
    const { input, events } = open();
    input.write("not-json\n");
    input.write('{"method":"initialized"}\n');
    await flushEventLoop();
    assert.equal(events[0]?.type, "malformed");
    assert.ok(
      events[0]?.type === "malformed" && events[0].reason.startsWith("failed to parse JSON-RPC message from test: "),
    );
    assert.equal(events[1]?.type, "message");
  });

  test("reports a clean disconnect", async () => {
    const { input, events } = open();
    input.end();
    await flushEventLoop();
    assert.deepEqual(events, [{ type: "disconnected", reason: null }]);
  });

  test("delivers the same messages wherever the bytes are split", async () => {
    const line = fc.oneof(
      fc.string({ unit: "grapheme" }).map((text) => JSON.stringify({ method: text })),
      fc.constantFrom("", "  ", "\t", "not-json", '{"method":"é😀"}'),
    );
    const end = fc.constantFrom("\n", "\r\n");
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(line, end), { maxLength: 8 }),
        fc.array(fc.nat(), { maxLength: 10 }),
        fc.boolean(),
        async (lines, cuts, endsWithNewline) => {
          let text = lines.map(([one, newline]) => one + newline).join("");
          if (!endsWithNewline) text = text.replace(/\r?\n$/, "");
          const bytes = Buffer.from(text);
          const { input, events } = open();
          const places = [...new Set(cuts.map((cut) => cut % (bytes.length + 1)))].sort((a, b) => a - b);
          let from = 0;
          for (const place of [...places, bytes.length]) {
            if (place > from) input.write(bytes.subarray(from, place));
            from = place;
          }
          input.end();
          await flushEventLoop();
          const expected = text
            .split("\n")
            .filter((one) => one.trim() !== "")
            .map((one) => (one.trim() === "not-json" ? "malformed" : JSON.parse(one).method));
          assert.deepEqual(
            events.map((event) =>
              event.type === "message" && event.message.type === "notification" ? event.message.method : event.type,
            ),
            [...expected, "disconnected"],
          );
        },
      ),
      { numRuns: 300 },
    );
  });

  test("disconnects when a line exceeds the message limit, with or without its newline", async () => {
    for (const tail of ["", "\n"]) {
      const { input, events } = open({ maxMessageBytes: 20 });
      input.write('{"method":"1234567"}\n');
      input.write(`{"method":"${"x".repeat(30)}"}${tail}`);
      input.write('{"method":"after"}\n');
      await flushEventLoop();
      assert.deepEqual(
        events.map(({ type }) => type),
        ["message", "disconnected"],
      );
      assert.ok(events[1]?.type === "disconnected" && events[1].reason?.includes("20 bytes"));
    }
  });

  test("reports a broken stream once, with its reason", async () => {
    const { input, output, events, connection } = open();
    input.destroy(new Error("cable cut"));
    output.destroy(new Error("too"));
    await flushEventLoop();
    assert.deepEqual(events, [
      { type: "disconnected", reason: "failed to read JSON-RPC message from test: cable cut" },
    ]);
    connection.send("nothing");
    connection.close();
    await flushEventLoop();
    assert.equal(events.length, 1);
  });

  test("writes a chunk as base64 in its line, and counts the queued bytes", async () => {
    const { output, connection } = open();
    connection.sendChunk('{"é":"', Uint8Array.of(0, 255, 7), '"}');
    assert.equal(written(output), '{"é":"AP8H"}\n');
    let drained = false;
    connection.onDrain = () => {
      drained = true;
    };
    for (let n = 0; n < 500; n++) connection.send("x".repeat(1000));
    assert.ok(connection.queuedBytes > 0);
    output.resume();
    await flushEventLoop();
    assert.equal(connection.queuedBytes, 0);
    assert.ok(drained);
  });

  test("reads nothing while it is paused, and everything afterwards", async () => {
    const { input, events, connection } = open();
    connection.pause();
    input.write('{"method":"a"}\n');
    await flushEventLoop();
    assert.deepEqual(events, []);
    connection.resume();
    await flushEventLoop();
    assert.equal(events.length, 1);
  });

  test("ends its output when it is closed, and reports the disconnect once", async () => {
    const { output, events, connection } = open();
    let ended = false;
    output.on("end", () => {
      ended = true;
    });
    output.resume();
    connection.close();
    connection.close();
    await flushEventLoop();
    assert.ok(ended);
    assert.deepEqual(events, [{ type: "disconnected", reason: null }]);
  });
});
