import assert from "node:assert/strict";
import { test } from "node:test";
import type { ExecEvent } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import type { RestoredEvent } from "../../../src/local/persistent/persistent-child.ts";
import { decodeRecord, encodeRecord } from "../../../src/local/persistent/persistent-record.ts";
import { restoreEventLog } from "../../../src/local/persistent/restore-event-log.ts";

const owner = { sessionId: "s", ownerId: "local", handle: "abcdefghijkl" };
const params = { processId: "p", argv: ["x"], cwd: "/", tty: false, lifetime: "persistent" } as const;

test("decodeRecord decodes the record of a persistent process, which excludes the environment", () => {
  const secret = { ...params, argv: ["x"], env: { TOKEN: "secret" } };
  const text = encodeRecord(owner, 5, secret);
  assert.doesNotMatch(text, /secret/);
  const read = decodeRecord(text);
  assert.equal(read?.handle, owner.handle);
  assert.deepEqual([read?.startedAtMs, read?.params.argv], [5, ["x"]]);
});

test("decodeRecord decodes name and labels of a persistent process", () => {
  const labels = { team: "x" };
  const read = decodeRecord(encodeRecord(owner, 5, { ...params, argv: ["x"], name: "api", labels }));
  assert.deepEqual([read?.params.name, read?.params.labels], ["api", labels]);
});

test("decodeRecord rejects a record of another version and an invalid record", () => {
  const text = encodeRecord(owner, 5, { ...params, argv: ["x"] });
  assert.equal(decodeRecord(text.replace('"version":"2"', '"version":"1"')), null);
  assert.equal(decodeRecord(text.replace('"cwd":"/"', '"cwd":7')), null);
  assert.equal(decodeRecord(text.slice(1)), null);
});

/** Returns the events of a log that was restored from these entries. */
function restoredEvents(
  evicted: { seq: number; bytes: number },
  entries: RestoredEvent[],
  exitSeq: number | null,
): ExecEvent[] {
  const log = new EventLog();
  const status = { exitCode: 3, signal: null, reason: "exited", sandboxDenied: false } as const;
  const exit = exitSeq === null ? null : { seq: exitSeq, status };
  restoreEventLog(log, { evicted, entries, exit });
  const cursor = log.cursor();
  const events: ExecEvent[] = [];
  for (let event = cursor.next(); event; event = cursor.next()) events.push(event);
  return events;
}

const output = (seq: number): RestoredEvent => ({
  type: "output",
  seq,
  stream: "stdout",
  chunk: Buffer.from("x"),
});

test("restoreEventLog restores events under their sequence numbers, evicted output as a gap and a lost read as a gap of unknown size", () => {
  const events = restoredEvents({ seq: 2, bytes: 20 }, [output(3), { type: "gap", seq: 4 }, output(5)], null);
  assert.deepEqual(
    events.map((event) => (event.type === "gap" ? [event.fromSeq, event.toSeq, event.bytes] : event.type)),
    [[1, 2, 20], "output", [4, 4, null], "output"],
  );
});

test("restoreEventLog restores an exit under its sequence number although the events around it were evicted", () => {
  const types = (events: ExecEvent[]) =>
    events.map((event) => ("seq" in event ? `${event.type} ${event.seq}` : event.type));
  const whole: RestoredEvent[] = [output(1), { type: "exited", seq: 2 }, output(3), { type: "closed", seq: 4 }];
  assert.deepEqual(types(restoredEvents({ seq: 0, bytes: 0 }, whole, 2)), [
    "output 1",
    "exited 2",
    "output 3",
    "closed 4",
  ]);
  assert.deepEqual(types(restoredEvents({ seq: 5, bytes: 9 }, [output(6)], 3)), ["gap", "exited 3", "gap", "output 6"]);
});
