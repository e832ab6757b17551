import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { type SequencedEvent, Sequencer } from "../../../src/client/process/sequencer.ts";
import type { ExecEvent, ExitStatus } from "../../../src/exec/exec-process.ts";
import { EventLog } from "../../../src/exec/log/event-log.ts";

const EXIT: ExitStatus = { exitCode: 3, signal: null, reason: "exited", sandboxDenied: false };

/** A process as its server sees it: a log, from which reads are answered as the wire answers them. */
class ServerSide {
  readonly log: EventLog;
  readonly told: SequencedEvent[] = [];
  /** Whether evicted output is told as a gap, as our own server does. */
  readonly #tellsGaps: boolean;

  constructor(options: { retainedBytes?: number; tellsGaps?: boolean } = {}) {
    this.log = new EventLog({ limits: { retainedBytes: options.retainedBytes ?? 1_000_000 } });
    this.#tellsGaps = options.tellsGaps ?? true;
  }

  output(bytes: number): void {
    const seq = this.log.nextSeq;
    const chunk = new Uint8Array(bytes).fill(seq & 255);
    this.log.append("stdout", chunk);
    this.told.push({ type: "output", seq, stream: "stdout", chunk });
  }

  exited(): void {
    this.told.push({ type: "exited", seq: this.log.nextSeq, ...EXIT });
    this.log.exited(EXIT);
  }

  closed(): void {
    this.told.push({ type: "closed", seq: this.log.nextSeq });
    this.log.closed();
  }

  follow(log: EventLog): Sequencer {
    return new Sequencer(log, {
      read: async (params) => {
        await Promise.resolve();
        const { gap, ...rest } = this.log.read(params);
        return { ...rest, ...(gap && this.#tellsGaps && { gap }) };
      },
      exitStatus: async () => EXIT,
      added: () => undefined,
    });
  }
}

async function all(log: EventLog): Promise<ExecEvent[]> {
  const events: ExecEvent[] = [];
  for await (const event of log.events()) events.push(event);
  return events;
}

describe("the sequencer", () => {
  it("keeps early events back until the missing one has come", () => {
    const server = new ServerSide();
    server.output(1);
    server.output(1);
    const log = new EventLog({ isFollower: true });
    const sequencer = server.follow(log);
    const [first, second] = server.told;
    assert.ok(first && second);
    sequencer.offer(second);
    assert.equal(log.nextSeq, 1);
    assert.equal(sequencer.isBehind, true);
    sequencer.offer(first);
    assert.equal(log.nextSeq, 3);
    assert.equal(sequencer.isBehind, false);
  });

  it("reports a notified gap once, with its size only where that is known", async () => {
    const chunk = new Uint8Array(1);
    const log = new EventLog({ isFollower: true });
    const sequencer = new ServerSide().follow(log);
    const output = (seq: number) => sequencer.offer({ type: "output", seq, stream: "stdout", chunk });
    output(1);
    sequencer.offerGap({ fromSeq: 2, toSeq: 3, bytes: 20 });
    // The size of the next gaps is unknown: the server does not give it, or a part of the gap has arrived.
    sequencer.offerGap({ fromSeq: 4, toSeq: 4, bytes: null });
    output(5);
    sequencer.offerGap({ fromSeq: 5, toSeq: 7, bytes: 30 });
    sequencer.offerGap({ fromSeq: 5, toSeq: 7, bytes: 30 });
    // A gap behind missing events waits for them: nothing is told out of order.
    sequencer.offerGap({ fromSeq: 9, toSeq: 9, bytes: 1 });
    assert.equal(log.nextSeq, 8);
    assert.equal(sequencer.isBehind, true);
    log.fail("enough");
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

  it("reports output that the server has evicted as a gap, with the exit behind it at its place", async () => {
    const server = new ServerSide({ retainedBytes: 10 });
    for (let count = 0; count < 5; count++) server.output(10);
    server.exited();
    server.closed();
    const log = new EventLog({ isFollower: true });
    await server.follow(log).catchUp();
    const events = await all(log);
    assert.deepEqual(
      events.map((event) => event.type),
      ["gap", "output", "exited", "closed"],
    );
    assert.deepEqual(events[0], { type: "gap", fromSeq: 1, toSeq: 4, bytes: 40 });
  });

  it("does not know how much is missing when the server reports no gaps, also once the gap itself is evicted", async () => {
    const server = new ServerSide({ retainedBytes: 10, tellsGaps: false });
    for (let count = 0; count < 5; count++) server.output(10);
    server.exited();
    server.closed();
    for (const retainedBytes of [1000, 0]) {
      const log = new EventLog({ isFollower: true, limits: { retainedBytes } });
      await server.follow(log).catchUp();
      const [gap] = await all(log);
      assert.ok(gap?.type === "gap");
      assert.deepEqual([gap.fromSeq, gap.bytes], [1, null]);
      assert.equal(log.read().gap?.bytes, null);
    }
  });

  it("finds the exit among evicted output when the server reports no gaps", async () => {
    const server = new ServerSide({ retainedBytes: 10, tellsGaps: false });
    server.output(10);
    server.exited();
    server.output(10);
    server.output(10);
    server.closed();
    const log = new EventLog({ isFollower: true });
    await server.follow(log).catchUp();
    const events = await all(log);
    assert.deepEqual(
      events.map((event) => event.type),
      ["gap", "exited", "output", "closed"],
    );
    assert.deepEqual(events.at(-1), { type: "closed", seq: 5 });
  });

  const steps = fc.array(
    fc.record({
      bytes: fc.integer({ min: 1, max: 40 }),
      fate: fc.constantFrom("arrives", "arrives", "arrives", "lost", "twice", "late"),
    }),
    { maxLength: 60 },
  );

  it("gives every event once and in order, whatever is lost, doubled or late", async () => {
    await fc.assert(
      fc.asyncProperty(steps, fc.nat(60), fc.boolean(), async (script, exitAt, tellsGaps) => {
        const server = new ServerSide({ tellsGaps });
        const log = new EventLog({ isFollower: true });
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
          const event = server.told.at(-1);
          assert.ok(event);
          if (fate === "late") late.push(event);
          else if (fate !== "lost") sequencer.offer(event);
          if (fate === "twice") sequencer.offer(event);
          if (index % 7 === 0) await sequencer.fill();
        }
        for (const event of late.reverse()) sequencer.offer(event);
        if (!exited) server.exited();
        server.closed();
        await sequencer.catchUp();
        assert.deepEqual(await all(log), server.told);
      }),
      { numRuns: 300 },
    );
  });

  it("accounts for every number and every byte when the server evicts meanwhile", async () => {
    await fc.assert(
      fc.asyncProperty(
        steps,
        fc.nat(60),
        fc.integer({ min: 1, max: 200 }),
        async (script, exitAt, retained) => {
          const server = new ServerSide({ retainedBytes: retained });
          const log = new EventLog({ isFollower: true });
          const sequencer = server.follow(log);
          for (const [index, { bytes, fate }] of script.entries()) {
            if (index === exitAt) server.exited();
            else server.output(bytes);
            const event = server.told.at(-1);
            if (event && fate !== "lost" && fate !== "late") sequencer.offer(event);
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
            if (event.type === "output") assert.deepEqual(event, server.told[event.seq - 1]);
          }
          assert.equal(expected, server.log.nextSeq);
          assert.equal(exits, 1);
          assert.equal(bytes, server.log.totalBytes);
        },
      ),
      { numRuns: 300 },
    );
  });
});
