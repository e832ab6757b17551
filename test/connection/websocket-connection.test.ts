import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { describe, test } from "node:test";
import { ByteSemaphore } from "../../src/async/byte-semaphore.ts";
import { type ByteCodec, nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { type ConnectionEvent, toByteSource } from "../../src/connection/connection.ts";
import { FrameWriter } from "../../src/connection/frame-writer.ts";
import { PARSED_ASIDE_BYTES } from "../../src/connection/message-order.ts";
import { StreamSocket } from "../../src/connection/stream-socket.ts";
import { type IncomingByteLimits, WebSocketConnection } from "../../src/connection/websocket-connection.ts";
import { FrameReader, LARGE_MESSAGE_BYTES } from "../../src/connection/websocket-frames.ts";
import type { Message, ParsedMessage } from "../../src/protocol/envelope.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { flushEventLoop } from "../support/system/flush-event-loop.ts";

/** A server's connection over a pair of streams, and a client that writes frames by hand. */
function connect(
  options: {
    answersPings?: boolean;
    stalled?: boolean;
    maxMessageBytes?: number;
    maxQueuedBytes?: number;
    incomingLimits?: IncomingByteLimits;
    codec?: ByteCodec;
  } = {},
) {
  const { maxQueuedBytes = Number.POSITIVE_INFINITY } = options;
  const clock = new ManualClock();
  const [socket, peer] = duplexPair();
  const events: ConnectionEvent[] = [];
  const received: string[] = [];
  const connection = new WebSocketConnection(new StreamSocket(socket, "server", nodeByteCodec, { maxQueuedBytes }), {
    maxQueuedBytes,
    label: "exec-server websocket test",
    role: "server",
    clock,
    keepAlive: true,
    maxMessageBytes: options.maxMessageBytes ?? 10_000,
    incomingLimits: options.incomingLimits,
    codec: options.codec,
  });
  const writer = new FrameWriter("client", nodeByteCodec, undefined, () => 0x01020304);
  const reader = new FrameReader("client", nodeByteCodec, 1 << 24, {
    message: (payload) => received.push(`message ${payload.toString()}`),
    ping: (payload) => {
      received.push("ping");
      if (options.answersPings) peer.write(writer.pong(payload));
    },
    pong: () => received.push("pong"),
    close: (code, reason) => received.push(`close ${code} ${reason}`),
    protocolError: (code, reason) => received.push(`violated ${code} ${reason}`),
  });
  if (!options.stalled) peer.on("data", (chunk: Buffer) => reader.push(Buffer.from(chunk)));
  peer.on("end", () => received.push("end"));
  connection.open((event) => events.push(event));
  return { clock, connection, socket, peer, writer, events, received };
}

describe("keep-alive", () => {
  test("pings every 30 s and keeps a peer that replies", async () => {
    const { clock, events, received } = connect({ answersPings: true });
    for (let n = 0; n < 10; n++) {
      await clock.advance(30_000);
      await flushEventLoop();
    }
    assert.equal(received.filter((word) => word === "ping").length, 10);
    assert.deepEqual(events, []);
  });

  test("disconnects a dead idle peer within 45 s", async () => {
    const { clock, events } = connect();
    await clock.advance(30_000);
    await flushEventLoop();
    await clock.advance(14_999);
    assert.deepEqual(events, []);
    await clock.advance(1);
    assert.deepEqual(events, [{ type: "disconnected", reason: "no pong within 15000 ms" }]);
    assert.equal(clock.pendingTimers, 0);
  });

  test("accepts any message of the peer instead of a pong", async () => {
    const { clock, peer, writer, events } = connect();
    await clock.advance(30_000);
    peer.write(writer.text('{"method":"x"}'));
    await flushEventLoop();
    await clock.advance(15_000);
    assert.deepEqual(
      events.map(({ type }) => type),
      ["message"],
    );
  });

  test("does not count missing pongs while bytes are queued for the peer", async () => {
    const { clock, connection, events } = connect({ stalled: true });
    connection.send("x".repeat(1_000_000));
    await flushEventLoop();
    assert.ok(connection.queuedBytes > 0);
    await clock.advance(300_000);
    assert.deepEqual(events, []);
  });
});

describe("a peer that does not read", () => {
  test("is closed with a reason when it does not read its responses", async () => {
    const { clock, connection, socket, events } = connect({ stalled: true, maxQueuedBytes: 100_000 });
    connection.send("x".repeat(200_000));
    await flushEventLoop();
    assert.ok(socket.isPaused(), "nothing more is read");
    await clock.advance(30_000);
    assert.deepEqual(events, []);
    await clock.advance(30_000);
    assert.deepEqual(events, [{ type: "disconnected", reason: "the peer does not read its responses" }]);
  });

  test("is not closed while less than the queue limit is queued", async () => {
    const { clock, connection, events } = connect({ stalled: true, maxQueuedBytes: 300_000 });
    connection.send("x".repeat(200_000));
    await clock.advance(600_000);
    assert.deepEqual(events, []);
  });

  test("is read again, and not closed, once it reads from its queue", async () => {
    const { clock, connection, socket, peer, events } = connect({ stalled: true, maxQueuedBytes: 100_000 });
    connection.send("x".repeat(200_000));
    await clock.advance(30_000);
    peer.resume();
    await flushEventLoop();
    assert.equal(connection.queuedBytes, 0);
    assert.equal(socket.isPaused(), false);
    assert.deepEqual(events, []);
  });

  test("receives a long message in parts, and later messages after it", async () => {
    const { connection, peer, received } = connect({ stalled: true });
    const bytes = Buffer.alloc(3_000_000, "b");
    const sent = connection.sendChunked({ head: '{"a":"', source: toByteSource(bytes), tail: '"}' });
    connection.send("after");
    await flushEventLoop();
    assert.ok(connection.queuedBytes < 1_500_000, `${connection.queuedBytes} bytes are queued`);
    const reader = new FrameReader("client", nodeByteCodec, 1 << 24, {
      message: (payload) => received.push(payload.toString()),
      ping: () => undefined,
      pong: () => undefined,
      close: () => undefined,
      protocolError: (_code, reason) => received.push(`violated ${reason}`),
    });
    peer.on("data", (chunk: Buffer) => reader.push(Buffer.from(chunk)));
    await sent;
    while (received.length < 2) await flushEventLoop();
    assert.deepEqual(received, [`{"a":"${bytes.toString("base64")}"}`, "after"]);
  });

  test("is closed with a reason if the rest of a long message cannot be read", async () => {
    const { connection, events } = connect();
    const parts = [Buffer.alloc(300), Promise.reject(new Error("i/o error"))];
    const source = { next: () => parts.shift() ?? new Uint8Array(0) };
    await connection.sendChunked({ head: "", source, tail: "" });
    assert.deepEqual(events, [{ type: "disconnected", reason: "cannot read the rest of a response: i/o error" }]);
  });

  test("has its queue dropped when it disconnects", async () => {
    const { connection, peer } = connect({ stalled: true });
    const message = () => ({ head: "", source: toByteSource(Buffer.alloc(3_000_000)), tail: "" });
    const sent = [connection.sendChunked(message()), connection.sendChunked(message())];
    peer.destroy();
    connection.close();
    await Promise.all(sent);
  });
});

describe("a peer that stalls within a large message", () => {
  /** Two connections that share memory for one large message, of which the first peer has sent `firstBytes`. */
  async function connectTwo(firstBytes: (writer: FrameWriter) => Buffer) {
    const incomingLimits = { small: new ByteSemaphore(1_000_000), large: new ByteSemaphore(4_000_000) };
    const options = { answersPings: true, maxMessageBytes: 8_000_000, incomingLimits };
    const [first, second] = [connect(options), connect(options)];
    first.peer.write(firstBytes(first.writer));
    await flushEventLoop();
    return { first, second };
  }
  const beginning = (writer: FrameWriter) => writer.text("x".repeat(3_000_000)).subarray(0, 10_000);

  test("is closed with a reason once others wait for its memory, which they then get", async () => {
    const { first, second } = await connectTwo(beginning);
    // A paused peer sends no pongs, which would count as activity.
    first.peer.pause();
    second.peer.write(beginning(second.writer));
    await flushEventLoop();
    assert.ok(second.socket.isPaused(), "the second connection waits for memory");
    await first.clock.advance(60_000);
    assert.deepEqual(first.events, [{ type: "disconnected", reason: "the peer stalled within a large message" }]);
    await flushEventLoop();
    assert.equal(second.socket.isPaused(), false);
    assert.deepEqual(second.events, []);
  });

  test("is not closed while no other connection waits for its memory", async () => {
    const { first } = await connectTwo(beginning);
    first.peer.pause();
    await first.clock.advance(600_000);
    assert.ok(
      !first.events.some(
        (event) => event.type === "disconnected" && event.reason === "the peer stalled within a large message",
      ),
    );
  });
});

describe("closing", () => {
  test("replies to a close frame with a close frame and ends", async () => {
    const { peer, writer, events, received } = connect();
    peer.write(writer.close(1000, "bye"));
    await flushEventLoop();
    assert.deepEqual(events, [{ type: "disconnected", reason: "bye" }]);
    assert.deepEqual(received, ["close 1000 ", "end"]);
  });

  test("sends the reason as a policy close, once", async () => {
    const { connection, events, received, peer, writer } = connect();
    connection.close("because");
    connection.close("again");
    connection.send("late");
    peer.write(writer.ping());
    await flushEventLoop();
    assert.deepEqual(received, ["close 1008 because", "end"]);
    assert.deepEqual(events, [{ type: "disconnected", reason: null }]);
  });

  test("drops a peer that does not read its close frame within a second", async () => {
    const { clock, connection, socket } = connect({ stalled: true });
    connection.send("x".repeat(1_000_000));
    connection.close("enough");
    await flushEventLoop();
    await clock.advance(999);
    assert.equal(socket.destroyed, false);
    await clock.advance(1);
    assert.equal(socket.destroyed, true);
    await flushEventLoop();
    assert.equal(clock.pendingTimers, 0);
  });

  /** Closes a connection with this many queued messages. `readSome` makes the peer read some of them. */
  async function closingWith(messages: number) {
    const { clock, connection, socket, peer } = connect({ stalled: true });
    for (let at = 0; at < messages; at++) {
      connection.send("x".repeat(100_000));
      await flushEventLoop();
    }
    connection.close("enough");
    const readSome = async () => {
      for (let before = connection.queuedBytes; connection.queuedBytes === before; await flushEventLoop()) peer.read();
    };
    return { clock, socket, readSome };
  }

  test("waits ten seconds for a peer that still reads its queue", async () => {
    const { clock, socket, readSome } = await closingWith(100);
    for (let second = 0; second < 10; second++) {
      assert.equal(socket.destroyed, false, `after ${second} s`);
      await readSome();
      await clock.advance(1000);
    }
    assert.equal(socket.destroyed, true);
    assert.equal(clock.pendingTimers, 0);
  });

  test("drops a peer that stops reading its queue", async () => {
    const { clock, socket, readSome } = await closingWith(5);
    await readSome();
    await clock.advance(1000);
    assert.equal(socket.destroyed, false);
    await clock.advance(1000);
    assert.equal(socket.destroyed, true);
  });

  test("reports a peer that vanished without a close", async () => {
    const { peer, events } = connect();
    peer.destroy();
    await flushEventLoop();
    assert.equal(events.length, 1);
    assert.equal(events[0]?.type, "disconnected");
  });
});

describe("messages", () => {
  test("are accepted as text and as binary", async () => {
    const { peer, writer, events } = connect();
    peer.write(writer.text('{"method":"text"}'));
    const binary = writer.text('{"method":"binary"}');
    binary[0] = 0x82;
    peer.write(binary);
    await flushEventLoop();
    assert.deepEqual(
      events.map((event) =>
        event.type === "message" && event.message.type === "notification" ? event.message.method : event.type,
      ),
      ["text", "binary"],
    );
  });

  test("are malformed if they are binary and not UTF-8, and the connection stays open", async () => {
    const { connection, peer, writer, events, received } = connect();
    const broken = writer.text("ab{");
    broken[0] = 0x82;
    // Under the mask 01 02 03 04 these are the bytes ff fe 7b.
    broken.set([0xfe, 0xfc, 0x78], broken.length - 3);
    peer.write(broken);
    peer.write(writer.text('{"method":"x"}'));
    await flushEventLoop();
    assert.deepEqual(
      events.map(({ type }) => type),
      ["malformed", "message"],
    );
    assert.ok(
      events[0]?.type === "malformed" &&
        events[0].reason.startsWith("failed to parse websocket JSON-RPC message from exec-server websocket test: "),
    );
    connection.send("still here");
    await flushEventLoop();
    assert.deepEqual(received, ["message still here"]);
  });

  test("end the connection with 1007 if they are text and not UTF-8", async () => {
    const { peer, writer, events, received } = connect();
    const broken = writer.text("ab{");
    broken.set([0xfe, 0xfc, 0x78], broken.length - 3);
    peer.write(broken);
    await flushEventLoop();
    assert.deepEqual(events, [{ type: "disconnected", reason: "websocket protocol error: text is not UTF-8" }]);
    assert.equal(received[0], "close 1007 text is not UTF-8");
  });

  test("may contain a replacement character", async () => {
    const { peer, writer, events } = connect();
    peer.write(writer.text('{"method":"\ufffd"}'));
    await flushEventLoop();
    assert.deepEqual(
      events.map(({ type }) => type),
      ["message"],
    );
  });

  test("end the connection with 1009 above the limit", async () => {
    const { peer, writer, events, received } = connect({ maxMessageBytes: 100 });
    peer.write(writer.text("x".repeat(101)));
    await flushEventLoop();
    assert.equal(received[0], "close 1009 message is larger than 100 bytes");
    assert.equal(events[0]?.type, "disconnected");
  });

  test("are not lost if they arrive with the handshake", async () => {
    const [socket] = duplexPair();
    const events: ConnectionEvent[] = [];
    const writer = new FrameWriter("client", nodeByteCodec);
    const head = writer.text('{"method":"early"}');
    const connection = new WebSocketConnection(new StreamSocket(socket, "server", nodeByteCodec, { head }), {
      label: "test",
      role: "server",
    });
    connection.open((event) => events.push(event));
    assert.equal(events.length, 1);
    connection.close();
    await flushEventLoop();
  });

  test("wait in order while the codec parses a message above 64 KiB", async () => {
    const parsing: { bytes: number; resolve: (parsed: ParsedMessage | null) => void }[] = [];
    const codec: ByteCodec = {
      ...nodeByteCodec,
      parseLarge: ({ length }) => new Promise((resolve) => parsing.push({ bytes: length, resolve })),
    };
    const { peer, writer, events, socket } = connect({ codec, maxMessageBytes: 2 * LARGE_MESSAGE_BYTES });
    const notification = (method: string): Message => ({ type: "notification", method, params: undefined });
    const large = (letter: string) => JSON.stringify({ method: letter.repeat(PARSED_ASIDE_BYTES) });
    const texts = ['{"method":"a"}', large("b"), '{"method":"c"}', large("d"), large("e"), '{"method":"f"}'];
    peer.write(Buffer.concat(texts.map((text) => writer.text(text))));
    peer.end();
    const seen = () => events.map((event) => (event.type === "message" ? event.message : event.type));
    await flushEventLoop();
    assert.deepEqual(seen(), [notification("a")]);
    assert.deepEqual(
      parsing.map(({ bytes }) => bytes),
      [large("b").length],
    );
    assert.equal(socket.isPaused(), true);
    for (const name of ["b", "d", "e"]) {
      parsing.at(-1)?.resolve({ ok: true, message: notification(name) });
      await flushEventLoop();
    }
    assert.deepEqual(seen(), [...["a", "b", "c", "d", "e", "f"].map(notification), "disconnected"]);
  });

  test("close the connection if a large text is not UTF-8", async () => {
    const codec: ByteCodec = { ...nodeByteCodec, parseLarge: async () => null };
    const { peer, writer, events } = connect({ codec, maxMessageBytes: 1 << 20 });
    peer.write(writer.text("x".repeat(PARSED_ASIDE_BYTES + 1)));
    await flushEventLoop();
    assert.deepEqual(events, [{ type: "disconnected", reason: "websocket protocol error: text is not UTF-8" }]);
  });

  test("include pings, whose payload is returned in the pong", async () => {
    const { peer, events, received } = connect();
    peer.write(Buffer.from([0x89, 0x82, 0, 0, 0, 0, 0x68, 0x69]));
    await flushEventLoop();
    assert.deepEqual(received, ["pong"]);
    assert.deepEqual(events, []);
  });
});
