import type { monitorEventLoopDelay } from "node:perf_hooks";
import type { ExitReason } from "../../exec/exec-process.ts";
import type { HostProcess } from "../../exec/host-backend.ts";

/** Upper bounds in seconds. Answers and starts take from tens of microseconds to seconds; a wait may take minutes. */
const BOUNDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5, 10, 60];

/** How often the event loop is looked at; the delay it reports contains this much of waiting. */
const LAG_RESOLUTION_MS = 20;

export interface LoopLag {
  meanSeconds: number;
  p99Seconds: number;
  maxSeconds: number;
}

/** How often something took how long. */
export class Histogram {
  readonly bounds = BOUNDS;
  /** One more than there are bounds: the last counts what was longer than all of them. */
  readonly counts: number[] = new Array<number>(BOUNDS.length + 1).fill(0);
  sumSeconds = 0;
  count = 0;

  observe(ms: number): void {
    const seconds = ms / 1000;
    const at = BOUNDS.findIndex((bound) => seconds <= bound);
    const bucket = at < 0 ? BOUNDS.length : at;
    this.counts[bucket] = (this.counts[bucket] ?? 0) + 1;
    this.sumSeconds += seconds;
    this.count++;
  }
}

/** What an operator wants to know of a server, counted where it happens. A server without `--metrics` has none of it. */
export class ServerFigures {
  readonly #live = new Set<HostProcess>();
  readonly endedByReason = new Map<ExitReason | "failed", number>();
  readonly refusalsByStatus = new Map<number, number>();
  readonly requestDurations = new Map<string, Histogram>();
  readonly spawnDurations = new Histogram();
  startedProcesses = 0;
  failedStarts = 0;
  acceptedConnections = 0;
  /** Streams of `forward/*` that are open now. */
  forwardStreams = 0;
  /** In both directions, as far as the receiving side has taken them. */
  forwardedBytes = 0;
  #endedOutputBytes = 0;
  #endedInputBytes = 0;
  #delay: ReturnType<typeof monitorEventLoopDelay> | null = null;

  /** A process runs; its end is counted when it comes. */
  processStarted(process: HostProcess, tookMs: number): void {
    this.startedProcesses++;
    this.spawnDurations.observe(tookMs);
    this.#live.add(process);
    const { log } = process;
    const look = () => {
      if (log.exit === null && log.failure === null && !log.isClosed) return;
      stop();
      if (!this.#live.delete(process)) return;
      this.#endedOutputBytes += log.totalBytes;
      this.#endedInputBytes += process.inputBytes;
      count(this.endedByReason, log.exit?.reason ?? "failed");
    };
    const stop = log.listen(look);
    // It may have ended before anybody listened.
    look();
  }

  startFailed(): void {
    this.failedStarts++;
  }

  answered(method: string, tookMs: number): void {
    let durations = this.requestDurations.get(method);
    if (!durations) {
      durations = new Histogram();
      this.requestDurations.set(method, durations);
    }
    durations.observe(tookMs);
  }

  refusedAtDoor(status: number): void {
    count(this.refusalsByStatus, status);
  }

  /** Since it was last asked for. Measured from the first time on, so that a server nobody asks pays nothing. */
  loopLag(): LoopLag | null {
    const perfHooks = process.getBuiltinModule("node:perf_hooks");
    if (!this.#delay) {
      this.#delay = perfHooks.monitorEventLoopDelay({ resolution: LAG_RESOLUTION_MS });
      this.#delay.enable();
      return null;
    }
    const seconds = (nanoseconds: number) => Math.max(0, nanoseconds / 1e9 - LAG_RESOLUTION_MS / 1000);
    const { mean, max } = this.#delay;
    const lag = {
      meanSeconds: Number.isNaN(mean) ? 0 : seconds(mean),
      p99Seconds: seconds(this.#delay.percentile(99)),
      maxSeconds: seconds(max),
    };
    this.#delay.reset();
    return lag;
  }

  get liveProcesses(): number {
    return this.#live.size;
  }

  /** Processes that are paused at their pipe because a reader is slow. */
  get heldProcesses(): number {
    let held = 0;
    for (const { log } of this.#live) if (log.isHeld) held++;
    return held;
  }

  /** As far as their processes' pipes and terminals have taken it. */
  get inputBytes(): number {
    let bytes = this.#endedInputBytes;
    for (const process of this.#live) bytes += process.inputBytes;
    return bytes;
  }

  /** What is written after a process's own end (by its descendants) is not counted. */
  get outputBytes(): number {
    let bytes = this.#endedOutputBytes;
    for (const { log } of this.#live) bytes += log.totalBytes;
    return bytes;
  }
}

function count<K>(counts: Map<K, number>, key: K): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
