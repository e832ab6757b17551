import assert from "node:assert/strict";
import { once } from "node:events";
import { Duplex } from "node:stream";
import { describe, test } from "node:test";
import { nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { StreamSocket } from "../../src/connection/stream-socket.ts";

/** A stream whose kernel buffer is full until `accept`. */
class FullStream extends Duplex {
  isReferenced = true;
  accept: () => void = () => assert.fail("nothing was written");

  override _read(): void {}

  override _write(_chunk: Buffer, _encoding: string, done: () => void): void {
    this.accept = done;
  }

  unref(): void {
    this.isReferenced = false;
  }
}

describe("StreamSocket", () => {
  test("keeps the process alive until everything is sent, but not until the peer closes", async () => {
    const stream = new FullStream();
    const socket = new StreamSocket(stream, "client", nodeByteCodec);
    socket.sendText("last message");
    socket.end();
    assert.equal(stream.isReferenced, true);
    const finished = once(stream, "finish");
    stream.accept();
    await finished;
    assert.equal(stream.isReferenced, false);
    assert.equal(stream.destroyed, false);
  });
});
