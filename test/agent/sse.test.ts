import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { SseParser } from "../../src/agent/sse.ts";

test("data lines of one event are joined, comments, ids and event names are skipped", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push(": hi\nevent: x\nid: 1\ndata: a\ndata:b\ndata\n\n"), ["a\nb\n"]);
  assert.deepEqual(parser.push("database: no\n\n"), []);
});

test("an event without its blank line is not told", () => {
  const parser = new SseParser();
  assert.deepEqual(parser.push("data: a\n"), []);
  assert.deepEqual(parser.push("\n"), ["a"]);
});

test("the events do not depend on where the stream is cut nor on the kind of line ends", () => {
  const payload = fc.string({ unit: fc.constantFrom("a", "{", "é", "😀", ":", " "), minLength: 1 });
  fc.assert(
    fc.property(
      fc.array(payload, { minLength: 1, maxLength: 6 }),
      fc.constantFrom("\n", "\r\n", "\r"),
      fc.array(fc.nat(400), { maxLength: 12 }),
      (payloads, lineEnd, cuts) => {
        // The last line end is doubled once more because a CR at the end waits for its LF.
        const text = `${payloads.map((data) => `data: ${data}${lineEnd}${lineEnd}`).join("")}: end\n`;
        const parser = new SseParser();
        const seen: string[] = [];
        let from = 0;
        for (const cut of [...new Set(cuts)].sort((a, b) => a - b).concat(text.length)) {
          if (cut < from) continue;
          seen.push(...parser.push(text.slice(from, cut)));
          from = Math.min(cut, text.length);
        }
        assert.deepEqual(seen, payloads);
      },
    ),
  );
});
