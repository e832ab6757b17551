import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { ByteStream, ByteStreamEvents } from "../../src/forward/byte-stream.ts";
import { SocksProxy } from "../../src/forward/socks-proxy.ts";
import { parseGreeting, parseRequest, type SocksStep } from "../../src/forward/socks5.ts";
import { ExecServerError } from "../../src/protocol/exec-server-error.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { flushEventLoop } from "../support/system/flush-event-loop.ts";

const name = fc.stringMatching(/^[a-zA-Z0-9_.-]{1,255}$/);
const port = fc.integer({ min: 1, max: 65_535 });

/** The request of a client for a host name. */
function requestFor(host: string, target: number): Uint8Array {
  return Uint8Array.of(5, 1, 0, 3, host.length, ...Buffer.from(host), target >> 8, target & 255);
}

const GREETING = Uint8Array.of(5, 1, 0);
const TARGET = requestFor("db.internal", 5432);

/** Parses growing prefixes of the bytes. Returns the first step that is complete. */
function firstStep(parse: (bytes: Uint8Array) => SocksStep, bytes: Uint8Array): { step: SocksStep; length: number } {
  for (let length = 0; length <= bytes.length; length++) {
    const step = parse(bytes.subarray(0, length));
    if (step.type !== "incomplete") return { step, length };
  }
  return { step: { type: "incomplete" }, length: bytes.length };
}

/** The accepted stream of a client under test. */
class ClientStream implements ByteStream {
  events: ByteStreamEvents | null = null;
  readonly written: Buffer[] = [];
  acknowledged = 0;
  closed: { reason: string | null } | null = null;
  hasEnded = false;

  open(events: ByteStreamEvents): void {
    this.events = events;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.written.push(Buffer.from(chunk));
  }

  end(): void {
    this.hasEnded = true;
  }

  acknowledge(bytes: number): void {
    this.acknowledged += bytes;
  }

  close(reason: string | null): void {
    this.closed ??= { reason };
  }

  get received(): Buffer {
    return Buffer.concat(this.written);
  }
}

/** A proxy whose targets are streams under test. */
function startProxy(connect?: (host: string, port: number) => Promise<ByteStream>) {
  const clock = new ManualClock();
  const refused: string[] = [];
  const targets: { host: string; port: number; stream: ClientStream }[] = [];
  const proxy = new SocksProxy({
    clock,
    onRefused: (message) => refused.push(message),
    connect:
      connect ??
      (async (host, target) => {
        const stream = new ClientStream();
        targets.push({ host, port: target, stream });
        return stream;
      }),
  });
  const accept = () => {
    const client = new ClientStream();
    proxy.accept(client);
    return client;
  };
  return { clock, refused, targets, accept };
}

describe("the SOCKS5 parser", () => {
  test("returns host, port and length of every valid request, from exactly its bytes", () => {
    fc.assert(
      fc.property(name, port, fc.uint8Array({ maxLength: 50 }), (host, target, after) => {
        const request = requestFor(host, target);
        const expected = { type: "connect", host, port: target, consumed: request.length };
        assert.deepEqual(parseRequest(Buffer.concat([request, after])), expected);
        assert.equal(firstStep(parseRequest, request).length, request.length);
      }),
    );
  });

  test("formats addresses of both families", () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 16, maxLength: 16 }), port, (bytes, target) => {
        const v4 = parseRequest(Uint8Array.of(5, 1, 0, 1, ...bytes.subarray(0, 4), target >> 8, target & 255));
        assert.ok(v4.type === "connect" && v4.host === bytes.subarray(0, 4).join(".") && v4.port === target);
        const v6 = parseRequest(Uint8Array.of(5, 1, 0, 4, ...bytes, target >> 8, target & 255));
        assert.ok(v6.type === "connect" && new URL(`http://[${v6.host}]/`).hostname.startsWith("["));
      }),
    );
  });

  test("decides about any bytes within the longest message, and never by bytes after the decision", () => {
    const MAX_MESSAGE_BYTES = 262;
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 600 }), fc.boolean(), (bytes, isSocks) => {
        if (isSocks && bytes.length > 0) bytes[0] = 5;
        for (const parse of [parseGreeting, parseRequest]) {
          const { step, length } = firstStep(parse, bytes);
          if (step.type === "incomplete") assert.ok(bytes.length < MAX_MESSAGE_BYTES);
          else assert.deepEqual(parse(bytes), step, `decided after ${length} bytes`);
        }
      }),
      { numRuns: 500 },
    );
  });

  test("rejects other commands, address types, ports and names with the code of RFC 1928", () => {
    const cases: [Uint8Array, number][] = [
      [Uint8Array.of(5, 2, 0, 1, 1, 1, 1, 1, 0, 80), 7],
      [Uint8Array.of(5, 1, 0, 9, 1, 1, 1, 1, 0, 80), 8],
      [requestFor("x", 0), 8],
      [requestFor("a b", 80), 8],
      [requestFor("x\0y", 80), 8],
      [requestFor("", 80), 8],
      [Uint8Array.of(4, 1, 0, 80, 1, 1, 1, 1, 0), 1],
    ];
    for (const [bytes, code] of cases) {
      const step = parseRequest(bytes);
      assert.ok(step.type === "rejected" && step.reply[1] === code, JSON.stringify(step));
    }
    assert.deepEqual(parseGreeting(Uint8Array.of(5, 1, 2)), {
      type: "rejected",
      reply: Uint8Array.of(5, 0xff),
      reason: "the client requires authentication",
    });
  });
});

describe("a SOCKS5 proxy", () => {
  test("connects a client however its bytes are split, and passes on the bytes after the handshake", async () => {
    const bytes = Buffer.concat([GREETING, TARGET, Buffer.from("early")]);
    for (const cut of bytes.keys()) {
      const { accept, targets, refused } = startProxy();
      const client = accept();
      client.events?.data(bytes.subarray(0, cut));
      client.events?.data(bytes.subarray(cut));
      await flushEventLoop();
      const [target] = targets;
      assert.deepEqual([target?.host, target?.port], ["db.internal", 5432]);
      client.events?.data(Buffer.from(" late"));
      client.events?.end();
      await flushEventLoop();
      assert.equal(String(target?.stream.received), "early late");
      assert.equal(target?.stream.hasEnded, true);
      assert.deepEqual([...client.received], [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
      assert.equal(client.acknowledged, bytes.length + " late".length);
      target?.stream.events?.data(Buffer.from("answer"));
      assert.equal(String(client.received.subarray(12)), "answer");
      assert.deepEqual(refused, []);
    }
  });

  test("closes a client that is too slow, sends garbage or ends early", async () => {
    const { accept, refused, clock, targets } = startProxy();
    const slow = accept();
    slow.events?.data(GREETING);
    await clock.advance(9_999);
    assert.equal(slow.closed, null);
    await clock.advance(1);
    assert.notEqual(slow.closed, null);
    const garbage = accept();
    garbage.events?.data(Buffer.from("GET / HTTP/1.1\r\n\r\n"));
    assert.notEqual(garbage.closed, null);
    const short = accept();
    short.events?.data(GREETING);
    short.events?.end();
    assert.notEqual(short.closed, null);
    assert.deepEqual(refused, [
      "a client did not finish its SOCKS5 handshake",
      "the client does not speak SOCKS5",
      "a client ended its SOCKS5 handshake early",
    ]);
    assert.deepEqual(targets, []);
  });

  test("limits the clients within their handshake, and frees the slot of a client that leaves", () => {
    const { accept, refused } = startProxy();
    const clients = Array.from({ length: 257 }, accept);
    assert.deepEqual(
      clients.map(({ closed }) => closed !== null),
      [...Array(256).fill(false), true],
    );
    assert.deepEqual(refused, ["more than 256 clients are within their SOCKS5 handshake"]);
    clients[0]?.events?.close(null);
    assert.equal(accept().closed, null);
  });

  test("acknowledges nothing beyond the handshake until the target is connected", async () => {
    const opening = Promise.withResolvers<ByteStream>();
    const { accept } = startProxy(() => opening.promise);
    const client = accept();
    client.events?.data(Buffer.concat([GREETING, TARGET]));
    const block = Buffer.alloc(64 * 1024);
    for (let count = 0; count < 4; count++) client.events?.data(block);
    await flushEventLoop();
    assert.equal(client.acknowledged, GREETING.length + TARGET.length);
    const target = new ClientStream();
    opening.resolve(target);
    await flushEventLoop();
    assert.equal(target.received.length, 4 * block.length);
    assert.equal(client.acknowledged, GREETING.length + TARGET.length + 4 * block.length);
  });

  test("replies with the reason of a failed connection, and closes the target of a client that left", async () => {
    for (const [reason, code] of [
      ["targetNotAllowed", 2],
      ["networkUnreachable", 3],
      ["hostUnreachable", 4],
      ["connectionRefused", 5],
      ["unknownMethod", 1],
      [undefined, 1],
    ] as const) {
      const message = `connect x:1: ${reason}`;
      const failure = new ExecServerError(message, "EINVAL", { reason });
      const { accept, refused } = startProxy(() => Promise.reject(failure));
      const client = accept();
      client.events?.data(Buffer.concat([GREETING, TARGET]));
      await flushEventLoop();
      assert.equal(client.received[3], code, message);
      assert.deepEqual([client.closed, refused], [{ reason: null }, [message]]);
    }
    const opening = Promise.withResolvers<ByteStream>();
    const { accept } = startProxy(() => opening.promise);
    const client = accept();
    client.events?.data(Buffer.concat([GREETING, TARGET]));
    client.events?.close(null);
    const target = new ClientStream();
    opening.resolve(target);
    await flushEventLoop();
    assert.notEqual(target.closed, null);
  });
});
