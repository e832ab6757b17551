import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type ByteCodec, nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { ChunkedSender } from "../../src/connection/chunked-sender.ts";

const MIB = 1024 * 1024;

/** A sender to a sink of limited capacity, with a codec that counts released bytes. */
function createSender(capacityBytes: number) {
  const released: number[] = [];
  const codec: ByteCodec = { ...nodeByteCodec, releasePages: ({ length }) => void released.push(length) };
  const parts: Buffer[] = [];
  let queuedBytes = 0;
  const sink = {
    get queuedBytes() {
      return queuedBytes < capacityBytes ? 0 : Number.POSITIVE_INFINITY;
    },
    sendChunk: (part: Buffer) => {
      queuedBytes += part.length;
      parts.push(part);
    },
    setPaused: () => undefined,
  };
  return { sender: new ChunkedSender(sink, codec), released, text: () => Buffer.concat(parts).toString() };
}

const total = (numbers: number[]) => numbers.reduce((sum, number) => sum + number, 0);

describe("ChunkedSender", () => {
  test("releases each part once it is encoded", async () => {
    const { sender, released, text } = createSender(Number.POSITIVE_INFINITY);
    const bytes = Buffer.alloc(MIB, "abc");
    const expected = `<${bytes.toString("base64")}>`;
    await sender.send({ head: "<", bytes, tail: ">" });
    assert.equal(text(), expected);
    assert.equal(released.length, Math.ceil(MIB / (240 * 1024)));
    assert.equal(total(released), MIB);
  });

  test("releases the rest of a dropped message in parts of 8 MiB, and then resolves", async () => {
    const { sender, released } = createSender(MIB);
    const sent = sender.send({ head: "<", bytes: Buffer.alloc(20 * MIB), tail: ">" });
    const sentBytes = total(released);
    assert.ok(sentBytes < 2 * MIB);
    sender.discard();
    await sent;
    assert.equal(total(released), 20 * MIB);
    assert.ok(Math.max(...released) <= 8 * MIB);
  });
});
