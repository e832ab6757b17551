import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { type SequencedEvent, Sequencer } from "../../../src/client/process/sequencer.ts";
import type { ExecEvent, ExitStatus } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { runPromiseReactions } from "../../support/system/promise-reactions.ts";

const EXIT: ExitStatus = { exitCode: 3, signal: null, reason: "exited", sandboxDenied: false };

/** A process on the server: a log whose reads have the form of wire results. */
class ServerSide {
  readonly log: EventLog;
  readonly notified: SequencedEvent[] = [];
  /** Whether reads report gaps, as procwire servers do. */
  readonly #reportsGaps: boolean;

  constructor(options: { retainedBytes?: number; reportsGaps?: boolean } = {}) {
    this.log = new EventLog({ limits: { retainedBytes: options.retainedBytes ?? 1_000_000 } });
    this.#reportsGaps = options.reportsGaps ?? true;
  }

  output(bytes: number): void {
    const seq = this.log.nextSeq;
    const chunk = new Uint8Array(bytes).fill(seq & 255);
    this.log.append("stdout", chunk);
    this.notified.push({ type: "output", seq, stream: "stdout", chunk });
  }

  exited(): void {
    this.notified.push({ type: "exited", seq: this.log.nextSeq, ...EXIT });
    this.log.exited(EXIT);
  }

  closed(): void {
    this.notified.push({ type: "closed", seq: this.log.nextSeq });
    this.log.closed();
  }

  follow(log: EventLog): Sequencer {
    return new Sequencer(log, {
      read: async (params) => {
        await Promise.resolve();
        const { gap, ...rest } = this.log.read(params);
        return { ...rest, ...(gap && this.#reportsGaps && { gap }) };
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    });
  }
}

async function all(log: EventLog): Promise<ExecEvent[]> {
  const events: ExecEvent[] = [];
  for await (const event of log.events()) events.push(event);
  return events;
}

describe("Sequencer", () => {
  test("buffers out-of-order events until the missing one arrives", () => {
    const server = new ServerSide();
    server.output(1);
    server.output(1);
    const log = new EventLog({ isReplica: true });
    const sequencer = server.follow(log);
    const [first, second] = server.notified;
    assert.ok(first && second);
    sequencer.onEvent(second);
    assert.equal(log.nextSeq, 1);
    assert.equal(sequencer.isBehind, true);
    sequencer.onEvent(first);
    assert.equal(log.nextSeq, 3);
    assert.equal(sequencer.isBehind, false);
  });

  test("reads an ended process without gaps in pages alone, each twice as large as the last", async () => {
    const server = new ServerSide();
    for (let count = 0; count < 10; count++) server.output(50_000);
    server.exited();
    server.closed();
    const log = new EventLog({ isReplica: true });
    const reads: (number | undefined)[] = [];
    const sequencer = new Sequencer(log, {
      read: async (params) => {
        reads.push(params.maxBytes);
        return server.log.read(params);
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    });
    await sequencer.catchUp();
    assert.equal(log.isClosed, true);
    assert.deepEqual(reads, [65_536, 131_072, 262_144, 524_288, 1_048_576]);
  });

  test("records a notified gap once, with its size only if known", async () => {
    const chunk = new Uint8Array(1);
    const log = new EventLog({ isReplica: true });
    const sequencer = new ServerSide().follow(log);
    const output = (seq: number) => sequencer.onEvent({ type: "output", seq, stream: "stdout", chunk });
    output(1);
    sequencer.onGap({ fromSeq: 2, toSeq: 3, bytes: 20 });
    // The size of the next gaps is unknown: the server does not give it, or a part of the gap has arrived.
    sequencer.onGap({ fromSeq: 4, toSeq: 4, bytes: null });
    output(5);
    sequencer.onGap({ fromSeq: 5, toSeq: 7, bytes: 30 });
    sequencer.onGap({ fromSeq: 5, toSeq: 7, bytes: 30 });
    // A gap after missing events waits for them, to preserve the order.
    sequencer.onGap({ fromSeq: 9, toSeq: 9, bytes: 1 });
    assert.equal(log.nextSeq, 8);
    assert.equal(sequencer.isBehind, true);
    log.fail(new ExecServerError("enough", "FAILED"));
    const gaps = (await all(log)).filter((event) => event.type === "gap");
    assert.deepEqual(
      gaps.map(({ fromSeq, toSeq, bytes }) => [fromSeq, toSeq, bytes]),
      [
        [2, 3, 20],
        [4, 4, null],
        [6, 7, null],
      ],
    );
  });

  test("reads once and without a delay if no event is missing", async () => {
    const server = new ServerSide();
    server.output(1);
    const log = new EventLog({ isReplica: true });
    let reads = 0;
    const source = {
      read: async (params: { afterSeq: number; maxBytes?: number }) => {
        reads++;
        return server.log.read(params);
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    };
    const clock = new ManualClock();
    const sequencer = new Sequencer(log, source, clock);
    for (const event of server.notified) sequencer.onEvent(event);
    let isDone = false;
    void sequencer.catchUp().then(() => (isDone = true));
    await runPromiseReactions();
    assert.deepEqual([isDone, reads, clock.pendingTimers], [true, 1, 0]);
  });

  test("finds the exit among evicted output before a gap of the server", async () => {
    const server = new EventLog({ isReplica: true, limits: { retainedBytes: 6 } });
    server.append("stdout", new Uint8Array(2));
    server.exited(EXIT);
    server.append("stdout", new Uint8Array(2));
    server.append("stdout", new Uint8Array(4));
    server.addGap(6, 9);
    server.append("stdout", new Uint8Array(2));
    server.closed();
    const log = new EventLog({ isReplica: true });
    const source = { read: async (params: object) => server.read(params), exitStatus: async () => EXIT };
    await new Sequencer(log, { ...source, onAppended: () => undefined }).catchUp();
    assert.deepEqual(
      (await all(log)).map((event) => (event.type === "gap" ? `gap ${event.fromSeq}-${event.toSeq}` : event.type)),
      ["gap 1-2", "exited", "output", "gap 5-6", "output", "closed"],
    );
  });

  test("counts the bytes of evicted output, but not those of gaps after the first chunk", async () => {
    const server = new ServerSide({ retainedBytes: 20 });
    for (let count = 0; count < 4; count++) server.output(10);
    server.log.addGap(5, 7);
    server.output(10);
    server.exited();
    server.closed();
    const log = new EventLog({ isReplica: true });
    await server.follow(log).catchUp();
    const gaps = (await all(log)).filter((event) => event.type === "gap");
    assert.deepEqual(gaps, [
      { type: "gap", fromSeq: 1, toSeq: 3, bytes: 30 },
      { type: "gap", fromSeq: 5, toSeq: 5, bytes: null },
    ]);
  });

  test("records evicted output as a gap, and the exit after it in order", async () => {
    const server = new ServerSide({ retainedBytes: 10 });
    for (let count = 0; count < 5; count++) server.output(10);
    server.exited();
    server.closed();
    const log = new EventLog({ isReplica: true });
    await server.follow(log).catchUp();
    const events = await all(log);
    assert.deepEqual(
      events.map((event) => event.type),
      ["gap", "output", "exited", "closed"],
    );
    assert.deepEqual(events[0], { type: "gap", fromSeq: 1, toSeq: 4, bytes: 40 });
  });

  test("records gaps of unknown size if the server reports none, also after their eviction", async () => {
    const server = new ServerSide({ retainedBytes: 10, reportsGaps: false });
    for (let count = 0; count < 5; count++) server.output(10);
    server.exited();
    server.closed();
    for (const retainedBytes of [1000, 0]) {
      const log = new EventLog({ isReplica: true, limits: { retainedBytes } });
      await server.follow(log).catchUp();
      const [gap] = await all(log);
      assert.ok(gap?.type === "gap");
      assert.deepEqual([gap.fromSeq, gap.bytes], [1, null]);
      assert.equal(log.read().gap?.bytes, null);
    }
  });

  test("keeps the position of an exit that arrives before evicted output is read", async () => {
    const server = new ServerSide({ retainedBytes: 10 });
    server.output(10);
    server.output(10);
    server.exited();
    server.output(10);
    server.closed();
    const log = new EventLog({ isReplica: true });
    const sequencer = server.follow(log);
    for (const event of server.notified) if (event.type === "exited") sequencer.onEvent(event);
    await sequencer.catchUp();
    assert.deepEqual(
      (await all(log)).map((event) => (event.type === "gap" ? `gap ${event.fromSeq}-${event.toSeq}` : event.type)),
      ["gap 1-2", "exited", "output", "closed"],
    );
  });

  test("reads again if events may have been missed during a read", async () => {
    const server = new ServerSide();
    const log = new EventLog({ isReplica: true });
    const reads: number[] = [];
    const sequencer = new Sequencer(log, {
      read: async ({ afterSeq }) => {
        const page = server.log.read({ afterSeq });
        reads.push(afterSeq);
        await Promise.resolve();
        if (reads.length > 1) return page;
        // The connection breaks and resumes; the notification of this output is lost.
        server.output(1);
        void sequencer.catchUp();
        return page;
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    });
    await sequencer.catchUp();
    assert.deepEqual([reads, log.nextSeq, sequencer.isBehind], [[0, 0, 1], 2, false]);
  });

  test("finds the exit among evicted output if the server reports no gaps", async () => {
    const server = new ServerSide({ retainedBytes: 10, reportsGaps: false });
    server.output(10);
    server.exited();
    server.output(10);
    server.output(10);
    server.closed();
    const log = new EventLog({ isReplica: true });
    await server.follow(log).catchUp();
    const events = await all(log);
    assert.deepEqual(
      events.map((event) => event.type),
      ["gap", "exited", "output", "closed"],
    );
    assert.deepEqual(events.at(-1), { type: "closed", seq: 5 });
  });

  test("buffers up to 4 MiB and 50,000 out-of-order events, and misses the others", () => {
    const MIB = 1024 * 1024;
    const log = new EventLog({ isReplica: true });
    const sequencer = new ServerSide().follow(log);
    const output = (seq: number, bytes: number) =>
      sequencer.onEvent({ type: "output", seq, stream: "stdout", chunk: new Uint8Array(bytes) });
    output(2, 3 * MIB);
    output(2, 3 * MIB);
    output(3, MIB);
    output(4, 1);
    output(1, 1);
    assert.deepEqual([log.nextSeq, sequencer.isBehind], [4, true]);
    // The buffer is empty again.
    output(5, 4 * MIB);
    output(4, 1);
    assert.deepEqual([log.nextSeq, sequencer.isBehind], [6, false]);
    for (let count = 0; count <= 50_000; count++) output(7 + count, 1);
    output(6, 1);
    assert.deepEqual([log.nextSeq, sequencer.isBehind], [50_007, true]);
  });

  test("drops buffered events within a gap, and appends those after it", () => {
    const MIB = 1024 * 1024;
    const log = new EventLog({ isReplica: true });
    const sequencer = new ServerSide().follow(log);
    const output = (seq: number, bytes: number) =>
      sequencer.onEvent({ type: "output", seq, stream: "stdout", chunk: new Uint8Array(bytes) });
    output(2, 3 * MIB);
    output(4, 1);
    sequencer.onGap({ fromSeq: 1, toSeq: 3, bytes: null });
    assert.equal(log.nextSeq, 5);
    output(6, 4 * MIB);
    output(5, 1);
    assert.equal(log.nextSeq, 7);
  });

  test("appends the output of a failed process before its failure", async () => {
    const server = new ServerSide();
    server.output(1);
    server.log.fail(new ExecServerError("lost", "FAILED"));
    const log = new EventLog({ isReplica: true });
    await server.follow(log).catchUp();
    assert.deepEqual([log.totalBytes, log.failure?.message, log.isClosed], [1, "lost", false]);
  });

  test("stops reading when its log fails", async () => {
    const log = new EventLog({ isReplica: true });
    let reads = 0;
    const page = { chunks: [], nextSeq: 9, exited: false, exitCode: null, closed: false, failure: null };
    const sequencer = new Sequencer(log, {
      read: async () => {
        assert.equal(++reads, 1);
        log.fail(new ExecServerError("lost", "FAILED"));
        return { ...page, sandboxDenied: false };
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    });
    await sequencer.catchUp();
    assert.deepEqual([reads, log.nextSeq, sequencer.isBehind], [1, 1, false]);
  });

  test("reads with backoff from a server that does not return a notified event", async () => {
    const clock = new ManualClock();
    const log = new EventLog({ isReplica: true });
    let reads = 0;
    const page = { chunks: [], nextSeq: 1, exited: false, exitCode: null, closed: false, failure: null };
    const source = {
      read: async () => {
        assert.ok(++reads < 100, "reads without a pause");
        return { ...page, sandboxDenied: false };
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    };
    const sequencer = new Sequencer(log, source, clock);
    const output = { type: "output", stream: "stdout", chunk: new Uint8Array(1) } as const;
    sequencer.onEvent({ ...output, seq: 2 });
    const filling = sequencer.fill();
    await runPromiseReactions();
    assert.equal(reads, 1);
    await clock.advance(60_000);
    assert.ok(reads > 2 && reads < 30, `${reads} reads in a minute`);
    sequencer.onEvent({ ...output, seq: 1 });
    await clock.advance(60_000);
    await filling;
    assert.deepEqual([log.nextSeq, clock.pendingTimers], [3, 0]);
  });

  test("does not read a gap again that a faulty server reports without progress", async () => {
    const log = new EventLog({ isReplica: true });
    let reads = 0;
    const chunk = { seq: 5, stream: "stdout" as const, chunk: new Uint8Array(1) };
    const rest = { nextSeq: 6, exited: true, exitCode: 0, closed: false, failure: null, sandboxDenied: false };
    const sequencer = new Sequencer(log, {
      read: async () => {
        assert.ok(++reads < 100, "reads without an end");
        return { ...rest, chunks: [chunk], gap: { fromSeq: 1, toSeq: 4, bytes: null } };
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    });
    await sequencer.catchUp();
    assert.equal(log.nextSeq, 6);
  });

  test("accounts for the largest sequence numbers at once", async () => {
    const last = Number.MAX_SAFE_INTEGER - 1;
    const log = new EventLog({ isReplica: true });
    const page = { nextSeq: last + 1, exited: true, exitCode: 0, closed: true, failure: null, sandboxDenied: false };
    const chunk = { seq: 2 ** 40, stream: "stdout" as const, chunk: new Uint8Array(1) };
    const gaps = [
      { fromSeq: 1, toSeq: chunk.seq - 1, bytes: null },
      { fromSeq: chunk.seq + 1, toSeq: last - 2, bytes: null },
    ];
    const sequencer = new Sequencer(log, {
      read: async ({ afterSeq }) => {
        if (afterSeq < chunk.seq) return { ...page, nextSeq: chunk.seq + 1, chunks: [chunk], gap: gaps[0] };
        return { ...page, chunks: [], ...(afterSeq < last && { gap: gaps[1] }) };
      },
      exitStatus: async () => EXIT,
      onAppended: () => undefined,
    });
    sequencer.onEvent({ type: "output", seq: last - 3, stream: "stdout", chunk: new Uint8Array(1) });
    await sequencer.catchUp();
    assert.deepEqual([log.nextSeq, log.isClosed, log.exit?.seq], [last + 1, true, last - 1]);
  });

  test("reports each appended chunk", () => {
    const log = new EventLog({ isReplica: true });
    const appended: number[] = [];
    const sequencer = new Sequencer(log, {
      read: () => assert.fail("no read expected"),
      exitStatus: async () => EXIT,
      onAppended: (bytes) => appended.push(bytes),
    });
    for (const [seq, bytes] of [
      [1, 5],
      [2, 0],
      [3, 7],
    ] as const)
      sequencer.onEvent({ type: "output", seq, stream: "stdout", chunk: new Uint8Array(bytes) });
    assert.deepEqual([appended, log.nextSeq, log.totalBytes], [[5, 0, 7], 4, 12]);
  });

  const steps = fc.array(
    fc.record({
      bytes: fc.integer({ min: 1, max: 40 }),
      fate: fc.constantFrom("arrives", "arrives", "arrives", "lost", "twice", "late"),
    }),
    { maxLength: 60 },
  );

  test("delivers every event once and in order if events are lost, duplicated or late", async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(60), fc.boolean(), async (script, exitAt, reportsGaps) => {
        const server = new ServerSide({ reportsGaps });
        const log = new EventLog({ isReplica: true });
        const sequencer = server.follow(log);
        const late: SequencedEvent[] = [];
        let exited = false;
        for (const [index, { bytes, fate }] of script.entries()) {
          if (index === exitAt && !exited) {
            exited = true;
            server.exited();
          } else {
            server.output(bytes);
          }
          const event = server.notified.at(-1);
          assert.ok(event);
          if (fate === "late") late.push(event);
          else if (fate !== "lost") sequencer.onEvent(event);
          if (fate === "twice") sequencer.onEvent(event);
          if (index % 7 === 0) await sequencer.fill();
        }
        for (const event of late.reverse()) sequencer.onEvent(event);
        if (!exited) server.exited();
        server.closed();
        await sequencer.catchUp();
        assert.deepEqual(await all(log), server.notified);
      }),
      { numRuns: 300 },
    );
  });

  test("accounts for every sequence number and byte while the server evicts", async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(60), fc.integer({ min: 1, max: 200 }), async (script, exitAt, retained) => {
        const server = new ServerSide({ retainedBytes: retained });
        const log = new EventLog({ isReplica: true });
        const sequencer = server.follow(log);
        for (const [index, { bytes, fate }] of script.entries()) {
          if (index === exitAt) server.exited();
          else server.output(bytes);
          const event = server.notified.at(-1);
          if (event && fate !== "lost" && fate !== "late") sequencer.onEvent(event);
        }
        if (!server.log.exit) server.exited();
        server.closed();
        await sequencer.catchUp();
        let expected = 1;
        let exits = 0;
        let bytes = 0;
        for (const event of await all(log)) {
          assert.notEqual(event.type, "failed");
          if (event.type === "failed") continue;
          assert.equal(event.type === "gap" ? event.fromSeq : event.seq, expected);
          expected = (event.type === "gap" ? event.toSeq : event.seq) + 1;
          if (event.type === "exited") exits++;
          if (event.type === "gap") bytes += event.bytes ?? 0;
          if (event.type === "output") bytes += event.chunk.length;
          if (event.type === "output") assert.deepEqual(event, server.notified[event.seq - 1]);
        }
        assert.equal(expected, server.log.nextSeq);
        assert.equal(exits, 1);
        assert.equal(bytes, server.log.totalBytes);
      }),
      { numRuns: 300 },
    );
  });
});
