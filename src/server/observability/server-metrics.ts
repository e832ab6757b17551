import type { monitorEventLoopDelay } from "node:perf_hooks";
import type { HostProcess } from "../../exec/backend/host-backend.ts";
import { onceEnded } from "../../exec/backend/process-state.ts";
import type { ExitReason } from "../../exec/exec-process.ts";
import type { NetworkDecision } from "../../protocol/network/network-schemas.ts";
import type { QuotaName } from "../principal-quotas.ts";

/** Upper bounds in seconds. Responses and starts take from tens of microseconds to seconds; a wait may take minutes. */
const BOUNDS = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 2.5, 10, 60];

/** Sampling interval of the event loop delay. Each reported delay includes this interval. */
const LAG_RESOLUTION_MS = 20;

export interface EventLoopLag {
  meanSeconds: number;
  p99Seconds: number;
  maxSeconds: number;
}

/** Distribution of durations. */
export class Histogram {
  readonly bounds = BOUNDS;
  /** One entry per bound, plus one for values above the last bound. */
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

/** Reasons of the proxy itself. */
const NETWORK_REASONS: ReadonlySet<string> = new Set([
  "allow",
  "denied",
  "not_allowed",
  "not_allowed_local",
  "method_not_allowed",
  "mitm_required",
  "policy_denied",
  "proxy_disabled",
]);

/** Counters and histograms of a server, updated where the events happen. Exists only with `--metrics`. */
export class ServerMetrics {
  readonly #live = new Set<HostProcess>();
  readonly exitsByReason = new Map<ExitReason | "failed", number>();
  readonly rejectionsByStatus = new Map<number, number>();
  readonly quotaRefusals = new Map<QuotaName, number>();
  readonly requestDurations = new Map<string, Histogram>();
  readonly spawnDurations = new Histogram();
  /** Decisions of network proxies, by decision and then by reason. */
  readonly networkDecisions = new Map<NetworkDecision["decision"], Map<string, number>>();
  startedProcesses = 0;
  failedStarts = 0;
  acceptedConnections = 0;
  /** Streams of `forward/*` that are open now. */
  forwardStreams = 0;
  /** Bytes in both directions that the receiver has acknowledged. */
  forwardedBytes = 0;
  #endedOutputBytes = 0;
  #endedInputBytes = 0;
  #delay: ReturnType<typeof monitorEventLoopDelay> | null = null;

  /** Counts a started process, and later its end. */
  processStarted(process: HostProcess, tookMs: number): void {
    this.startedProcesses++;
    this.spawnDurations.observe(tookMs);
    this.#live.add(process);
    onceEnded(process, () => {
      const { log } = process;
      this.#live.delete(process);
      this.#endedOutputBytes += log.totalBytes;
      this.#endedInputBytes += process.inputBytes;
      increment(this.exitsByReason, log.exit?.reason ?? "failed");
    });
  }

  requestFinished(method: string, tookMs: number): void {
    let durations = this.requestDurations.get(method);
    if (!durations) {
      durations = new Histogram();
      this.requestDurations.set(method, durations);
    }
    durations.observe(tookMs);
  }

  networkDecided({ decision, reason }: NetworkDecision): void {
    const byReason = this.networkDecisions.get(decision) ?? new Map<string, number>();
    this.networkDecisions.set(decision, byReason);
    // A client chooses other texts, so they must not become label values.
    increment(byReason, NETWORK_REASONS.has(reason) ? reason : "other");
  }

  quotaRefused(quota: QuotaName): void {
    increment(this.quotaRefusals, quota);
  }

  connectionRejected(status: number): void {
    increment(this.rejectionsByStatus, status);
  }

  /** Returns the event loop delay since the previous call, or null on the first call, which starts sampling. */
  loopLag(): EventLoopLag | null {
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

  /** Number of processes whose output is paused because a reader is slow. */
  get pausedProcesses(): number {
    let paused = 0;
    for (const { log } of this.#live) if (log.isPaused) paused++;
    return paused;
  }

  /** Bytes of input that the pipes and terminals of processes have accepted. */
  get inputBytes(): number {
    let bytes = this.#endedInputBytes;
    for (const process of this.#live) bytes += process.inputBytes;
    return bytes;
  }

  /** Bytes of output. Output that descendants write after the process itself exited is not counted. */
  get outputBytes(): number {
    let bytes = this.#endedOutputBytes;
    for (const { log } of this.#live) bytes += log.totalBytes;
    return bytes;
  }
}

function increment<K>(counts: Map<K, number>, key: K): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}
