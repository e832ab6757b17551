import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ExecEvent } from "../../src/exec/exec-process.ts";
import { EventLog } from "../../src/exec/log/event-log.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const exit = { exitCode: 0, signal: null, reason: "exited", sandboxDenied: false } as const;

async function all(log: EventLog, afterSeq = 0): Promise<string[]> {
  const seen: string[] = [];
  for await (const event of log.events({ afterSeq })) seen.push(describeEvent(event));
  return seen;
}

function describeEvent(event: ExecEvent): string {
  switch (event.type) {
    case "output":
      return `${event.seq} ${new TextDecoder().decode(event.chunk)}`;
    case "gap":
      return `gap ${event.fromSeq}-${event.toSeq} ${event.bytes}`;
    case "failed":
      return `failed ${event.message}`;
    default:
      return `${event.seq} ${event.type}`;
  }
}

describe("an event log with gaps", () => {
  function logWithHole(): EventLog {
    const log = new EventLog();
    log.append("stdout", bytes("a"));
    log.addGap(4, 30);
    log.append("stdout", bytes("b"));
    log.exited(exit);
    log.closed();
    return log;
  }

  test("reports a gap between retained chunks in order", async () => {
    assert.deepEqual(await all(logWithHole()), ["1 a", "gap 2-4 30", "5 b", "6 exited", "7 closed"]);
  });

  test("reports only the rest of a gap to a subscriber inside it", async () => {
    assert.deepEqual(await all(logWithHole(), 3), ["gap 4-4 30", "5 b", "6 exited", "7 closed"]);
    assert.deepEqual(logWithHole().read({ afterSeq: 3 }).gap, { fromSeq: 4, toSeq: 4, bytes: 30 });
  });

  test("counts the bytes of an evicted gap", async () => {
    const log = new EventLog({ limits: { retainedBytes: 4 }, isReplica: true });
    log.append("stdout", bytes("ab"));
    log.addGap(4, 30);
    for (const text of ["cd", "ef", "gh"]) log.append("stdout", bytes(text));
    log.exited(exit);
    log.closed();
    assert.deepEqual(await all(log), ["gap 1-5 34", "6 ef", "7 gh", "8 exited", "9 closed"]);
    assert.deepEqual(log.read({ afterSeq: 1 }).gap, { fromSeq: 2, toSeq: 5, bytes: 32 });
    assert.equal(log.retainedBytes, 4);
  });

  test("ends a read before a gap, which the next read returns", () => {
    const log = logWithHole();
    const first = log.read();
    assert.deepEqual(
      first.chunks.map((chunk) => chunk.seq),
      [1],
    );
    assert.equal(first.nextSeq, 2);
    assert.equal(first.gap, undefined);
    const second = log.read({ afterSeq: first.nextSeq - 1 });
    assert.deepEqual(second.gap, { fromSeq: 2, toSeq: 4, bytes: 30 });
    assert.deepEqual(
      second.chunks.map((chunk) => chunk.seq),
      [5],
    );
    assert.equal(second.nextSeq, 8);
  });

  test("loses nothing after a gap in a read with maxBytes", () => {
    const log = logWithHole();
    const result = log.read({ afterSeq: 1, maxBytes: 0 });
    assert.deepEqual(result.gap, { fromSeq: 2, toSeq: 4, bytes: 30 });
    const rest = log.read({ afterSeq: result.nextSeq - 1, maxBytes: 0 });
    assert.deepEqual([...result.chunks, ...rest.chunks].map((chunk) => chunk.seq).at(-1), 5);
  });

  test("reports an exit between evicted chunks in order", async () => {
    const log = new EventLog({ limits: { retainedBytes: 2 } });
    log.append("stdout", bytes("aa"));
    log.exited(exit);
    log.append("stdout", bytes("bb"));
    log.append("stdout", bytes("cc"));
    log.closed();
    assert.deepEqual(await all(log), ["gap 1-1 2", "2 exited", "gap 3-3 2", "4 cc", "5 closed"]);
  });
});

describe("a replica of an event log", () => {
  test("does not split large chunks, so that sequence numbers stay the same", () => {
    const log = new EventLog({ isReplica: true, limits: { retainedBytes: 100 } });
    log.append("stdout", new Uint8Array(50_000));
    assert.equal(log.nextSeq, 2);
    const own = new EventLog({ limits: { retainedBytes: 100 } });
    own.append("stdout", new Uint8Array(50_000));
    assert.ok(own.nextSeq > 2);
  });
});
