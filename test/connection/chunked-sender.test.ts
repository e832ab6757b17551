import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ChunkedSender } from "../../src/connection/chunked-sender.ts";
import { type ByteSource, SOURCE_PART_BYTES, toByteSource } from "../../src/connection/connection.ts";

const MIB = 1024 * 1024;

/** A sender to a sink that holds `capacityBytes` until it drains. */
function createSender(capacityBytes = Number.POSITIVE_INFINITY) {
  const failures: string[] = [];
  let [text, queuedBytes] = ["", 0];
  const sender = new ChunkedSender({
    get queuedBytes() {
      return queuedBytes < capacityBytes ? 0 : Number.POSITIVE_INFINITY;
    },
    sendPart(head, bytes, tail) {
      queuedBytes += bytes.length;
      text += head + Buffer.from(bytes).toString("base64") + tail;
    },
    setPaused: () => undefined,
    fail: (reason) => failures.push(reason),
  });
  const drain = () => {
    queuedBytes = 0;
    sender.sendNext();
  };
  return { sender, drain, failures, text: () => text };
}

/** A source like a file: each part is read on a later tick. Counts the parts that were read. */
function createFile(bytes: Buffer) {
  const parts = toByteSource(bytes);
  const file = {
    reads: 0,
    async next() {
      file.reads++;
      return await parts.next();
    },
  };
  return file satisfies ByteSource;
}

const settle = () => new Promise((resolve) => setImmediate(resolve));

describe("ChunkedSender", () => {
  const bytes = Buffer.alloc(MIB, "abc");
  const expected = `<${bytes.toString("base64")}>`;

  test("sends the parts of a buffer and of a file as one message", async () => {
    for (const source of [toByteSource(bytes), createFile(bytes)]) {
      const { sender, text } = createSender();
      await sender.send({ head: "<", source, tail: ">" });
      assert.equal(text(), expected);
    }
  });

  test("reads a part only when the queue has capacity", async () => {
    const { sender, drain, text } = createSender(SOURCE_PART_BYTES);
    const file = createFile(bytes);
    const sent = sender.send({ head: "<", source: file, tail: ">" });
    for (let reads = 1; reads <= 4; reads++) {
      await settle();
      assert.equal(file.reads, reads);
      drain();
    }
    // The rest is shorter than a part, so the end follows it at once.
    await sent;
    assert.equal(file.reads, 6);
    assert.equal(text(), expected);
  });

  test("sends later messages behind the file that is being read", async () => {
    const { sender, text } = createSender();
    const first = sender.send({ head: "<", source: createFile(bytes), tail: ">" });
    sender.enqueue(1, () => void sender.send({ head: "[", source: toByteSource(Buffer.from("abc")), tail: "]" }));
    await first;
    sender.sendNext();
    assert.equal(text(), `${expected}[YWJj]`);
  });

  test("drops a message whose part arrives after the end of the connection", async () => {
    const { sender, text } = createSender();
    const sent = sender.send({ head: "<", source: createFile(bytes), tail: ">" });
    sender.discard();
    await sent;
    await settle();
    assert.equal(text(), "<");
    assert.equal(sender.isBusy, false);
  });

  test("reports a part that cannot be read", async () => {
    const { sender, failures } = createSender();
    void sender.send({ head: "<", source: { next: () => Promise.reject(new Error("i/o error")) }, tail: ">" });
    await settle();
    assert.deepEqual(failures, ["cannot read the rest of a response: i/o error"]);
  });
});
