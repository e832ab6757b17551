import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { freeBuffer } from "../../../src/base/free-buffer.ts";
import type { ExecEvent, ExitStatus } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { RetentionBudget } from "../../../src/exec/log/retention-budget.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const EXIT: ExitStatus = { exitCode: 3, signal: null, reason: "exited", sandboxDenied: false };
const bytes = (text: string) => new TextEncoder().encode(text);
const text = (chunk: Uint8Array) => new TextDecoder().decode(chunk);

/** One word per event, to compare event streams. */
function word(event: ExecEvent): string {
  switch (event.type) {
    case "output":
      return `${event.seq}:${event.stream}:${text(event.chunk)}`;
    case "gap":
      return `gap ${event.fromSeq}-${event.toSeq} (${event.bytes})`;
    case "failed":
      return `failed: ${event.message}`;
    default:
      return `${event.seq}:${event.type}`;
  }
}

function small(limits: Partial<ConstructorParameters<typeof EventLog>[0]> & object = {}) {
  const clock = new ManualClock();
  const log = new EventLog({ clock, limits: { retainedBytes: 10, retainedChunks: 100 }, ...limits });
  return { clock, log };
}

async function collect(log: EventLog, afterSeq = 0): Promise<string[]> {
  const words: string[] = [];
  for await (const event of log.events({ afterSeq })) words.push(word(event));
  return words;
}

describe("EventLog.events", () => {
  test("accepts any retention, also beyond 32 bits", async () => {
    for (const retainedBytes of [0, 1, 2 ** 33, 2 ** 34, Number.MAX_SAFE_INTEGER]) {
      const log = new EventLog({ limits: { retainedBytes } });
      log.append("stdout", bytes("text"));
      log.closed();
      assert.equal(log.totalBytes, 4);
    }
  });

  test("replays to a subscriber after close", async () => {
    const log = new EventLog();
    log.append("stdout", bytes("a"));
    log.append("stderr", bytes("b"));
    log.exited(EXIT);
    log.append("stdout", bytes("late"));
    log.closed();
    const all = ["1:stdout:a", "2:stderr:b", "3:exited", "4:stdout:late", "5:closed"];
    assert.deepEqual(await collect(log), all);
    assert.deepEqual(await collect(log, 3), all.slice(3));
    assert.deepEqual(await collect(log, 99), []);
  });

  test("follows live, and accepts nothing after closed", async () => {
    const log = new EventLog();
    const words = collect(log);
    log.append("pty", bytes("x"));
    await Promise.resolve();
    log.exited(EXIT);
    log.closed();
    log.append("pty", bytes("never"));
    log.exited({ ...EXIT, exitCode: 9 });
    assert.deepEqual(await words, ["1:pty:x", "2:exited", "3:closed"]);
    assert.equal(log.exit?.exitCode, 3);
    assert.equal(log.nextSeq, 4);
  });

  test("ends with failed after all retained output if the process can no longer be tracked", async () => {
    const log = new EventLog();
    log.append("stdout", bytes("x"));
    log.fail(new ExecServerError("gone", "FAILED"));
    log.append("stdout", bytes("never"));
    assert.deepEqual(await collect(log), ["1:stdout:x", "failed: gone"]);
    const read = log.read();
    assert.equal(read.failure, "gone");
    assert.equal(read.closed, true);
  });

  test("throws the signal's reason on abort, and then pins nothing", async () => {
    const { log } = small();
    const stop = new AbortController();
    const words: string[] = [];
    const done = (async () => {
      for await (const event of log.events({ lossless: true, signal: stop.signal })) words.push(word(event));
    })();
    await Promise.resolve();
    stop.abort("no longer wanted");
    await assert.rejects(done, (reason) => reason === "no longer wanted");
    for (let n = 0; n < 100; n++) log.append("stdout", bytes("0123456789"));
    assert.equal(log.retainedBytes, 10);
    assert.deepEqual(words, []);
  });

  test("reports evicted output as a gap, and an exit within it in order", async () => {
    const { log } = small();
    log.append("stdout", bytes("12345"));
    log.append("stdout", bytes("678"));
    log.exited(EXIT);
    log.append("stdout", bytes("abcde"));
    log.append("stdout", bytes("fghijk"));
    log.closed();
    assert.deepEqual(await collect(log), ["gap 1-2 (8)", "3:exited", "gap 4-4 (5)", "5:stdout:fghijk", "6:closed"]);
    assert.deepEqual(await collect(log, 1), ["gap 2-2 (3)", "3:exited", "gap 4-4 (5)", "5:stdout:fghijk", "6:closed"]);
    assert.deepEqual(await collect(log, 3), ["gap 4-4 (5)", "5:stdout:fghijk", "6:closed"]);
  });
});

describe("a lossless subscriber", () => {
  test("pauses the producer at a full retention, resumes at half, and loses nothing", () => {
    const { log } = small();
    const pressure: boolean[] = [];
    log.onBackpressure = (paused) => pressure.push(paused);
    const cursor = log.cursor({ lossless: true });
    for (let n = 0; n < 8; n++) log.append("stdout", bytes(`${n}${n}`));
    assert.deepEqual(pressure, [true]);
    const taken = [0, 1, 2, 3].map(() => cursor.next());
    assert.deepEqual(pressure, [true]);
    taken.push(cursor.next(), cursor.next());
    assert.deepEqual(pressure, [true, false]);
    assert.equal(taken.map((event) => (event?.type === "output" ? text(event.chunk) : "?")).join(""), "001122334455");
  });

  test("does not count output as pinned that was evicted before it started", () => {
    const { log } = small();
    const pressure: boolean[] = [];
    log.onBackpressure = (paused) => pressure.push(paused);
    for (let n = 0; n < 50; n++) log.append("stdout", bytes("12345"));
    const cursor = log.cursor({ lossless: true });
    log.evictTo(0);
    assert.deepEqual(pressure, []);
    assert.equal(cursor.next()?.type, "gap");
    log.append("stdout", bytes("x"));
    assert.deepEqual(pressure, [true]);
    while (cursor.next());
    assert.deepEqual(pressure, [true, false]);
  });

  test("lets the producer resume and the log evict when it is closed", () => {
    const { log } = small();
    const pressure: boolean[] = [];
    log.onBackpressure = (paused) => pressure.push(paused);
    const cursor = log.cursor({ lossless: true });
    for (let n = 0; n < 10; n++) log.append("stdout", bytes("12345"));
    assert.equal(log.retainedBytes, 50);
    cursor.close();
    assert.deepEqual(pressure, [true, false]);
    assert.equal(log.retainedBytes, 10);
  });

  test("may pin extraBytes more before the producer pauses", () => {
    const { log } = small();
    let paused = false;
    log.onBackpressure = (now) => {
      paused = now;
    };
    log.cursor({ lossless: true, extraBytes: 10 });
    log.append("stdout", bytes("0123456789012345678"));
    assert.equal(paused, false);
    log.append("stdout", bytes("9"));
    assert.equal(paused, true);
    assert.equal(log.retainedBytes, 20);
  });
});

describe("waiting reads", () => {
  async function pending(log: EventLog, params: { afterSeq?: number; waitMs: number }) {
    let answer: unknown = null;
    const done = log.readWaiting(params).then((result) => {
      answer = result;
      return result;
    });
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    return { answered: () => answer !== null, done };
  }

  test("return at once if there is a chunk, an exit after the cursor, or the end", async () => {
    const { log } = small();
    log.append("stdout", bytes("x"));
    assert.ok((await pending(log, { waitMs: 1000 })).answered());
    log.exited(EXIT);
    assert.ok((await pending(log, { afterSeq: 1, waitMs: 1000 })).answered());
    log.closed();
    assert.ok((await pending(log, { afterSeq: 99, waitMs: 1000 })).answered());
  });

  test("return on the next event", async () => {
    const { log } = small();
    const read = await pending(log, { waitMs: 1000 });
    assert.ok(!read.answered());
    log.append("stdout", bytes("x"));
    assert.equal((await read.done).chunks.length, 1);
  });

  test("return an empty result after the timeout", async () => {
    const { log, clock } = small();
    const read = await pending(log, { waitMs: 1000 });
    await clock.advance(999);
    assert.ok(!read.answered());
    await clock.advance(1);
    assert.deepEqual((await read.done).chunks, []);
    assert.equal(clock.pendingTimers, 0);
  });

  test("wait for late output after the exit", async () => {
    const { log, clock } = small();
    log.exited(EXIT);
    const read = await pending(log, { afterSeq: 1, waitMs: 1000 });
    assert.ok(!read.answered());
    await clock.advance(1000);
    assert.equal((await read.done).exited, true);
  });
});

test("retains the end of a chunk that is larger than the retention", () => {
  const log = new EventLog({ limits: { retainedBytes: 100_000 } });
  const chunk = Uint8Array.from({ length: 1_000_003 }, (_, at) => at % 251);
  log.append("stdout", chunk);
  const { chunks, gap } = log.read();
  const kept = Buffer.concat(chunks.map((one) => one.chunk));
  assert.ok(kept.length > 75_000 && kept.length <= 100_000);
  assert.ok(kept.equals(chunk.subarray(chunk.length - kept.length)));
  assert.deepEqual(gap, { fromSeq: 1, toSeq: (chunks[0]?.seq ?? 0) - 1, bytes: chunk.length - kept.length });
  assert.equal(log.totalBytes, chunk.length);
});

// ---- comparison with a slow model that retains everything

type Stored =
  | { seq: number; kind: "output"; size: number; evicted: boolean }
  | { seq: number; kind: "exited" | "closed" };

interface ModelCursor {
  seq: number;
  holding: boolean;
  extra: number;
  ended: boolean;
}

class Model {
  events: Stored[] = [];
  cursors: ModelCursor[] = [];
  paused = false;
  readonly maxBytes: number;
  readonly maxChunks: number;

  constructor(maxBytes: number, maxChunks: number) {
    this.maxBytes = maxBytes;
    this.maxChunks = maxChunks;
  }

  get nextSeq(): number {
    return this.events.length + 1;
  }

  has(kind: "exited" | "closed"): boolean {
    return this.events.some((event) => event.kind === kind);
  }

  retained(afterSeq = 0) {
    return this.events.filter((event) => event.kind === "output" && !event.evicted && event.seq > afterSeq) as Extract<
      Stored,
      { kind: "output" }
    >[];
  }

  evicted(afterSeq = 0) {
    return this.events.filter((event) => event.kind === "output" && event.evicted && event.seq > afterSeq) as Extract<
      Stored,
      { kind: "output" }
    >[];
  }

  append(size: number): void {
    if (size === 0 || this.has("closed")) return;
    this.events.push({ seq: this.nextSeq, kind: "output", size, evicted: false });
    this.evict(this.maxBytes);
    this.press();
  }

  evict(maxBytes: number): void {
    const held = Math.min(...this.cursors.filter((one) => one.holding).map((one) => one.seq), Number.POSITIVE_INFINITY);
    for (;;) {
      const left = this.retained();
      const oldest = left[0];
      if (!oldest || oldest.seq > held) return;
      if (sum(left) <= maxBytes && left.length <= this.maxChunks) return;
      oldest.evicted = true;
    }
  }

  press(): void {
    const held = this.cursors
      .filter((one) => one.holding)
      .map((one) => ({
        bytes: sum(this.retained(one.seq)) - one.extra,
        chunks: Math.min(this.nextSeq - 1 - one.seq, this.retained().length),
      }));
    const { maxBytes, maxChunks } = this;
    this.paused = this.paused
      ? held.some(({ bytes, chunks }) => bytes > maxBytes / 2 || chunks > maxChunks / 2)
      : held.some(({ bytes, chunks }) => bytes >= maxBytes || chunks >= maxChunks);
  }

  moved(cursor: ModelCursor): void {
    if (!cursor.holding) return;
    this.evict(this.maxBytes);
    this.press();
  }

  next(cursor: ModelCursor): string | null {
    if (cursor.ended) return null;
    const first = this.events[cursor.seq];
    if (!first) return null;
    if (first.kind !== "output") {
      cursor.seq = first.seq;
      if (first.kind === "closed") cursor.ended = true;
      return `${first.seq}:${first.kind}`;
    }
    if (!first.evicted) {
      cursor.seq = first.seq;
      this.moved(cursor);
      return `${first.seq}:output:${first.size}`;
    }
    let gap = 0;
    const from = first.seq;
    for (const event of this.events.slice(cursor.seq)) {
      if (event.kind !== "output" || !event.evicted) break;
      gap += event.size;
      cursor.seq = event.seq;
    }
    this.moved(cursor);
    return `gap ${from}-${cursor.seq} (${gap})`;
  }

  read(afterSeq: number, maxBytes: number | undefined) {
    const chunks: number[] = [];
    let total = 0;
    for (const { seq, size } of this.retained(afterSeq)) {
      if (maxBytes !== undefined && chunks.length > 0 && (total >= maxBytes || total + size > maxBytes)) break;
      chunks.push(seq);
      total += size;
    }
    const missing = this.evicted(afterSeq);
    const last = chunks.at(-1);
    return {
      chunks,
      nextSeq: maxBytes !== undefined && last !== undefined ? last + 1 : this.nextSeq,
      exited: this.has("exited"),
      closed: this.has("closed"),
      gap: missing.length === 0 ? null : { fromSeq: afterSeq + 1, toSeq: missing.at(-1)?.seq, bytes: sum(missing) },
    };
  }
}

const sum = (chunks: { size: number }[]) => chunks.reduce((total, { size }) => total + size, 0);

const operation = fc.oneof(
  { weight: 8, arbitrary: fc.record({ op: fc.constant("append" as const), size: fc.nat({ max: 12 }) }) },
  fc.record({ op: fc.constant("exited" as const) }),
  { weight: 1, arbitrary: fc.record({ op: fc.constant("closed" as const) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      op: fc.constant("read" as const),
      afterSeq: fc.nat({ max: 30 }),
      maxBytes: fc.option(fc.nat({ max: 25 }), { nil: undefined }),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      op: fc.constant("open" as const),
      afterSeq: fc.nat({ max: 20 }),
      holding: fc.boolean(),
      extra: fc.constantFrom(0, 0, 7),
    }),
  },
  { weight: 6, arbitrary: fc.record({ op: fc.constant("next" as const), which: fc.nat() }) },
  {
    weight: 2,
    arbitrary: fc.record({ op: fc.constant("advance" as const), which: fc.nat(), seq: fc.nat({ max: 40 }) }),
  },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("close" as const), which: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constant("evictTo" as const), bytes: fc.nat({ max: 10 }) }) },
);

test("matches a simple model of sequence, cursors, eviction, gaps, pinning and backpressure", () => {
  fc.assert(
    fc.property(
      fc.array(operation, { maxLength: 60 }),
      fc.integer({ min: 1, max: 30 }),
      fc.integer({ min: 1, max: 8 }),
      (operations, retainedBytes, retainedChunks) => {
        const model = new Model(retainedBytes, retainedChunks);
        const log = new EventLog({ limits: { retainedBytes, retainedChunks } });
        const cursors: ReturnType<EventLog["cursor"]>[] = [];
        let paused = false;
        log.onBackpressure = (now) => {
          assert.notEqual(now, paused, "told twice");
          paused = now;
        };
        const pick = <T>(all: T[], which: number): T | undefined => all[which % Math.max(1, all.length)];
        for (const step of operations) {
          switch (step.op) {
            case "append":
              // The first byte identifies the chunk.
              log.append("stdout", new Uint8Array(step.size).fill(model.nextSeq));
              model.append(step.size);
              break;
            case "exited":
              log.exited(EXIT);
              if (!model.has("exited") && !model.has("closed"))
                model.events.push({ seq: model.nextSeq, kind: "exited" });
              break;
            case "closed":
              log.closed();
              if (!model.has("closed")) model.events.push({ seq: model.nextSeq, kind: "closed" });
              break;
            case "read": {
              const { chunks, gap, ...rest } = log.read(step);
              for (const { seq, chunk } of chunks) assert.ok(chunk.every((byte) => byte === seq));
              assert.deepEqual(
                {
                  chunks: chunks.map(({ seq }) => seq),
                  nextSeq: rest.nextSeq,
                  exited: rest.exited,
                  closed: rest.closed,
                  gap: gap ?? null,
                },
                model.read(step.afterSeq, step.maxBytes),
              );
              break;
            }
            case "open": {
              // A cursor is never past the last event.
              const seq = Math.min(step.afterSeq, model.nextSeq - 1);
              cursors.push(log.cursor({ afterSeq: seq, lossless: step.holding, extraBytes: step.extra }));
              model.cursors.push({ seq, holding: step.holding, extra: step.extra, ended: false });
              break;
            }
            case "next": {
              const cursor = pick(cursors, step.which);
              const twin = pick(model.cursors, step.which);
              if (!cursor || !twin) break;
              const event = cursor.next();
              const told =
                event?.type === "output" ? `${event.seq}:output:${event.chunk.length}` : event ? word(event) : null;
              assert.equal(told, model.next(twin));
              break;
            }
            case "advance": {
              const twin = pick(model.cursors, step.which);
              pick(cursors, step.which)?.advanceTo(step.seq);
              if (!twin || twin.ended) break;
              const target = Math.min(step.seq, model.nextSeq - 1);
              if (target <= twin.seq) break;
              twin.seq = target;
              model.moved(twin);
              break;
            }
            case "close": {
              const twin = pick(model.cursors, step.which);
              pick(cursors, step.which)?.close();
              if (!twin) break;
              twin.ended = true;
              if (!twin.holding) break;
              twin.holding = false;
              model.evict(retainedBytes);
              model.press();
              break;
            }
            case "evictTo":
              log.evictTo(step.bytes);
              model.evict(step.bytes);
              break;
          }
          assert.equal(log.nextSeq, model.nextSeq);
          assert.equal(log.retainedBytes, sum(model.retained()));
          assert.equal(log.totalBytes, sum(model.retained()) + sum(model.evicted()));
          assert.equal(paused, model.paused, "pressure");
        }
      },
    ),
    { numRuns: 3000 },
  );
});

test("does not keep a large chunk in memory for a small retained piece", () => {
  const log = new EventLog({ limits: { retainedBytes: 64 * 1024 } });
  for (let n = 0; n < 12; n++) log.append("stdout", new Uint8Array(256 * 1024));
  const { chunks } = log.read();
  const behind = new Set(chunks.map(({ chunk }) => chunk.buffer));
  const bytes = [...behind].reduce((sum, { byteLength }) => sum + byteLength, 0);
  assert.ok(bytes <= 64 * 1024, `${bytes} bytes are behind what is retained`);
  const { retainedBytes, omittedBytes, totalBytes } = log.headTail("stdout");
  assert.ok(retainedBytes <= 160 * 1024, `${retainedBytes} bytes are kept for snapshots`);
  assert.equal(totalBytes - omittedBytes, 64 * 1024);
});

test("drops snapshot buffers when all logs exceed the budget, those of closed logs first", () => {
  const snapshotBudget = new RetentionBudget(1024 * 1024);
  const [ended, running] = [new EventLog({ snapshotBudget }), new EventLog({ snapshotBudget })];
  ended.append(
    "stdout",
    Uint8Array.from({ length: 600_000 }, (_, n) => n & 255),
  );
  ended.closed();
  running.append("stdout", new Uint8Array(600_000));
  assert.ok(snapshotBudget.bytes <= 1024 * 1024);
  const kept = ended.headTail("stdout");
  assert.deepEqual([...kept.head().subarray(0, 3)], [0, 1, 2]);
  assert.equal(kept.tail().at(-1), 599_999 & 255);
  assert.equal(kept.omittedBytes, 600_000 - kept.head().length - kept.tail().length);
  assert.equal(running.headTail("stdout").omittedBytes, 0);
  ended.dispose();
  running.dispose();
  assert.equal(snapshotBudget.bytes, 0);
});

test("reports when a chunk was copied, and does not use its memory after that", () => {
  const log = new EventLog({ limits: { retainedBytes: 64 * 1024 } });
  const small = new Uint8Array(16 * 1024).fill(1);
  const large = new Uint8Array(20 * 1024).fill(2);
  assert.equal(log.append("stdout", small), "referenced");
  assert.equal(log.append("stdout", large), "copied");
  freeBuffer(large);
  const read = log.read().chunks.map(({ chunk }) => [chunk.length, chunk.at(-1)]);
  assert.deepEqual(read, [
    [16 * 1024, 1],
    [16 * 1024, 2],
    [4 * 1024, 2],
  ]);
  assert.deepEqual(log.headTail("stdout").tail().at(-1), 2);
});
