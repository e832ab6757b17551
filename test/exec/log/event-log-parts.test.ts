import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { HeadTailBuffer } from "../../../src/exec/log/head-tail-buffer.ts";
import { takeSnapshot, toListing } from "../../../src/exec/log/log-views.ts";
import { type Evictable, RetentionBudget } from "../../../src/exec/log/retention-budget.ts";
import { SizeHistory } from "../../../src/exec/log/size-history.ts";
import { SnapshotBuffers } from "../../../src/exec/log/snapshot-buffers.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const EXIT = { exitCode: 3, signal: "SIGTERM", reason: "exited", sandboxDenied: true } as const;
const KIB = 1024;

const append = (log: EventLog, bytes: number) => log.append("stdout", new Uint8Array(bytes));

describe("EventCursor", () => {
  test("moves the pin of a lossless reader with output, gaps and acknowledgements", () => {
    const log = new EventLog({ limits: { retainedBytes: 10 }, isReplica: true });
    const cursor = log.cursor({ lossless: true });
    for (let count = 0; count < 3; count++) append(log, 10);
    log.addGap(4, 7);
    append(log, 10);
    assert.deepEqual([log.retainedBytes, log.isPaused], [40, true]);
    cursor.next();
    assert.deepEqual([cursor.seq, cursor.offset, log.retainedBytes], [1, 10, 30]);
    cursor.advanceTo(3);
    assert.deepEqual([cursor.seq, cursor.offset, log.retainedBytes], [3, 30, 10]);
    assert.equal(cursor.next()?.type, "gap");
    assert.deepEqual([cursor.seq, cursor.offset], [4, 37]);
    cursor.advanceTo(2);
    assert.equal(cursor.seq, 4);
    cursor.advanceTo(99);
    assert.deepEqual([cursor.seq, cursor.offset, log.isPaused], [5, 47, false]);
  });

  test("lets the producer resume when exactly half of the retention is pinned", () => {
    const log = new EventLog({ limits: { retainedBytes: 100 }, isReplica: true });
    const cursor = log.cursor({ lossless: true });
    append(log, 50);
    append(log, 49);
    assert.equal(log.isPaused, false);
    append(log, 1);
    assert.equal(log.isPaused, true);
    cursor.next();
    assert.equal(log.isPaused, false);
    const chunks = new EventLog({ limits: { retainedChunks: 4 } });
    const slow = chunks.cursor({ lossless: true });
    for (let count = 0; count < 4; count++) append(chunks, 1);
    assert.equal(chunks.isPaused, true);
    slow.next();
    assert.equal(chunks.isPaused, true);
    slow.next();
    assert.equal(chunks.isPaused, false);
  });

  test("does not pin as a lossy reader", () => {
    const log = new EventLog({ limits: { retainedBytes: 10 }, isReplica: true });
    const cursor = log.cursor();
    append(log, 10);
    append(log, 10);
    assert.deepEqual([log.retainedBytes, log.isPaused], [10, false]);
    assert.equal(cursor.next()?.type, "gap");
    assert.equal(cursor.offset, 10);
  });

  test("evicts pinned output on close, once", () => {
    const log = new EventLog({ limits: { retainedBytes: 10 }, isReplica: true });
    const cursor = log.cursor({ lossless: true });
    append(log, 10);
    append(log, 10);
    cursor.close();
    assert.deepEqual([log.retainedBytes, cursor.ended], [10, true]);
    assert.equal(cursor.next(), null);
    assert.equal(cursor.nextBytes, 0);
    cursor.close();
  });

  test("knows the bytes of the next output, and ends after closed, failed or a closed log", () => {
    const log = new EventLog();
    const cursor = log.cursor();
    assert.equal(cursor.nextBytes, 0);
    append(log, 5);
    assert.equal(cursor.nextBytes, 5);
    cursor.next();
    log.exited(EXIT);
    assert.equal(cursor.nextBytes, 0);
    assert.equal(cursor.next()?.type, "exited");
    assert.equal(cursor.seq, 2);
    assert.equal(cursor.next(), null);
    assert.equal(cursor.ended, false);
    log.closed();
    assert.equal(cursor.next()?.type, "closed");
    assert.deepEqual([cursor.seq, cursor.ended], [3, true]);
    const late = log.cursor({ afterSeq: 3 });
    assert.equal(late.ended, false);
    assert.equal(late.next(), null);
    assert.equal(late.ended, true);
    const failed = new EventLog();
    failed.fail(new ExecServerError("lost", "FAILED"));
    const reader = failed.cursor();
    assert.equal(reader.next()?.type, "failed");
    assert.equal(reader.ended, true);
  });
});

describe("EventLog", () => {
  test("returns arrival times and its age since the start", async () => {
    const clock = new ManualClock();
    const log = new EventLog({ clock });
    await clock.advance(5);
    append(log, 1);
    await clock.advance(7);
    append(log, 1);
    await clock.advance(8);
    const { times, ageMs } = log.read({ times: true });
    assert.deepEqual([times, ageMs, log.ageMs, log.lastEventAtMs], [[5, 12], 20, 20, clock.monotonic() - 8]);
    assert.deepEqual(log.read({ times: true, afterSeq: 1 }).times, [12]);
    assert.equal(log.read().times, undefined);
  });

  test("returns the exit, the end and the failure with each read", () => {
    const log = new EventLog();
    const before = log.read();
    assert.deepEqual([before.exited, before.exitCode, before.closed, before.failure], [false, null, false, null]);
    assert.equal(before.sandboxDenied, false);
    log.exited(EXIT);
    log.exited({ ...EXIT, exitCode: 4 });
    const after = log.read();
    assert.deepEqual([after.exited, after.exitCode, after.sandboxDenied, after.nextSeq], [true, 3, true, 2]);
    log.fail(new ExecServerError("lost", "FAILED"));
    log.closed();
    append(log, 1);
    log.addGap(9, 1);
    const failed = log.read();
    assert.deepEqual([failed.closed, failed.failure, failed.nextSeq], [true, "lost", 2]);
  });

  test("ignores everything after closed and after its disposal", () => {
    const log = new EventLog();
    append(log, 1);
    log.closed();
    log.closed();
    log.exited(EXIT);
    log.fail(new ExecServerError("lost", "FAILED"));
    log.addGap(9, 1);
    assert.equal(append(log, 1), "copied");
    assert.deepEqual([log.nextSeq, log.exit, log.failure], [3, null, null]);
    const disposed = new EventLog();
    append(disposed, 5);
    const cursor = disposed.cursor();
    disposed.dispose();
    disposed.dispose();
    append(disposed, 5);
    disposed.addGap(9, 1);
    assert.deepEqual([disposed.retainedBytes, disposed.nextSeq, cursor.ended], [0, 2, true]);
    assert.equal(disposed.headTail("stdout").totalBytes, 0);
  });

  test("splits a chunk larger than a quarter of the retention, but not below 4 KiB", () => {
    const large = new EventLog({ limits: { retainedBytes: 64 * KIB } });
    append(large, 16 * KIB);
    assert.equal(large.nextSeq, 2);
    append(large, 16 * KIB + 1);
    assert.equal(large.nextSeq, 4);
    const small = new EventLog({ limits: { retainedBytes: 4 * KIB } });
    append(small, 4 * KIB);
    assert.equal(small.nextSeq, 2);
    append(small, 4 * KIB + 1);
    assert.equal(small.nextSeq, 4);
    assert.equal(append(small, 0), "copied");
    assert.equal(small.nextSeq, 4);
  });

  test("retains as many chunks as allowed", () => {
    const log = new EventLog({ limits: { retainedChunks: 2 } });
    for (let count = 0; count < 3; count++) append(log, 1);
    assert.equal(log.retainedBytes, 2);
    assert.deepEqual(log.read().gap, { fromSeq: 1, toSeq: 1, bytes: 1 });
  });

  test("waits for a change until the timeout, the abort or the next event", async () => {
    const clock = new ManualClock();
    const log = new EventLog({ clock });
    let wakes = 0;
    const wait = (options: Parameters<EventLog["nextChange"]>[0]) => void log.nextChange(options).then(() => wakes++);
    const controller = new AbortController();
    wait({ timeoutMs: 10 });
    wait({ signal: controller.signal });
    wait({});
    await clock.advance(10);
    assert.equal(wakes, 1);
    controller.abort();
    await clock.advance(0);
    assert.equal(wakes, 2);
    wait({ timeoutMs: 10, signal: controller.signal });
    await clock.advance(0);
    assert.equal(wakes, 3);
    wait({ timeoutMs: 10 });
    append(log, 1);
    await clock.advance(0);
    assert.deepEqual([wakes, clock.pendingTimers], [5, 0]);
  });

  test("rejects a read whose signal aborts, but only ends its wait on a disconnect", async () => {
    const log = new EventLog();
    const reason = new Error("enough");
    await assert.rejects(log.readWaiting({ waitMs: 5, signal: AbortSignal.abort(reason) }), reason);
    const controller = new AbortController();
    const reading = log.readWaiting({ waitMs: 60_000, signal: controller.signal });
    controller.abort(reason);
    await assert.rejects(reading, reason);
    assert.equal((await log.readWaiting({ waitMs: 60_000 }, { disconnected: AbortSignal.abort(reason) })).nextSeq, 1);
  });

  test("has smaller snapshots with a smaller retention, unless their limits are given", () => {
    const bytesOf = (limits: object) => {
      const log = new EventLog({ limits, isReplica: true });
      append(log, 100 * KIB);
      return log.headTail("stdout").bytes().length;
    };
    assert.equal(bytesOf({ retainedBytes: 20 * KIB }), 20 * KIB);
    assert.equal(bytesOf({ retainedBytes: 1 }), 8 * KIB);
    assert.equal(bytesOf({ retainedBytes: 1, headBytes: KIB, tailBytes: 2 * KIB }), 3 * KIB);
    assert.equal(bytesOf({}), 100 * KIB);
  });

  test("is the source of snapshots and listings", () => {
    const log = new EventLog({ limits: { headBytes: 2, tailBytes: 2 } });
    log.append("stdout", Buffer.from("abcdef"));
    log.append("stderr", Buffer.from("uvwxyz"));
    log.append("pty", Buffer.from("123456"));
    const running = takeSnapshot(log, true);
    assert.deepEqual(
      [running.stdout, running.stderr, running.terminal].map((bytes) => Buffer.from(bytes).toString()),
      ["abef", "uvyz", "1256"],
    );
    assert.deepEqual([running.truncated, running.omittedBytes, running.totalBytes], [true, 6, 18]);
    assert.deepEqual([running.exitCode, running.signal, running.running], [null, null, true]);
    assert.equal(takeSnapshot(new EventLog(), true).truncated, false);
    log.exited(EXIT);
    const { exitCode, signal } = takeSnapshot(log, false);
    assert.deepEqual([exitCode, signal], [3, "SIGTERM"]);
    const listed = { processId: "p", params: null, pid: 7, running: false, startedAtMs: 5, log };
    assert.deepEqual(toListing(listed), {
      ...{ processId: "p", pid: 7, running: false, startedAtMs: 5, argv: [], cwd: "", tty: false },
      ...{ exitCode: 3, signal: "SIGTERM", outputBytes: 18, name: undefined, labels: undefined },
    });
  });
});

describe("a log that owns its chunks", () => {
  /** Fills a log and returns the sizes of its chunks: 0 once their memory is free. */
  function setUp() {
    const limits = { retainedBytes: 256 * KIB, headBytes: 64 * KIB, tailBytes: 128 * KIB };
    const log = new EventLog({ ownsChunks: true, limits });
    const chunks = Array.from({ length: 8 }, (_, at) => new Uint8Array(64 * KIB).fill(at));
    for (const chunk of chunks) log.append("stdout", chunk);
    return { log, sizes: () => chunks.map(({ length }) => length / KIB) };
  }

  test("frees evicted chunks that no snapshot refers to", () => {
    const { log, sizes } = setUp();
    assert.deepEqual(sizes(), [64, 0, 0, 0, 64, 64, 64, 64]);
    log.evictTo(0);
    assert.deepEqual(sizes(), [64, 0, 0, 0, 0, 0, 64, 64]);
    const [head, tail] = [log.headTail("stdout").head(), log.headTail("stdout").tail()];
    assert.deepEqual([head[0], tail[0], tail.at(-1), tail.length], [0, 6, 7, 128 * KIB]);
  });

  test("frees all chunks on disposal", () => {
    const { log, sizes } = setUp();
    log.dispose();
    assert.deepEqual(sizes(), [0, 0, 0, 0, 0, 0, 0, 0]);
  });

  test("frees an evicted chunk when the snapshot drops it, but no chunk that a reader keeps", () => {
    const { log, sizes } = setUp();
    log.evictTo(0);
    log.append("stdout", new Uint8Array(64 * KIB));
    assert.deepEqual(sizes(), [64, 0, 0, 0, 0, 0, 0, 64]);
    log.dispose();
    assert.deepEqual(sizes(), [0, 0, 0, 0, 0, 0, 0, 0]);
    const other = setUp();
    other.log.read();
    other.log.evictTo(0);
    other.log.dispose();
    assert.deepEqual(other.sizes(), [64, 0, 0, 0, 64, 64, 64, 64]);
  });
});

describe("HeadTailBuffer", () => {
  const filled = (...chunks: number[]) => {
    const buffer = new HeadTailBuffer({ headBytes: 100 * KIB, tailBytes: 100 * KIB });
    let next = 0;
    for (const bytes of chunks) buffer.push(new Uint8Array(bytes).map(() => next++ & 255));
    return buffer;
  };

  test("shrinks both ends to half, and never grows", () => {
    const buffer = filled(100 * KIB, 100 * KIB);
    const [head, tail] = [buffer.head(), buffer.tail()];
    buffer.shrinkTo(20 * KIB);
    assert.deepEqual(buffer.head(), head.subarray(0, 10 * KIB));
    assert.deepEqual(buffer.tail(), tail.subarray(90 * KIB));
    assert.deepEqual([buffer.omittedBytes, buffer.retainedBytes], [180 * KIB, 20 * KIB]);
    buffer.shrinkTo(40 * KIB);
    assert.equal(buffer.retainedBytes, 20 * KIB);
    buffer.push(new Uint8Array(KIB));
    assert.equal(buffer.head().length, 10 * KIB);
    const small = filled(5 * KIB);
    small.shrinkTo(20 * KIB);
    small.push(new Uint8Array(20 * KIB));
    assert.deepEqual([small.head().length, small.tail().length], [10 * KIB, 10 * KIB]);
    const odd = filled(10);
    odd.shrinkTo(5);
    assert.equal(odd.head().length, 3);
  });

  test("reports referenced chunks that it drops, once it holds no part of them", () => {
    const dropped: number[] = [];
    const limits = { headBytes: 56 * KIB, tailBytes: 100 * KIB };
    const buffer = new HeadTailBuffer(limits, (_, seq) => dropped.push(seq));
    for (let seq = 1; seq <= 4; seq++) buffer.push(Buffer.alloc(32 * KIB, seq), seq);
    buffer.push(Buffer.alloc(KIB, 5), 5);
    assert.deepEqual(dropped, []);
    for (let seq = 6; seq <= 7; seq++) buffer.push(Buffer.alloc(32 * KIB, seq), seq);
    // The head holds a part of the second chunk.
    assert.deepEqual(dropped, []);
    buffer.push(Buffer.alloc(32 * KIB, 8), 8);
    assert.deepEqual(dropped, [3]);
    assert.deepEqual([buffer.head().at(-1), buffer.tail()[0], buffer.tail().at(-1)], [2, 4, 8]);
    buffer.shrinkTo(20 * KIB);
    assert.deepEqual(dropped, [3, 4, 6, 7, 8, 2, 1]);
    assert.deepEqual([buffer.head().length, buffer.tail().length], [10 * KIB, 10 * KIB]);
    buffer.clear();
    assert.equal(buffer.retainedBytes, 0);
  });

  test("keeps a large chunk by reference, and copies a small view of a large buffer", () => {
    const large = new Uint8Array(32 * KIB);
    const byReference = new HeadTailBuffer({ headBytes: 64 * KIB, tailBytes: 0 });
    byReference.push(large);
    assert.equal(byReference.head().length, 32 * KIB);
    const view = new Uint8Array(40 * KIB).subarray(0, 20 * KIB);
    const copying = new HeadTailBuffer({ headBytes: 64 * KIB, tailBytes: 0 });
    copying.push(view);
    view.fill(9);
    assert.equal(copying.head()[0], 0);
    const small = new Uint8Array(16 * KIB - 1);
    copying.push(small);
    small.fill(9);
    assert.equal(copying.head()[20 * KIB], 0);
    const referenced = new Uint8Array(16 * KIB);
    copying.push(referenced);
    referenced.fill(9);
    assert.equal(copying.head().at(-1), 9);
  });
});

describe("SnapshotBuffers", () => {
  test("shrinks each stream to its share, at least 8 KiB together, and leaves its budget on disposal", () => {
    const left: Evictable[] = [];
    class RecordingBudget extends RetentionBudget {
      override leave(log: Evictable): void {
        left.push(log);
        super.leave(log);
      }
    }
    const budget = new RecordingBudget(1_000_000);
    const limits = { headBytes: 50 * KIB, tailBytes: 50 * KIB };
    const buffers = new SnapshotBuffers({ limits, budget, isClosed: () => false });
    for (const stream of ["stdout", "stderr"] as const) buffers.get(stream).push(new Uint8Array(50 * KIB));
    buffers.count();
    assert.deepEqual([buffers.retainedBytes, budget.bytes], [100 * KIB, 100 * KIB]);
    buffers.evictTo(40 * KIB);
    assert.deepEqual([buffers.retainedBytes, budget.bytes], [20 * KIB, 20 * KIB]);
    buffers.evictTo(0);
    assert.equal(buffers.retainedBytes, 4 * KIB);
    assert.equal(buffers.isClosed, false);
    const exact = new SnapshotBuffers({ limits, budget: undefined, isClosed: () => false });
    exact.get("stdout").push(new Uint8Array(8 * KIB));
    exact.count();
    exact.evictTo(8 * KIB);
    assert.equal(exact.get("stdout").head().length, 8 * KIB, "a stream within its share keeps its limits");
    buffers.dispose();
    assert.deepEqual([buffers.retainedBytes, budget.bytes, left], [0, 0, [buffers]]);
  });
});

describe("SizeHistory", () => {
  const size = (cols: number) => ({ rows: 1, cols });
  const change = (cols: number, afterSeq: number) => ({ size: size(cols), afterSeq, atMs: afterSeq });

  test("returns the size for each sequence number, and replaces a change with the same `afterSeq`", () => {
    const history = new SizeHistory();
    assert.deepEqual([history.last, history.at(1), history.lastNumber], [null, null, 0]);
    let changes = 0;
    const stop = history.listen(() => changes++);
    history.add(change(10, 0));
    history.add(change(30, 5));
    history.add(change(20, 3));
    assert.deepEqual(history.changesSince(0), [change(10, 0), change(20, 3), change(30, 5)]);
    history.add(change(31, 5));
    assert.deepEqual(
      [0, 1, 3, 4, 5, 6].map((seq) => history.at(seq)?.cols),
      [10, 10, 10, 20, 20, 31],
    );
    assert.deepEqual([history.last, history.lastNumber, changes], [size(31), 4, 4]);
    assert.deepEqual(history.changesSince(0), [change(10, 0), change(20, 3), change(31, 5)]);
    assert.deepEqual(history.changesSince(2), [change(20, 3), change(31, 5)]);
    assert.deepEqual(history.changesSince(3), [change(31, 5)]);
    stop();
    history.add(change(40, 9));
    assert.equal(changes, 4);
  });

  test("remembers the last 256 changes", () => {
    const history = new SizeHistory();
    for (let seq = 0; seq < 256; seq++) history.add(change(seq, seq));
    assert.equal(history.at(1)?.cols, 0);
    history.add(change(256, 256));
    assert.deepEqual([history.at(1)?.cols, history.changesSince(0).length], [1, 256]);
  });
});

describe("RetentionBudget", () => {
  class FakeLog implements Evictable {
    retainedBytes = 0;
    isClosed = false;
    checks = 0;
    readonly targets: number[] = [];
    readonly #budget: RetentionBudget;

    constructor(budget: RetentionBudget) {
      this.#budget = budget;
      budget.join(this);
    }

    grow(bytes: number): void {
      this.retainedBytes += bytes;
      this.#budget.grow(bytes);
    }

    evictTo(bytes: number): void {
      this.targets.push(bytes);
      const freed = this.retainedBytes - bytes;
      this.retainedBytes = bytes;
      this.#budget.shrink(freed);
    }

    rebalance(): void {
      this.checks++;
    }
  }

  test("evicts above its maximum down to seven eighths, the largest logs first", () => {
    const budget = new RetentionBudget(1600);
    const [small, large] = [new FakeLog(budget), new FakeLog(budget)];
    small.grow(400);
    large.grow(1200);
    assert.deepEqual([large.targets, budget.bytes], [[], 1600]);
    small.grow(1);
    assert.deepEqual([large.targets, small.targets, budget.bytes], [[600], [], 1001]);
  });

  test("retries an eviction that pinned output prevented after a sixteenth more, or once it was below its maximum", () => {
    const budget = new RetentionBudget(1600);
    const log = new FakeLog(budget);
    let evictions = 0;
    log.evictTo = () => void evictions++;
    log.grow(1601);
    const first = evictions;
    assert.ok(first > 0);
    log.grow(100);
    assert.equal(evictions, first);
    log.grow(1);
    const second = evictions;
    assert.ok(second > first);
    budget.shrink(102);
    log.grow(1);
    assert.ok(evictions > second);
  });

  test("makes all logs check their backpressure when a sixteenth more or less is pinned", () => {
    const budget = new RetentionBudget(16_000_000);
    const log = new FakeLog(budget);
    assert.equal(budget.pinnableBytes, 16_000_000);
    budget.pin(999_999);
    assert.equal(log.checks, 0);
    budget.pin(1);
    assert.deepEqual([log.checks, budget.pinnableBytes], [1, 15_000_000]);
    budget.pin(-999_999);
    assert.equal(log.checks, 1);
    budget.pin(-1);
    assert.equal(log.checks, 2);
    budget.pin(16_000_000);
    assert.equal(budget.pinnableBytes, 64 * KIB);
    budget.leave(log);
    budget.pin(-16_000_000);
    assert.equal(log.checks, 3);
  });
});
