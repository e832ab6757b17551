import assert from "node:assert/strict";
import { duplexPair } from "node:stream";
import { describe, test } from "node:test";
import { ByteTurns } from "../../src/async/byte-semaphore.ts";
import { ManualClock } from "../../src/async/clock.ts";
import { plainByteCodec } from "../../src/connection/byte-codec.ts";
import type { ConnectionEvent } from "../../src/connection/connection.ts";
import { StreamSocket } from "../../src/connection/stream-socket.ts";
import { type IncomingTurns, WebSocketConnection } from "../../src/connection/websocket-connection.ts";
import { FrameReader, FrameWriter } from "../../src/connection/websocket-frames.ts";

/** A server's connection over a pair of streams, and a client that writes frames by hand. */
function connect(
  options: {
    answersPings?: boolean;
    stalled?: boolean;
    maxMessageBytes?: number;
    maxQueuedBytes?: number;
    turns?: IncomingTurns;
  } = {},
) {
  const { maxQueuedBytes = Number.POSITIVE_INFINITY } = options;
  const clock = new ManualClock();
  const [near, far] = duplexPair();
  const events: ConnectionEvent[] = [];
  const told: string[] = [];
  const connection = new WebSocketConnection(
    new StreamSocket(near, "server", plainByteCodec, { maxQueuedBytes }),
    {
      maxQueuedBytes,
      label: "exec-server websocket test",
      role: "server",
      clock,
      keepAlive: true,
      maxMessageBytes: options.maxMessageBytes ?? 10_000,
      turns: options.turns,
    },
  );
  const writer = new FrameWriter("client", plainByteCodec, undefined, () => 0x01020304);
  const reader = new FrameReader("client", plainByteCodec, 1 << 24, {
    message: (payload) => told.push(`message ${payload.toString()}`),
    ping: (payload) => {
      told.push("ping");
      if (options.answersPings) far.write(writer.pong(payload));
    },
    pong: () => told.push("pong"),
    close: (code, reason) => told.push(`close ${code} ${reason}`),
    violated: (code, reason) => told.push(`violated ${code} ${reason}`),
  });
  if (!options.stalled) far.on("data", (chunk: Buffer) => reader.push(Buffer.from(chunk)));
  far.on("end", () => told.push("end"));
  connection.open((event) => events.push(event));
  return { clock, connection, near, far, writer, events, told };
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve));
}

describe("keep-alive", () => {
  test("pings every 30 s and keeps a peer that answers", async () => {
    const { clock, events, told } = connect({ answersPings: true });
    for (let n = 0; n < 10; n++) {
      await clock.advance(30_000);
      await settle();
    }
    assert.equal(told.filter((word) => word === "ping").length, 10);
    assert.deepEqual(events, []);
  });

  test("notices a dead idle peer within 45 s", async () => {
    const { clock, events } = connect();
    await clock.advance(30_000);
    await settle();
    await clock.advance(14_999);
    assert.deepEqual(events, []);
    await clock.advance(1);
    assert.deepEqual(events, [{ type: "disconnected", reason: "no answer to a ping within 15000 ms" }]);
    assert.equal(clock.pendingTimers, 0);
  });

  test("takes any message of the peer as a sign of life", async () => {
    const { clock, far, writer, events } = connect();
    await clock.advance(30_000);
    far.write(writer.text('{"method":"x"}'));
    await settle();
    await clock.advance(15_000);
    assert.deepEqual(
      events.map(({ type }) => type),
      ["message"],
    );
  });

  test("does not count missed answers while something is queued for the peer", async () => {
    const { clock, connection, events } = connect({ stalled: true });
    connection.send("x".repeat(1_000_000));
    await settle();
    assert.ok(connection.queuedBytes > 0);
    await clock.advance(300_000);
    assert.deepEqual(events, []);
  });
});

describe("a peer that does not read", () => {
  test("is closed with a reason when it leaves its answers unread", async () => {
    const { clock, connection, near, events } = connect({ stalled: true, maxQueuedBytes: 100_000 });
    connection.send("x".repeat(200_000));
    await settle();
    assert.ok(near.isPaused(), "nothing more is read");
    await clock.advance(30_000);
    assert.deepEqual(events, []);
    await clock.advance(30_000);
    assert.deepEqual(events, [{ type: "disconnected", reason: "its answers were left unread" }]);
  });

  test("is not closed for less than the limit of queued answers, such as waiting output", async () => {
    const { clock, connection, events } = connect({ stalled: true, maxQueuedBytes: 300_000 });
    connection.send("x".repeat(200_000));
    await clock.advance(600_000);
    assert.deepEqual(events, []);
  });

  test("is read again, and not closed, once it takes something", async () => {
    const { clock, connection, near, far, events } = connect({ stalled: true, maxQueuedBytes: 100_000 });
    connection.send("x".repeat(200_000));
    await clock.advance(30_000);
    far.resume();
    await settle();
    assert.equal(connection.queuedBytes, 0);
    assert.equal(near.isPaused(), false);
    assert.deepEqual(events, []);
  });

  test("gets a long message in parts, and what was sent meanwhile behind it", async () => {
    const { connection, far, told } = connect({ stalled: true });
    const bytes = Buffer.alloc(3_000_000, "b");
    const sent = connection.sendLong({ head: '{"a":"', bytes, tail: '"}' });
    connection.send("after");
    await settle();
    assert.ok(connection.queuedBytes < 1_500_000, `${connection.queuedBytes} bytes are queued`);
    const reader = new FrameReader("client", plainByteCodec, 1 << 24, {
      message: (payload) => told.push(payload.toString()),
      ping: () => undefined,
      pong: () => undefined,
      close: () => undefined,
      violated: (_code, reason) => told.push(`violated ${reason}`),
    });
    far.on("data", (chunk: Buffer) => reader.push(Buffer.from(chunk)));
    await sent;
    while (told.length < 2) await settle();
    assert.deepEqual(told, [`{"a":"${bytes.toString("base64")}"}`, "after"]);
  });

  test("that leaves has its queue dropped", async () => {
    const { connection, far } = connect({ stalled: true });
    const message = { head: "", bytes: Buffer.alloc(3_000_000), tail: "" };
    const sent = [connection.sendLong(message), connection.sendLong(message)];
    far.destroy();
    connection.close();
    await Promise.all(sent);
  });
});

describe("a peer that stalls within a large message", () => {
  /** Two connections with room for one large message, and the beginning of one from each. */
  async function two(begun: (writer: FrameWriter) => Buffer) {
    const turns = { small: new ByteTurns(1_000_000), large: new ByteTurns(4_000_000) };
    const options = { answersPings: true, maxMessageBytes: 8_000_000, turns };
    const [first, second] = [connect(options), connect(options)];
    first.far.write(begun(first.writer));
    await settle();
    return { first, second };
  }
  const beginning = (writer: FrameWriter) => writer.text("x".repeat(3_000_000)).subarray(0, 10_000);

  test("is closed with a reason once others wait for its room, and they get it", async () => {
    const { first, second } = await two(beginning);
    // It gives no sign of life but the silence; pongs would be one.
    first.far.pause();
    second.far.write(beginning(second.writer));
    await settle();
    assert.ok(second.near.isPaused(), "the second waits for room");
    await first.clock.advance(60_000);
    assert.deepEqual(first.events, [{ type: "disconnected", reason: "it stalled" }]);
    await settle();
    assert.equal(second.near.isPaused(), false);
    assert.deepEqual(second.events, []);
  });

  test("is left in peace while nobody waits for its room", async () => {
    const { first } = await two(beginning);
    first.far.pause();
    await first.clock.advance(600_000);
    assert.ok(!first.events.some((event) => event.type === "disconnected" && event.reason === "it stalled"));
  });
});

describe("closing", () => {
  test("answers a close with a close and ends", async () => {
    const { far, writer, events, told } = connect();
    far.write(writer.close(1000, "bye"));
    await settle();
    assert.deepEqual(events, [{ type: "disconnected", reason: "bye" }]);
    assert.deepEqual(told, ["close 1000 ", "end"]);
  });

  test("sends the reason as a policy close, once", async () => {
    const { connection, events, told, far, writer } = connect();
    connection.close("because");
    connection.close("again");
    connection.send("late");
    far.write(writer.ping());
    await settle();
    assert.deepEqual(told, ["close 1008 because", "end"]);
    assert.deepEqual(events, [{ type: "disconnected", reason: null }]);
  });

  test("drops a peer that does not take its close within a second", async () => {
    const { clock, connection, near } = connect({ stalled: true });
    connection.send("x".repeat(1_000_000));
    connection.close("enough");
    await settle();
    await clock.advance(999);
    assert.equal(near.destroyed, false);
    await clock.advance(1);
    assert.equal(near.destroyed, true);
    await settle();
    assert.equal(clock.pendingTimers, 0);
  });

  /** It is closing with this many messages queued; `take` has the peer take some of them. */
  async function closingWith(messages: number) {
    const { clock, connection, near, far } = connect({ stalled: true });
    for (let at = 0; at < messages; at++) {
      connection.send("x".repeat(100_000));
      await settle();
    }
    connection.close("enough");
    const take = async () => {
      for (let before = connection.queuedBytes; connection.queuedBytes === before; await settle()) far.read();
    };
    return { clock, near, take };
  }

  test("gives a peer that takes what is queued ten seconds for it", async () => {
    const { clock, near, take } = await closingWith(100);
    for (let second = 0; second < 10; second++) {
      assert.equal(near.destroyed, false, `after ${second} s`);
      await take();
      await clock.advance(1000);
    }
    assert.equal(near.destroyed, true);
    assert.equal(clock.pendingTimers, 0);
  });

  test("drops a peer that takes no more of what is queued", async () => {
    const { clock, near, take } = await closingWith(5);
    await take();
    await clock.advance(1000);
    assert.equal(near.destroyed, false);
    await clock.advance(1000);
    assert.equal(near.destroyed, true);
  });

  test("reports a peer that vanished without a close", async () => {
    const { far, events } = connect();
    far.destroy();
    await settle();
    assert.equal(events.length, 1);
    assert.equal(events[0]?.type, "disconnected");
  });
});

describe("messages", () => {
  test("come as text or as binary", async () => {
    const { far, writer, events } = connect();
    far.write(writer.text('{"method":"text"}'));
    const binary = writer.text('{"method":"binary"}');
    binary[0] = 0x82;
    far.write(binary);
    await settle();
    assert.deepEqual(
      events.map((event) =>
        event.type === "message" && event.message.type === "notification" ? event.message.method : event.type,
      ),
      ["text", "binary"],
    );
  });

  test("that are binary and no UTF-8 are malformed, and the connection lives", async () => {
    const { connection, far, writer, events, told } = connect();
    const broken = writer.text("ab{");
    broken[0] = 0x82;
    // Under the mask 01 02 03 04 these are the bytes ff fe 7b.
    broken.set([0xfe, 0xfc, 0x78], broken.length - 3);
    far.write(broken);
    far.write(writer.text('{"method":"x"}'));
    await settle();
    assert.deepEqual(
      events.map(({ type }) => type),
      ["malformed", "message"],
    );
    assert.ok(
      events[0]?.type === "malformed" &&
        events[0].reason.startsWith(
          "failed to parse websocket JSON-RPC message from exec-server websocket test: ",
        ),
    );
    connection.send("still here");
    await settle();
    assert.deepEqual(told, ["message still here"]);
  });

  test("that are text and no UTF-8 end the connection with 1007", async () => {
    const { far, writer, events, told } = connect();
    const broken = writer.text("ab{");
    broken.set([0xfe, 0xfc, 0x78], broken.length - 3);
    far.write(broken);
    await settle();
    assert.deepEqual(events, [
      { type: "disconnected", reason: "websocket protocol error: text is not UTF-8" },
    ]);
    assert.equal(told[0], "close 1007 text is not UTF-8");
  });

  test("with a replacement character of their own are fine", async () => {
    const { far, writer, events } = connect();
    far.write(writer.text('{"method":"\ufffd"}'));
    await settle();
    assert.deepEqual(
      events.map(({ type }) => type),
      ["message"],
    );
  });

  test("over the limit end the connection with 1009", async () => {
    const { far, writer, events, told } = connect({ maxMessageBytes: 100 });
    far.write(writer.text("x".repeat(101)));
    await settle();
    assert.equal(told[0], "close 1009 message is larger than 100 bytes");
    assert.equal(events[0]?.type, "disconnected");
  });

  test("that came together with the handshake are not lost", async () => {
    const [near] = duplexPair();
    const events: ConnectionEvent[] = [];
    const writer = new FrameWriter("client", plainByteCodec);
    const head = writer.text('{"method":"early"}');
    const connection = new WebSocketConnection(new StreamSocket(near, "server", plainByteCodec, { head }), {
      label: "test",
      role: "server",
    });
    connection.open((event) => events.push(event));
    assert.equal(events.length, 1);
    connection.close();
    await settle();
  });

  test("pings are answered with their own payload", async () => {
    const { far, events, told } = connect();
    far.write(Buffer.from([0x89, 0x82, 0, 0, 0, 0, 0x68, 0x69]));
    await settle();
    assert.deepEqual(told, ["pong"]);
    assert.deepEqual(events, []);
  });
});
