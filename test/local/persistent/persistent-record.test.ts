import assert from "node:assert/strict";
import { test } from "node:test";
import type { ExecEvent } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import type { KeptEntry } from "../../../src/local/kept-child.ts";
import { readRecord, writeRecord } from "../../../src/local/persistent/persistent-record.ts";
import { restoreLog } from "../../../src/local/persistent/restore-event-log.ts";

const owner = { sessionId: "s", ownerId: "local", handle: "abcdefghijkl" };
const params = { processId: "p", argv: ["x"], cwd: "/", tty: false, lifetime: "kept" } as const;

test("a record is read as it was written, without an environment", () => {
  const secret = { ...params, argv: ["x"], env: { TOKEN: "secret" } };
  const text = writeRecord(owner, 5, secret);
  assert.doesNotMatch(text, /secret/);
  const read = readRecord(text);
  assert.equal(read?.handle, owner.handle);
  assert.deepEqual([read?.startedAtMs, read?.params.argv], [5, ["x"]]);
});

test("a record of another version, or an invalid one, is refused", () => {
  const text = writeRecord(owner, 5, { ...params, argv: ["x"] });
  assert.equal(readRecord(text.replace('"version":"1"', '"version":"2"')), null);
  assert.equal(readRecord(text.replace('"cwd":"/"', '"cwd":7')), null);
  assert.equal(readRecord(text.slice(1)), null);
});

/** The events of a log with these entries. */
function told(
  gone: { seq: number; bytes: number },
  entries: KeptEntry[],
  exitSeq: number | null,
): ExecEvent[] {
  const log = new EventLog();
  const status = { exitCode: 3, signal: null, reason: "exited", sandboxDenied: false } as const;
  const exit = exitSeq === null ? null : { seq: exitSeq, status };
  restoreLog(log, { gone, entries, exit });
  const cursor = log.cursor();
  const events: ExecEvent[] = [];
  for (let event = cursor.next(); event; event = cursor.next()) events.push(event);
  return events;
}

const output = (seq: number): KeptEntry => ({
  type: "output",
  seq,
  stream: "stdout",
  chunk: Buffer.from("x"),
});

test("events of earlier servers keep their seqs: lost output is a gap of its size, a lost read one of unknown size", () => {
  const events = told({ seq: 2, bytes: 20 }, [output(3), { type: "hole", seq: 4 }, output(5)], null);
  assert.deepEqual(
    events.map((event) => (event.type === "gap" ? [event.fromSeq, event.toSeq, event.bytes] : event.type)),
    [[1, 2, 20], "output", [4, 4, null], "output"],
  );
});

test("an exit keeps its place, also when the events around it are gone", () => {
  const types = (events: ExecEvent[]) =>
    events.map((event) => ("seq" in event ? `${event.type} ${event.seq}` : event.type));
  const whole: KeptEntry[] = [output(1), { type: "exited", seq: 2 }, output(3), { type: "closed", seq: 4 }];
  assert.deepEqual(types(told({ seq: 0, bytes: 0 }, whole, 2)), [
    "output 1",
    "exited 2",
    "output 3",
    "closed 4",
  ]);
  assert.deepEqual(types(told({ seq: 5, bytes: 9 }, [output(6)], 3)), ["gap", "exited 3", "gap", "output 6"]);
});
