/**
 * A complete run from one seed: real clients and a real server, with simulated programs, a faulty simulated network and a
 * clock that jumps from event to event. The run depends only on the seed.
 */

import type { EventLogLimits } from "../../src/exec/log/event-log.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { Random } from "./random.ts";
import { SimClient } from "./sim-client.ts";
import { SimClock } from "./sim-clock.ts";
import { type Mode, SimFaults } from "./sim-faults.ts";
import { SimHost } from "./sim-host.ts";
import { SimWire, type WireProfile } from "./sim-wire.ts";
import { Trace } from "./trace.ts";

export interface Outcome {
  seed: number;
  /** Violated invariants; empty after a successful run. */
  faults: string[];
  /** The last lines of the trace. */
  trace: string[];
  /** Equal for identical runs. */
  digest: string;
  steps: number;
  simulatedMs: number;
  counts: { connections: number; faults: number; processes: number; bytes: number };
}

/** Time limit of a run. */
const MAX_STEPS = 400_000;
const MAX_SIMULATED_MS = 3_600_000;
const TRACED_LINES = 60;

export async function simulate(seed: number): Promise<Outcome> {
  const run = new Simulation(seed);
  await run.go();
  return run.outcome;
}

class Simulation {
  readonly #seed: number;
  readonly #clock = new SimClock();
  readonly #trace: Trace;
  readonly #host: SimHost;
  readonly #server: ExecServer;
  readonly #wire: SimWire;
  readonly #faults: SimFaults;
  readonly #clients: SimClient[];
  readonly #found: string[] = [];
  readonly #startedAt: number;
  readonly #retainedBytes: number;
  #steps = 0;

  constructor(seed: number) {
    this.#seed = seed;
    this.#startedAt = this.#clock.now;
    this.#trace = new Trace(this.#clock);
    const random = new Random(seed);
    const mode: Mode = random.chance(0.85) ? "survivable" : "harsh";
    const profile = randomProfile(random);
    this.#retainedBytes = random.pick([4096, 16_384, 65_536, 1024 * 1024]);
    const onFault = (text: string) => this.#onFault(text);
    const limits = randomLimits(this.#retainedBytes);
    this.#host = new SimHost({
      clock: this.#clock,
      trace: this.#trace,
      limits,
      mayStartTwice: profile.withoutAcks,
      onFault,
    });
    this.#server = new ExecServer(this.#host.services, {
      retainedOutputBytes: this.#retainedBytes,
      onDetach: random.chance(0.8) ? "pause" : "evict",
    });
    this.#wire = new SimWire({
      clock: this.#clock,
      random: random.fork(),
      trace: this.#trace,
      profile,
      // The connection's events report its end.
      accept: (connection) => void this.#server.accept(connection),
    });
    this.#faults = new SimFaults({
      clock: this.#clock,
      random: random.fork(),
      trace: this.#trace,
      wire: this.#wire,
      mode,
      stormMs: random.scaled(2000, 150_000),
      meanBetweenMs: random.scaled(100, 20_000),
    });
    this.#trace.add(`seed ${seed}: ${mode}, retains ${this.#retainedBytes}, ${JSON.stringify(profile)}`);
    const clientBytes = random.pick([4096, 65_536, 1024 * 1024]);
    const clients = random.chance(0.7) ? 1 : 2;
    this.#clients = Array.from(
      { length: clients },
      (_, at) =>
        new SimClient(`c${at}`, random.fork(), {
          clock: this.#clock,
          trace: this.#trace,
          wire: this.#wire,
          faults: this.#faults,
          host: this.#host,
          mode,
          hasAcks: !profile.withoutAcks,
          logLimits: randomLimits(clientBytes),
          checkForgotten: clients === 1 ? () => this.#checkReleased() : null,
          onFault,
        }),
    );
  }

  get outcome(): Outcome {
    const records = [...this.#host.records.values()];
    return {
      seed: this.#seed,
      faults: this.#found,
      trace: this.#trace.last(TRACED_LINES),
      digest: this.#trace.digest,
      steps: this.#steps,
      simulatedMs: this.#clock.now - this.#startedAt,
      counts: {
        connections: this.#wire.connections,
        faults: this.#faults.count,
        processes: records.length,
        bytes: records.reduce((sum, { producedBytes }) => sum + producedBytes, 0),
      },
    };
  }

  async go(): Promise<void> {
    let running = this.#clients.length;
    for (const client of this.#clients) {
      client
        .run()
        .catch((error: unknown) =>
          this.#onFault(`${client.name} broke: ${error instanceof Error ? error.stack : String(error)}`),
        )
        .finally(() => running--);
    }
    await this.#advance(() => running === 0);
    if (this.#found.length > 0) return;
    if (running > 0) {
      for (const { name, status, handles } of this.#clients)
        this.#onFault(`${name} never came to an end: ${status}, ${JSON.stringify([...handles])}`);
      return;
    }
    await this.#advance(() => false);
    this.#checkNothingIsLeft();
    const closing = this.#server.close();
    await this.#advance(() => false);
    await closing;
    this.#checkNothingIsLeft();
  }

  /** Runs events one by one until `isDone`, or until none is left; checks everything after each. */
  async #advance(isDone: () => boolean): Promise<void> {
    const until = this.#startedAt + MAX_SIMULATED_MS;
    await runPendingReactions();
    while (!isDone() && this.#found.length === 0) {
      if (!this.#clock.step(until)) return;
      await runPendingReactions();
      this.#checkBounds();
      if (++this.#steps > MAX_STEPS) this.#onFault("never comes to rest");
    }
  }

  /** Checks that memory for slow or dead peers is bounded. */
  #checkBounds(): void {
    const most = 2 * this.#retainedBytes + MAX_QUEUED_BYTES;
    for (const [processId, { process }] of this.#host.records)
      if (process.log.retainedBytes > most)
        this.#onFault(`${process.log.retainedBytes} bytes are retained of ${processId}, more than ${most}`);
  }

  /** Checks that a session with only ended and acknowledged processes uses no further memory. */
  #checkReleased(): void {
    const timers = this.#clock.pending("server");
    if (timers > 0) this.#onFault(`${timers} timers of the server run for processes that are long over`);
    for (const [processId, { process }] of this.#host.records)
      if (process.log.retainedBytes > 0) this.#onFault(`output of ${processId} is still kept`);
  }

  #checkNothingIsLeft(): void {
    const left: [string, number][] = [
      ["sessions", this.#server.sessionCount],
      ["connections", this.#server.connectionCount],
      ["timers of the server", this.#clock.pending("server")],
      ["programs", [...this.#host.records.values()].filter(({ child }) => !child.isClosed).length],
      [
        "retained bytes",
        [...this.#host.records.values()].reduce((sum, { process }) => sum + process.log.retainedBytes, 0),
      ],
      ["timers of clients", this.#clients.reduce((sum, client) => sum + client.pendingTimers, 0)],
    ];
    for (const [what, count] of left) if (count > 0) this.#onFault(`${count} ${what} are left at the end`);
  }

  #onFault(text: string): void {
    this.#trace.add(`FAULT ${text}`);
    this.#found.push(text);
  }
}

/** Queue of a pump (2 MiB) and content of one pipe. */
const MAX_QUEUED_BYTES = 2 * 1024 * 1024 + 128 * 1024;

function randomProfile(random: Random): WireProfile {
  return {
    maxLatencyMs: random.pick([0, 1, 20, 300]),
    windowBytes: random.scaled(500, 200_000),
    byteWeight: random.pick([1, 1, 64, 256]),
    readsBytes: random.chance(0.5),
    withoutAcks: random.chance(0.15),
  };
}

function randomLimits(retainedBytes: number): Partial<EventLogLimits> {
  return { retainedBytes, headBytes: 2048, tailBytes: 2048 };
}

/** Runs all pending promise reactions. */
function runPendingReactions(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
