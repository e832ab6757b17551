import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { nodeByteCodec } from "../../src/connection/byte-codec.ts";
import { FrameWriter } from "../../src/connection/frame-writer.ts";
import { type EndpointRole, FrameReader } from "../../src/connection/websocket-frames.ts";
import { cut, rawFrame as frame } from "../support/faults/raw-frames.ts";

const MAX_MESSAGE_BYTES = 1000;

/** A reader's events, as text. */
function reader(role: EndpointRole, maxMessageBytes = MAX_MESSAGE_BYTES) {
  const received: string[] = [];
  const frames = new FrameReader(role, nodeByteCodec, maxMessageBytes, {
    message: (payload, kind) => received.push(`${kind} ${payload.toString("base64")}`),
    ping: (payload) => received.push(`ping ${payload.toString("base64")}`),
    pong: () => received.push("pong"),
    close: (code, reason) => received.push(`close ${code} ${reason}`),
    protocolError: (code) => received.push(`violated ${code}`),
  });
  return { frames, received };
}

const payload = fc.oneof(
  fc.uint8Array({ maxLength: 20 }),
  fc.integer({ min: 120, max: 130 }).map((length) => new Uint8Array(length).fill(length)),
  fc.integer({ min: 900, max: 1000 }).map((length) => new Uint8Array(length).fill(7)),
);
const places = fc.array(fc.nat(), { maxLength: 12 });

type Sent =
  | { kind: "message"; opcode: 1 | 2; fragments: Uint8Array[]; pingsBetween: boolean }
  | { kind: "ping"; payload: Uint8Array }
  | { kind: "pong" };

const sent: fc.Arbitrary<Sent> = fc.oneof(
  fc.record({
    kind: fc.constant("message" as const),
    opcode: fc.constantFrom(1 as const, 2 as const),
    fragments: fc.array(fc.uint8Array({ maxLength: 200 }), { minLength: 1, maxLength: 5 }),
    pingsBetween: fc.boolean(),
  }),
  fc.record({ kind: fc.constant("ping" as const), payload: fc.uint8Array({ maxLength: 125 }) }),
  fc.record({ kind: fc.constant("pong" as const) }),
);

describe("a frame reader", () => {
  for (const role of ["server", "client"] as const) {
    test(`as ${role} delivers complete messages, fragmented or not, wherever the bytes are split`, () => {
      const mask = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffffffff }));
      fc.assert(
        fc.property(fc.array(sent, { maxLength: 6 }), places, mask, (all, at, key) => {
          const maskKey = role === "server" ? key : null;
          const bytes: Buffer[] = [];
          const expected: string[] = [];
          for (const one of all) {
            if (one.kind === "ping") {
              bytes.push(frame({ opcode: 9, payload: one.payload, mask: maskKey }));
              expected.push(`ping ${Buffer.from(one.payload).toString("base64")}`);
            } else if (one.kind === "pong") {
              bytes.push(frame({ opcode: 10, mask: maskKey }));
              expected.push("pong");
            } else {
              for (const [index, part] of one.fragments.entries()) {
                const fin = index === one.fragments.length - 1;
                bytes.push(frame({ fin, opcode: index === 0 ? one.opcode : 0, payload: part, mask: maskKey }));
                if (one.pingsBetween && !fin) {
                  bytes.push(frame({ opcode: 9, mask: maskKey }));
                  expected.push("ping ");
                }
              }
              const whole = Buffer.concat(one.fragments);
              expected.push(`${one.opcode === 1 ? "text" : "binary"} ${whole.toString("base64")}`);
            }
          }
          const { frames, received } = reader(role);
          for (const part of cut(Buffer.concat(bytes), at)) frames.push(part);
          assert.deepEqual(received, expected);
        }),
        { numRuns: 500 },
      );
    });
  }

  test("accepts input one byte at a time", () => {
    const { frames, received } = reader("server");
    const bytes = Buffer.concat([
      frame({ opcode: 1, payload: Buffer.from("hello") }),
      frame({ opcode: 2, payload: new Uint8Array(300).fill(1) }),
      frame({ opcode: 1, payload: Buffer.from("x"), lengthBytes: 8 }),
      frame({ opcode: 8, payload: Buffer.concat([Buffer.from([0x03, 0xe8]), Buffer.from("bye")]) }),
    ]);
    for (const byte of bytes) frames.push(Buffer.from([byte]));
    assert.deepEqual(received.slice(0, 1), [`text ${Buffer.from("hello").toString("base64")}`]);
    assert.equal(received.length, 4);
    assert.equal(received.at(-1), "close 1000 bye");
  });

  test("ignores everything after a close", () => {
    const { frames, received } = reader("server");
    frames.push(Buffer.concat([frame({ opcode: 8 }), frame({ opcode: 1, payload: Buffer.from("late") })]));
    frames.push(frame({ opcode: 1, payload: Buffer.from("later") }));
    assert.deepEqual(received, ["close null "]);
  });

  const violations: [what: string, role: EndpointRole, bytes: Buffer, code: number][] = [
    ["a client frame without a mask", "server", frame({ opcode: 1, mask: null }), 1002],
    ["a server frame with a mask", "client", frame({ opcode: 1, mask: 5 }), 1002],
    ["a reserved bit", "server", frame({ opcode: 1, rsv: 4 }), 1002],
    ["an unknown data opcode", "server", frame({ opcode: 3 }), 1002],
    ["an unknown control opcode", "server", frame({ opcode: 11 }), 1002],
    ["a fragmented control frame", "server", frame({ opcode: 9, fin: false }), 1002],
    ["a long control frame", "server", frame({ opcode: 9, payload: new Uint8Array(126) }), 1002],
    ["a continuation without a message", "server", frame({ opcode: 0 }), 1002],
    [
      "a new message inside another",
      "server",
      Buffer.concat([frame({ opcode: 1, fin: false }), frame({ opcode: 1 })]),
      1002,
    ],
    ["a frame over the limit", "server", frame({ opcode: 1, payload: new Uint8Array(1001) }), 1009],
    [
      "fragments over the limit together",
      "server",
      Buffer.concat([
        frame({ opcode: 1, fin: false, payload: new Uint8Array(600) }),
        frame({ opcode: 0, payload: new Uint8Array(401) }),
      ]),
      1009,
    ],
  ];
  for (const [what, role, bytes, code] of violations) {
    test(`rejects ${what} with ${code} once, and reads nothing more`, () => {
      const { frames, received } = reader(role);
      frames.push(Buffer.from(bytes));
      frames.push(frame({ opcode: 1, payload: Buffer.from("after") }));
      assert.deepEqual(received, [`violated ${code}`]);
    });
  }

  test("rejects a message above the limit by its header, before its payload arrives", () => {
    const { frames, received } = reader("server");
    const whole = frame({ opcode: 1, payload: new Uint8Array(70_000) });
    frames.push(whole.subarray(0, 14));
    assert.deepEqual(received, ["violated 1009"]);
    const huge = Buffer.from([0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    const other = reader("server");
    other.frames.push(huge);
    assert.deepEqual(other.received, ["violated 1009"]);
  });

  test("accepts a message of exactly the limit, in fragments of which some are empty", () => {
    const { frames, received } = reader("server");
    frames.push(frame({ opcode: 1, fin: false }));
    frames.push(frame({ opcode: 0, fin: false, payload: new Uint8Array(MAX_MESSAGE_BYTES) }));
    frames.push(frame({ opcode: 0, fin: false }));
    frames.push(frame({ opcode: 0 }));
    assert.deepEqual(received, [`text ${Buffer.alloc(MAX_MESSAGE_BYTES).toString("base64")}`]);
  });

  test("allocates memory for received bytes, not for claimed lengths", () => {
    const claimed = 64 * 1024 * 1024;
    const before = process.memoryUsage().arrayBuffers;
    const readers = Array.from({ length: 100 }, () => reader("server", claimed));
    for (const { frames } of readers) frames.push(frame({ opcode: 1, claimed: BigInt(claimed) }));
    const grown = process.memoryUsage().arrayBuffers - before;
    assert.ok(grown < claimed, `100 heads made it grow by ${grown} bytes`);
    assert.ok(readers.every(({ received }) => received.length === 0));
  });

  test("assembles a large frame from parts of any size", () => {
    const payload = Buffer.alloc(3_000_000);
    for (let at = 0; at < payload.length; at++) payload[at] = at % 251;
    for (const size of [65_536, 300_000, 1_000_001]) {
      const { frames, received } = reader("server", 4_000_000);
      const bytes = Buffer.concat([frame({ opcode: 2, payload }), frame({ opcode: 1, payload: Buffer.from("next") })]);
      for (let at = 0; at < bytes.length; at += size) frames.push(Buffer.from(bytes.subarray(at, at + size)));
      assert.equal(received.length, 2);
      assert.ok(received[0] === `binary ${payload.toString("base64")}`, `in parts of ${size}`);
    }
  });

  test("uses memory independent of the number of fragments", () => {
    const { frames, received } = reader("server", 1 << 20);
    const empty = Buffer.concat(Array.from({ length: 1000 }, () => frame({ opcode: 0, fin: false })));
    const tiny = Buffer.concat(
      Array.from({ length: 1000 }, () => frame({ opcode: 0, fin: false, payload: Uint8Array.of(120), mask: 0 })),
    );
    frames.push(frame({ opcode: 1, fin: false }));
    const before = process.memoryUsage();
    for (let n = 0; n < 300; n++) {
      frames.push(Buffer.from(empty));
      frames.push(Buffer.from(tiny));
    }
    const after = process.memoryUsage();
    const grown = after.arrayBuffers + after.heapUsed - before.arrayBuffers - before.heapUsed;
    assert.ok(grown < 40 * 1024 * 1024, `grew by ${grown} bytes for 300 kB`);
    frames.push(frame({ opcode: 0 }));
    assert.equal(received.length, 1);
    assert.equal(Buffer.from(received[0]?.slice("text ".length) ?? "", "base64").length, 300_000);
  });
});

describe("a frame writer", () => {
  const other = { server: "client", client: "server" } as const;
  for (const role of ["server", "client"] as const) {
    test(`as ${role} writes frames that a reader on the other side parses`, () => {
      fc.assert(
        fc.property(fc.string({ unit: "binary" }), payload, places, (text, chunk, at) => {
          const writer = new FrameWriter(role, nodeByteCodec, undefined, () => 0x0badcafe);
          const { frames, received } = reader(other[role], 1 << 20);
          const bytes = Buffer.concat([
            writer.text(text),
            writer.chunk(`{"é":"`, chunk, `"}`),
            writer.ping(),
            writer.pong(Buffer.from("p")),
            writer.close(1008, text),
          ]);
          for (const part of cut(bytes, at)) frames.push(part);
          const asText = (part: string) => `text ${Buffer.from(part).toString("base64")}`;
          assert.deepEqual(received.slice(0, 4), [
            asText(text),
            asText(`{"é":"${Buffer.from(chunk).toString("base64")}"}`),
            "ping ",
            "pong",
          ]);
          assert.ok(received[4]?.startsWith("close 1008 "));
        }),
      );
    });
  }

  test("truncates a close reason to a control frame at a character boundary", () => {
    const writer = new FrameWriter("server", nodeByteCodec);
    for (let pad = 0; pad < 4; pad++) {
      const { frames, received } = reader("client");
      frames.push(writer.close(1008, `${"x".repeat(pad)}${"é€😀".repeat(40)}`));
      const reason = received[0]?.slice("close 1008 ".length) ?? "";
      assert.ok(Buffer.byteLength(reason) <= 123 && Buffer.byteLength(reason) >= 119);
      assert.ok(!reason.includes("\ufffd"));
    }
  });
});

test("FrameReader does not read a chunk again after `push` returned copied", () => {
  fc.assert(
    fc.property(fc.array(payload, { minLength: 1, maxLength: 4 }), places, (payloads, cuts) => {
      const bytes = Buffer.concat(payloads.map((one) => frame({ opcode: 2, payload: one, mask: 0x01020304 })));
      const { frames, received } = reader("server");
      for (const part of cut(bytes, cuts)) {
        const own = Buffer.from(new Uint8Array(part).buffer);
        if (frames.push(own) === "copied") own.fill(0xff);
      }
      assert.deepEqual(
        received,
        payloads.map((one) => `binary ${Buffer.from(one).toString("base64")}`),
      );
    }),
  );
  const { frames } = reader("server");
  const whole = frame({ opcode: 2, payload: new Uint8Array(900), mask: 0x01020304 });
  assert.deepEqual(
    [frames.push(whole.subarray(0, 100)), frames.push(whole.subarray(100, 500)), frames.push(whole.subarray(500))],
    ["retained", "copied", "copied"],
  );
});
