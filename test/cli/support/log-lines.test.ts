import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LineFilter, LineTimestamps, type LoggedChunk, lastLines } from "../../../src/cli/support/log-lines.ts";

const chunk = (text: string, stream: "stdout" | "stderr" = "stdout", timeMs = 0): LoggedChunk => ({
  stream,
  chunk: Buffer.from(text),
  timeMs,
});
const textOf = (chunks: readonly Pick<LoggedChunk, "chunk">[]) =>
  Buffer.concat(chunks.map(({ chunk: bytes }) => bytes)).toString();

describe("log lines", () => {
  test("are counted from the end across chunks", () => {
    const chunks = ["a\nb", "b\nc\n", "d"].map((text) => chunk(text));
    const last = (count: number) => textOf(lastLines(chunks, count));
    assert.deepEqual([0, 1, 2, 3, 4, 9].map(last), ["", "d", "c\nd", "bb\nc\nd", "a\nbb\nc\nd", "a\nbb\nc\nd"]);
  });

  test("match a pattern as a whole, wherever they are split, and per stream", () => {
    const text = "skip\r\nkeep é one\r\nother\nkeep two";
    const bytes = Buffer.from(text);
    for (let at = 0; at <= bytes.length; at++) {
      const filter = new LineFilter(/^keep . one$|two$/u);
      const selected = [bytes.subarray(0, at), bytes.subarray(at)].flatMap((part) =>
        filter.push({ stream: "stdout", chunk: part, timeMs: 0 }),
      );
      assert.equal(textOf([...selected, ...filter.flush()]), "keep é one\r\nkeep two");
    }
    const filter = new LineFilter(/ab/);
    const selected = [chunk("a"), chunk("x\n", "stderr"), chunk("b\n")].flatMap((one) => filter.push(one));
    assert.equal(textOf(selected), "ab\n");
  });

  test("are ended at 1 MiB if no line feed arrives", () => {
    const filter = new LineFilter(/x/);
    const selected = Array.from({ length: 17 }, () => filter.push(chunk("x".repeat(64 * 1024)))).flat();
    assert.equal(textOf(selected).length, 1024 * 1024);
  });

  test("start with the time of their first byte", () => {
    const stamps = new LineTimestamps();
    const written = [chunk("a", "stdout", 1000), chunk("b\nc", "stdout", 2000), chunk("d\n", "stderr", 3000)];
    assert.deepEqual(
      written.map((one) => Buffer.from(stamps.push(one)).toString()),
      ["1970-01-01T00:00:01.000Z a", "b\n1970-01-01T00:00:02.000Z c", "1970-01-01T00:00:03.000Z d\n"],
    );
  });
});
