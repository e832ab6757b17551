import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { MemoryBudget } from "../../../src/async/memory-budget.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { PrincipalMemories } from "../../../src/exec/log/principal-memory.ts";
import { RetentionBudget } from "../../../src/exec/log/retention-budget.ts";

function setUp(quotaBytes: number, maxBytes = 4000, retainedBytes = 400) {
  const memory = new MemoryBudget(maxBytes);
  const retention = new RetentionBudget(maxBytes / 2, memory);
  const snapshots = new RetentionBudget(maxBytes / 4, memory, "caches");
  const memories = new PrincipalMemories(quotaBytes, memory, { retention, snapshots });
  const log = (ownerId: string) => {
    const budgets = memories.forLog(ownerId);
    const limits = { retainedBytes, headBytes: 10, tailBytes: 10 };
    return new EventLog({ budget: budgets.retention, snapshotBudget: budgets.snapshots, limits });
  };
  return { memory, retention, memories, log };
}

const fill = (log: EventLog, bytes: number) => {
  for (let at = 0; at < bytes; at += 50) log.append("stdout", new Uint8Array(50));
};

test("a principal above its quota evicts its own output, and another principal keeps its output", () => {
  const { retention, log } = setUp(1000);
  const [ofBob, ...ofAlice] = [log("bob"), log("alice"), log("alice"), log("alice")];
  assert.ok(ofBob);
  fill(ofBob, 300);
  for (const one of ofAlice) fill(one, 400);
  assert.equal(ofBob.retainedBytes, 300);
  const bytes = ofAlice.reduce((sum, { retainedBytes }) => sum + retainedBytes, 0);
  assert.ok(bytes <= 500 && bytes > 250, `${bytes} bytes`);
  assert.equal(retention.bytes, bytes + 300);
});

test("under pressure of the server, a principal below an equal part keeps its output, also of closed processes", () => {
  // Each principal may use all, so only the limit of the server evicts.
  const { memory, log } = setUp(4000);
  const ofBob = log("bob");
  fill(ofBob, 200);
  ofBob.closed();
  const ofAlice = Array.from({ length: 8 }, () => log("alice"));
  for (const one of ofAlice) fill(one, 400);
  assert.equal(ofBob.retainedBytes, 200);
  memory.charge(3500);
  assert.equal(ofBob.retainedBytes, 200);
});

test("under pressure of the server, a principal without others evicts its output", () => {
  const { memory, retention, log } = setUp(4000);
  const ofAlice = Array.from({ length: 4 }, () => log("alice"));
  for (const one of ofAlice) fill(one, 400);
  assert.equal(retention.bytes, 1600);
  memory.charge(3500);
  assert.equal(retention.bytes, 500);
});

test("full memory of a principal pauses only the processes of that principal", () => {
  const { memories, log } = setUp(1_000_000, 4_000_000, 200_000);
  const logs = [log("alice"), log("bob")];
  using connection = memories.open("alice");
  for (const one of logs) {
    one.cursor({ lossless: true });
    one.append("stdout", new Uint8Array(50_000));
    one.append("stdout", new Uint8Array(50_000));
  }
  assert.deepEqual(
    logs.map((one) => one.isPaused),
    [false, false],
  );
  connection.budget.charge(1_000_000);
  assert.deepEqual(
    logs.map((one) => one.isPaused),
    [true, false],
  );
  for (const one of logs) one.dispose();
});

test("all bytes and principals are released in any order of connections, output and ends", () => {
  const step = fc.record({
    owner: fc.constantFrom("alice", "bob", "carol"),
    action: fc.constantFrom("connect", "start", "append", "append", "close", "hold", "dispose", "disconnect"),
    size: fc.integer({ min: 1, max: 300 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const { memory, retention, memories, log } = setUp(1000);
      const connections: { owner: string; open: Disposable }[] = [];
      const logs: { owner: string; log: EventLog }[] = [];
      for (const { owner, action, size } of steps) {
        const own = logs.find((entry) => entry.owner === owner);
        if (action === "connect") connections.push({ owner, open: memories.open(owner) });
        if (action === "start") logs.push({ owner, log: log(owner) });
        if (action === "append") own?.log.append("stdout", new Uint8Array(size));
        if (action === "close") own?.log.closed();
        if (action === "hold") own?.log.cursor({ lossless: true });
        if (action === "dispose" && own) {
          logs.splice(logs.indexOf(own), 1);
          own.log.dispose();
        }
        const open = connections.findIndex((entry) => entry.owner === owner);
        if (action === "disconnect" && open >= 0) connections.splice(open, 1)[0]?.open[Symbol.dispose]();
        assert.equal(
          retention.bytes,
          logs.reduce((sum, entry) => sum + entry.log.retainedBytes, 0),
        );
        assert.equal(memories.size, new Set([...connections, ...logs].map((entry) => entry.owner)).size);
      }
      for (const { log: one } of logs) one.dispose();
      for (const { open } of connections) open[Symbol.dispose]();
      assert.deepEqual([memories.size, memory.bytes, retention.bytes], [0, 0, 0]);
    }),
    { numRuns: 300 },
  );
});
