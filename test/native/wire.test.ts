import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, describe, test } from "node:test";
import fc from "fast-check";
import { isObject } from "../../src/base/type-guards.ts";
import { MAX_WRITE_BYTES } from "../../src/client/process/write-window.ts";
import type { AcceptedSocket } from "../../src/connection/accepted-socket.ts";
import { nodeByteCodec } from "../../src/connection/byte-codec.ts";
import type { ConnectionEvent } from "../../src/connection/connection.ts";
import { FrameWriter } from "../../src/connection/frame-writer.ts";
import { WebSocketConnection } from "../../src/connection/websocket-connection.ts";
import { FrameReader } from "../../src/connection/websocket-frames.ts";
import { nativeCodec } from "../../src/native/native-codec.ts";
import { nativeSpawn } from "../../src/native/native-process.ts";
import { nativeListener } from "../../src/native/native-sockets.ts";
import type { Message } from "../../src/protocol/envelope.ts";
import { routeMessage } from "../../src/server/rpc/route-message.ts";
import { tcpPort } from "../support/servers/websocket-server.ts";
import { repetitions } from "../support/system/repetitions.ts";
import { addon } from "./started.ts";

/** A server's connection run by the addon, over real TCP, and a client that writes frames by hand. */

const MAX_MESSAGE_BYTES = 2 * 1024 * 1024;

const native = addon();
const writer = new FrameWriter("client", nodeByteCodec);

const waiting: ((socket: AcceptedSocket) => void)[] = [];
const listener = await nativeListener(native)({ host: "127.0.0.1", port: 0 }, (socket) => waiting.shift()?.(socket));
after(() => listener.close());

interface Joined {
  connection: WebSocketConnection;
  events: ConnectionEvent[];
  client: Socket;
  /** Messages the client got, as text. */
  recorded: string[];
  until(condition: () => boolean): Promise<void>;
}

/** `received` came while the socket was not known to carry frames. */
async function join(options: { received?: Buffer; paused?: boolean; maxQueuedBytes?: number } = {}): Promise<Joined> {
  const accepted = new Promise<AcceptedSocket>((resolve) => waiting.push(resolve));
  const client = connect(tcpPort(listener), "127.0.0.1");
  client.on("error", () => undefined);
  const [socket] = await Promise.all([accepted, once(client, "connect")]);
  const { received = Buffer.alloc(0) } = options;
  let early: Buffer = Buffer.alloc(0);
  await new Promise<void>((resolve) => {
    socket.start({
      bytes: (chunk) => {
        early = Buffer.concat([early, chunk]);
        if (early.length === received.length) resolve();
      },
      end: () => resolve(),
    });
    if (received.length === 0) resolve();
    else client.write(received);
  });
  const frames = socket.upgrade({
    maxMessageBytes: MAX_MESSAGE_BYTES,
    maxQueuedBytes: options.maxQueuedBytes ?? 64 * 1024 * 1024,
    received: early,
  });
  const connection = new WebSocketConnection(frames, {
    label: "test",
    role: "server",
    maxMessageBytes: MAX_MESSAGE_BYTES,
    codec: nativeCodec(native),
  });
  const events: ConnectionEvent[] = [];
  const recorded: string[] = [];
  let wake = () => undefined as unknown;
  const reader = new FrameReader("client", nodeByteCodec, 1 << 28, {
    message: (payload) => recorded.push(payload.toString()),
    ping: () => recorded.push("<ping>"),
    pong: (..._) => recorded.push("<pong>"),
    close: (code, reason) => recorded.push(`<close ${code} ${reason}>`),
    protocolError: (code, reason) => recorded.push(`<violated ${code} ${reason}>`),
  });
  client.on("data", (chunk: Buffer) => {
    reader.push(Buffer.from(chunk));
    wake();
  });
  client.on("close", () => {
    recorded.push("<gone>");
    wake();
  });
  if (options.paused) client.pause();
  connection.open((event) => {
    events.push(event);
    wake();
  });
  const until = async (condition: () => boolean) => {
    while (!condition()) {
      const { promise, resolve } = Promise.withResolvers<void>();
      wake = resolve;
      const timer = setTimeout(resolve, 20);
      await promise;
      clearTimeout(timer);
    }
  };
  return { connection, events, client, recorded, until };
}

/** Converts an event for comparison. A write is equal whether the addon or JavaScript parsed it. */
function summary(event: ConnectionEvent): string {
  switch (event.type) {
    case "message":
      return writeOf(event.message) ?? `message ${JSON.stringify(event.message)}`;
    case "malformed":
      return "malformed";
    case "disconnected":
      return `disconnected ${event.reason}`;
  }
}

/** Reports whether the addon decoded the chunk of a write. */
function hasDecodedChunk(event: ConnectionEvent): boolean {
  if (event.type !== "message" || event.message.type !== "request") return false;
  const { params } = event.message;
  return isObject(params) && params.chunk instanceof Uint8Array;
}

function writeOf(message: Message): string | null {
  if (message.type !== "request" || message.method !== "process/write") return null;
  const routed = routeMessage(message);
  if (routed.type !== "request" || routed.method !== "process/write") return null;
  const { processId, writeId, chunk } = routed.params;
  return `write ${routed.id} ${processId} ${writeId} ${Buffer.from(chunk).toString("base64")}`;
}

const write = (id: number | string, processId: string, chunk: Uint8Array, writeId = `w${id}`) =>
  `{"id":${JSON.stringify(id)},"method":"process/write","params":{"processId":${JSON.stringify(processId)},"writeId":${JSON.stringify(writeId)},"chunk":"${Buffer.from(chunk).toString("base64")}"}}`;

describe("a native socket", () => {
  /** A message whole or in fragments, or a control frame between two others. */
  const message = fc.oneof(
    fc.constantFrom(
      '{"method":"plain"}',
      '{"method":"é😀"}',
      '{"id":"x","method":"process/read","params":{}}',
      "no json",
      write(7, "p", Buffer.from("hello")),
      write("seven", "p", Buffer.alloc(70_000, 1)),
      write(8, "é", Buffer.from("hello")),
      `{"method":"${"x".repeat(70_000)}"}`,
      `{"method":"${"y".repeat(1_200_000)}"}`,
    ),
    fc.string({ unit: "binary", maxLength: 300 }).map((method) => JSON.stringify({ method })),
  );
  const frames = fc.array(
    fc.oneof(
      message.map((text) => [writer.text(text)]),
      message.map((text) => fragments(Buffer.from(text))),
      fc.constant([writer.ping()]),
    ),
    { maxLength: 8 },
  );

  /** The same message in three frames, with a ping between two of them. */
  function fragments(payload: Buffer): Buffer[] {
    const at = [0, payload.length >> 2, payload.length >> 1, payload.length];
    const parts = [0, 1, 2].map((part) => {
      const text = payload.subarray(at[part], at[part + 1]);
      const frame = Buffer.alloc(14 + text.length);
      frame[0] = (part === 2 ? 0x80 : 0) | (part === 0 ? 1 : 0);
      frame[1] = 0x80 | 127;
      frame.writeBigUInt64BE(BigInt(text.length), 2);
      frame.set([1, 2, 3, 4], 10);
      for (const [index, byte] of text.entries()) frame[14 + index] = byte ^ ((index & 3) + 1);
      return frame;
    });
    return [...parts.slice(0, 2), writer.ping(), ...parts.slice(2)];
  }

  test("emits the same events as the JavaScript frame reader, wherever the bytes are split", async () => {
    await fc.assert(
      fc.asyncProperty(
        frames,
        fc.array(fc.integer({ min: 1, max: 400_000 }), { minLength: 1, maxLength: 20 }),
        fc.nat(40),
        async (sent, sizes, headBytes) => {
          const bytes = Buffer.concat([...sent.flat(), writer.text('{"method":"last"}')]);
          const expected = plainEvents(Buffer.from(bytes));
          const joined = await join({ received: Buffer.from(bytes.subarray(0, headBytes)) });
          for (let at = headBytes, next = 0; at < bytes.length; next++) {
            const size = sizes[next % sizes.length] ?? 1;
            joined.client.write(bytes.subarray(at, at + size));
            at += size;
            // Small pieces arrive separately only if the receiver reads between them.
            if (next < 50) await new Promise((resolve) => setImmediate(resolve));
          }
          await joined.until(() => joined.events.length >= expected.length);
          assert.deepEqual(joined.events.map(summary), expected);
          joined.connection.close();
          await joined.until(() => joined.recorded.includes("<gone>"));
        },
      ),
      { numRuns: 60 },
    );
  });

  function plainEvents(bytes: Buffer): string[] {
    const events: string[] = [];
    const plain = new WebSocketConnection(
      {
        open: (socket) => socket.bytes(bytes),
        ...silent,
      },
      // Parses messages of every size at once.
      { label: "test", role: "server", maxMessageBytes: MAX_MESSAGE_BYTES, codec: nodeByteCodec },
    );
    plain.open((event) => events.push(summary(event)));
    return events;
  }

  const nothing = () => undefined;
  const silent = {
    sendText: nothing,
    sendChunk: nothing,
    sendBlock: nothing,
    sendFrame: nothing,
    queuedBytes: 0,
    sentBytes: 0,
    receivedBytes: 0,
    pause: nothing,
    resume: nothing,
    end: nothing,
    destroy: nothing,
  };

  test("sends texts and chunks of every size in order", async () => {
    const sizes = [0, 1, 2, 3, 80, 125, 126, 127, 5000, 65_535, 65_536, 262_144, 500_000];
    const joined = await join();
    const expected: string[] = [];
    for (const size of sizes) {
      const text = "é".repeat(size >> 1).padEnd(size, "x");
      const bytes = Buffer.alloc(size, size & 255);
      joined.connection.send(text);
      joined.connection.sendChunk('{"é":"', bytes, '"}');
      expected.push(text, `{"é":"${bytes.toString("base64")}"}`);
    }
    await joined.until(() => joined.recorded.length === expected.length);
    assert.deepEqual(joined.recorded, expected);
    joined.connection.close();
  });

  test("queues data that the peer does not read, emits drain, and closes after the queue is sent", async () => {
    const joined = await join({ paused: true });
    let drained = 0;
    joined.connection.onDrain = () => drained++;
    const bytes = Buffer.alloc(256 * 1024, "x");
    const count = 64;
    for (let at = 0; at < count; at++) joined.connection.sendChunk(`${at}:`, bytes, "");
    await new Promise((resolve) => setImmediate(resolve));
    assert.ok(joined.connection.queuedBytes > 1024 * 1024, "the system cannot have taken all of it");
    joined.connection.close("enough");
    joined.client.resume();
    await joined.until(() => joined.recorded.includes("<gone>"));
    assert.equal(joined.recorded.length, count + 2);
    await joined.until(() => drained > 0);
    assert.equal(drained, 1);
    for (let at = 0; at < count; at++)
      assert.equal(joined.recorded[at], `${at}:${bytes.toString("base64")}`, `message ${at}`);
    assert.equal(joined.recorded[count], "<close 1008 enough>");
  });

  test("sends its queue to a peer that has closed its sending side", async () => {
    const joined = await join({ paused: true });
    const bytes = Buffer.alloc(256 * 1024, "x");
    for (let at = 0; at < 64; at++) joined.connection.sendChunk(`${at}:`, bytes, "");
    joined.client.end();
    await joined.until(() => joined.events.length === 1);
    joined.client.resume();
    await joined.until(() => joined.recorded.includes("<gone>"));
    assert.equal(joined.recorded.length, 64 + 1);
  });

  test("stops reading while paused and loses no data", async () => {
    const joined = await join();
    joined.connection.pause();
    const sent = Array.from({ length: 100 }, (_, at) => `{"method":"m${at}"}`);
    for (const text of sent) joined.client.write(writer.text(text));
    for (let tick = 0; tick < 20; tick++) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(joined.events, []);
    joined.connection.resume();
    await joined.until(() => joined.events.length === sent.length);
    joined.connection.close();
  });

  test("reports a close by the peer, a lost connection and a protocol violation", async () => {
    const left = await join();
    left.client.end(writer.text('{"method":"bye"}'));
    await left.until(() => left.events.length === 2);
    assert.deepEqual(left.events.map(summary).slice(1), ["disconnected null"]);
    await left.until(() => left.recorded.includes("<gone>"));

    const cut = await join();
    cut.client.resetAndDestroy();
    await cut.until(() => cut.events.length === 1);
    assert.match(
      summary(cut.events[0] as ConnectionEvent),
      /^disconnected (null|failed to read websocket JSON-RPC message from test: read ECONNRESET)$/,
    );

    const broken = await join();
    broken.client.write(new FrameWriter("server", nodeByteCodec).text("not masked"));
    await broken.until(() => broken.recorded.includes("<gone>"));
    assert.deepEqual(broken.recorded, ["<close 1002 client frames must be masked>", "<gone>"]);
  });

  test("has the address of a peer that reset the connection before it was accepted", async () => {
    const accepted = new Promise<AcceptedSocket>((resolve) => waiting.push(resolve));
    const client = `require("node:net").connect(${tcpPort(listener)}, "127.0.0.1", function () { this.resetAndDestroy(); })`;
    // Blocks the event loop, so that the listener accepts afterwards.
    execFileSync(process.execPath, ["-e", client]);
    const socket = await accepted;
    assert.match(socket.peerName, /^127\.0\.0\.1:\d+$/);
    socket.destroy();
  });

  test("ignores all calls after it closed", async () => {
    const joined = await join();
    joined.client.destroy();
    await joined.until(() => joined.events.length === 1);
    joined.connection.send("late");
    joined.connection.sendChunk("a", Buffer.from("late"), "b");
    joined.connection.pause();
    joined.connection.resume();
    joined.connection.directInput?.unroute("p");
    joined.connection.close();
    assert.equal(joined.connection.queuedBytes, 0);
  });
});

describe("a native socket with direct input", () => {
  async function startCat() {
    const output: Buffer[] = [];
    const closed = Promise.withResolvers<void>();
    const child = await nativeSpawn(native)(
      {
        file: "cat",
        argv: ["cat"],
        cwd: "/",
        env: { PATH: "/usr/bin:/bin" },
        terminal: null,
        pipeStdin: true,
        descriptors: [],
      },
      {
        output: (_, chunk) => output.push(Buffer.from(chunk)),
        exit: () => undefined,
        close: () => closed.resolve(),
        drain: () => undefined,
        failed: (error) => closed.reject(error),
      },
    );
    return { child, closed: closed.promise, output: () => Buffer.concat(output) };
  }

  test("writes the input of a process once per write id and emits all other messages", async () => {
    const joined = await join();
    const { child, output, closed } = await startCat();
    assert.ok(child.input.direct);
    joined.connection.directInput?.route("p", child.input.direct);
    const accepted = (id: number | string) => `{"id":${JSON.stringify(id)},"result":{"status":"accepted"}}`;
    for (const text of [
      write(1, "p", Buffer.from("one,")),
      write("two", "p", Buffer.from("two,")),
      write(3, "p", Buffer.from("again,"), "w1"),
      write(4, "other", Buffer.from("not ours,")),
      write(5, "p", Buffer.from("five,")).replace('"chunk":"', '"chunk":"!'),
      write(6, "p", Buffer.alloc(0)),
      write(7, "p", Buffer.from("seven")),
    ])
      joined.client.write(writer.text(text));
    await joined.until(() => joined.recorded.length === 5);
    assert.deepEqual(joined.recorded, [1, "two", 3, 6, 7].map(accepted));
    assert.deepEqual(joined.events.map(hasDecodedChunk), [true, false]);
    assert.ok(child.input.hasWriteId("w7") && !child.input.hasWriteId("w5"));

    joined.connection.directInput?.unroute("p");
    joined.client.write(writer.text(write(8, "p", Buffer.from("late"))));
    await joined.until(() => joined.events.length === 3);
    child.input.close();
    await closed;
    assert.equal(output().toString(), "one,two,seven");
    joined.connection.close();
  });

  test("handles the largest writes that the client library sends", async () => {
    const joined = await join();
    const { child, output, closed } = await startCat();
    assert.ok(child.input.direct);
    joined.connection.directInput?.route("p", child.input.direct);
    const parts = [0, 1, 2].map((id) => Buffer.alloc(MAX_WRITE_BYTES, id));
    for (const [id, part] of parts.entries()) {
      joined.client.write(writer.text(write(id, "p", part)));
      await joined.until(() => joined.recorded.length + joined.events.length === id + 1);
      await joined.until(() => child.input.queuedBytes === 0);
    }
    child.input.close();
    await closed;
    assert.deepEqual(joined.events, []);
    assert.deepEqual(output(), Buffer.concat(parts));
    joined.connection.close();
  });

  test("emits input that does not fit into the queue, and input for a process that is being terminated", async () => {
    const joined = await join();
    const { child, closed } = await startCat();
    assert.ok(child.input.direct);
    // Its output is not read, so that it stops reading its input after a while.
    child.pause();
    joined.connection.directInput?.route("p", child.input.direct);
    const part = Buffer.alloc(200 * 1024);
    for (let id = 0; id < 20; id++) joined.client.write(writer.text(write(id, "p", part)));
    await joined.until(() => joined.events.length + joined.recorded.length === 20);
    assert.ok(joined.events.length > 0 && joined.recorded.length > 0);
    assert.ok(child.input.queuedBytes > 0 && child.input.queuedBytes <= 1024 * 1024);

    child.resume();
    await joined.until(() => child.input.queuedBytes === 0);
    child.input.closeDirect();
    joined.client.write(writer.text(write(100, "p", Buffer.from("too late"))));
    const before = joined.events.length;
    await joined.until(() => joined.events.length > before);
    child.input.close();
    await closed;
    joined.client.write(writer.text(write(101, "p", Buffer.from("far too late"))));
    await joined.until(() => joined.events.length === before + 2);
    joined.connection.close();
  });

  test("stops reading from a peer that reads no responses, and responds to every write once the peer reads", async () => {
    const joined = await join({ paused: true, maxQueuedBytes: 4 * 1024 * 1024 });
    const { child, closed } = await startCat();
    child.pause();
    assert.ok(child.input.direct);
    joined.connection.directInput?.route("p", child.input.direct);
    const count = 500_000;
    let sent = 0;
    const send = () => {
      while (sent < count) {
        const frames = Array.from({ length: 1000 }, () => writer.text(write(sent++, "p", Buffer.alloc(0), "w")));
        if (!joined.client.write(Buffer.concat(frames))) return;
      }
    };
    joined.client.on("drain", send);
    send();
    // It accepts no more once enough is unread: both sides wait, in every later tick of the loop.
    for (let before = -1; before !== sent || joined.client.writableLength === 0; ) {
      before = sent;
      for (let tick = 0; tick < 1000; tick++) await new Promise((resolve) => setImmediate(resolve));
      if (sent >= count) break;
    }
    assert.ok(sent < count, "the peer was never made to wait");
    assert.ok(joined.connection.queuedBytes < 8 * 1024 * 1024, `${joined.connection.queuedBytes} bytes queued`);
    joined.client.resume();
    await joined.until(() => joined.recorded.length === count);
    child.signalGroup(9);
    child.resume();
    await closed;
    joined.connection.close();
  });

  test("survives the close of the socket and the exit of the process in any order, 200 times", async () => {
    for (let run = 0; run < repetitions(200); run++) {
      const [joined, { child, closed }] = await Promise.all([join(), startCat()]);
      assert.ok(child.input.direct);
      joined.connection.directInput?.route("p", child.input.direct);
      for (let id = 0; id < 5; id++) joined.client.write(writer.text(write(id, "p", Buffer.from("x"))));
      if (run % 4 === 0) child.signalGroup(9);
      if (run % 4 === 1) joined.client.destroy();
      if (run % 4 === 2) joined.connection.close();
      if (run % 4 === 3) await joined.until(() => joined.recorded.length === 5);
      child.signalGroup(9);
      await closed;
      joined.client.destroy();
      await joined.until(() => joined.events.some(({ type }) => type === "disconnected"));
    }
  });
});
