import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  CAST_VERSIONS,
  type CastEvent,
  type CastVersion,
  CastWriter,
} from "../../../src/client/recording/asciicast.ts";
import { CastReader, readCast } from "../../../src/client/recording/cast-reader.ts";

const SIZE = { rows: 3, cols: 4 };

/** An output event after a pause. */
interface Printed {
  pauseMs: number;
  text: string;
}

const printed: fc.Arbitrary<Printed[]> = fc.array(
  fc.record({
    pauseMs: fc.integer({ min: 0, max: 100_000 }),
    text: fc.string({ unit: "grapheme", minLength: 1, maxLength: 8 }),
  }),
  { maxLength: 8 },
);
const version = fc.constantFrom(...CAST_VERSIONS);

/** Returns the bytes of a recording, and the events that it must contain. */
function recorded(events: readonly Printed[], format: CastVersion): { bytes: Buffer; expected: CastEvent[] } {
  let text = "";
  const writer = new CastWriter({ version: format, size: SIZE, startedAtMs: 5000, command: "x" }, (line) => {
    text += line;
  });
  let atMs = 0;
  const expected = events.map((event) => {
    atMs += event.pauseMs;
    writer.output(atMs, Buffer.from(event.text));
    return { atMs, code: "o", data: event.text };
  });
  return { bytes: Buffer.from(text), expected };
}

const roundTimes = (events: readonly CastEvent[]) =>
  events.map(({ atMs, ...rest }) => ({ ...rest, atMs: Math.round(atMs) }));

describe("an asciicast", () => {
  test("has times since the start in version 2, and since the previous event in version 3", () => {
    const two = '{"version":2,"width":90,"height":30}\n[0.5,"o","a"]\n[0.75,"o","b"]\n';
    const three = '{"version":3,"term":{"cols":90,"rows":30}}\n# a comment\n[0.5,"o","a"]\n[0.25,"o","b"]\n';
    assert.deepEqual({ ...readCast(two), version: 3 }, readCast(three));
    assert.deepEqual(
      readCast(two).events.map(({ atMs }) => atMs),
      [500, 750],
    );
    assert.deepEqual(readCast(two).size, { rows: 30, cols: 90 });
    assert.equal(readCast('{"version":2,"width":9,"height":3,"idle_time_limit":2}').idleLimitMs, 2000);
  });

  test("is written in version 3 with a terminal object, and in version 2 with width and height, without an exit", () => {
    const lines = (format?: CastVersion) => {
      const written: unknown[] = [];
      const head = { version: format, size: SIZE, startedAtMs: 5000, command: "x" };
      const writer = new CastWriter(head, (line) => written.push(JSON.parse(line)));
      writer.output(1500, Buffer.from("a"));
      writer.resized(2000.0004, { rows: 5, cols: 6 });
      writer.exited(2500, 9);
      return written;
    };
    assert.deepEqual(lines(), [
      { version: 3, term: { cols: 4, rows: 3 }, timestamp: 5, command: "x" },
      [1.5, "o", "a"],
      [0.5, "r", "6x5"],
      [0.5, "x", "9"],
    ]);
    assert.deepEqual(lines(2), [
      { version: 2, width: 4, height: 3, timestamp: 5, command: "x" },
      [1.5, "o", "a"],
      [2, "r", "6x5"],
    ]);
  });

  test("parses to the events that were written, even if a character was split between chunks", () => {
    const lines: string[] = [];
    const writer = new CastWriter({ size: SIZE, startedAtMs: 5000, command: "x" }, (line) => lines.push(line));
    const euro = Buffer.from("€");
    writer.output(10, euro.subarray(0, 1));
    writer.output(20, euro.subarray(1));
    writer.output(40, Buffer.from("\x1b[2J\xff", "latin1"));
    writer.exited(50, 9);
    assert.deepEqual(readCast(lines.join("")).events, [
      { atMs: 20, code: "o", data: "€" },
      { atMs: 40, code: "o", data: "\x1b[2J\ufffd" },
      { atMs: 50, code: "x", data: "9" },
    ]);
  });

  test("parses to the same events wherever its bytes are split", () => {
    fc.assert(
      fc.property(printed, version, (events, format) => {
        const { bytes, expected } = recorded(events, format);
        for (let at = 0; at <= bytes.length; at++) {
          const reader = new CastReader();
          reader.push(bytes.subarray(0, at));
          reader.push(bytes.subarray(at));
          const cast = reader.end();
          assert.deepEqual(roundTimes(cast.events), expected);
          assert.deepEqual([cast.version, cast.size, cast.isTruncated], [format, SIZE, false]);
        }
      }),
      { numRuns: 30 },
    );
  });

  test("parses to its first events if it ends at any byte after the header", () => {
    fc.assert(
      fc.property(printed, version, (events, format) => {
        const { bytes, expected } = recorded(events, format);
        const headerEnd = bytes.indexOf("\n");
        for (let end = 0; end <= bytes.length; end++) {
          const start = bytes.subarray(0, end);
          if (end < headerEnd) {
            assert.throws(() => readCast(start), /^Error: not an asciicast: /);
            continue;
          }
          const cast = readCast(start);
          const complete = start.toString("latin1").split("\n").length - 2;
          const isWhole = end === bytes.length || bytes[end] === 10;
          const count = isWhole && bytes[end] === 10 && end > headerEnd ? complete + 1 : Math.max(0, complete);
          assert.deepEqual(roundTimes(cast.events), expected.slice(0, count));
          assert.equal(cast.isTruncated, !isWhole && bytes[end - 1] !== 10, `${end} of ${bytes.length}`);
        }
      }),
      { numRuns: 30 },
    );
  });

  test("is rejected with the reason if it is invalid", () => {
    for (const [text, problem] of [
      ["", /the file is empty/],
      ["\n\n", /the file is empty/],
      ["nothing", /line 1 is not JSON/],
      ["# recorded at night\n{\n", /line 2 is not JSON/],
      ['{"version":1}', /not a header of version 2 or 3/],
      ['{"version":3}', /does not give the size of the terminal/],
      ['{"version":2,"width":1,"height":1}\n[1e999,"o","x"]', /line 2 is not \[time, code, data\]/],
      ['{"version":3,"term":{"cols":1,"rows":1}}\n[-1,"o","x"]', /line 2 is not \[time, code, data\]/],
      ['{"version":2,"width":1,"height":1}\n[1,"o"]', /line 2 is not \[time, code, data\]/],
      ['{"version":2,"width":1,"height":1}\n[1,"o"\n[2,"o","x"]\n', /line 2 is not JSON/],
      ['# a comment\n\n{"version":2,"width":1,"height":1}\n# another\n\n{\n', /line 6 is not JSON/],
    ] as const)
      assert.throws(() => readCast(text), problem);
  });
});
