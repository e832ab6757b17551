import { getErrorCode } from "../base/error-code.ts";
import { type Clock, sleep } from "./clock.ts";

export interface OutageOptions {
  messages: OutageMessages;
  /** Reports whether an error means that the service is unreachable, in contrast to an error response. */
  isOutage(error: unknown): boolean;
  /** Resolves if the service is reachable. */
  probe(): Promise<unknown>;
  /** Maximum duration of an outage. */
  timeoutMs: number;
  clock: Clock;
  /** Aborts when the user interrupts the command, which shortens the timeout. */
  signal?: AbortSignal | undefined;
  /** Called when an outage begins and when it ends. */
  report(message: string): void;
}

/** Text fragments of the outage messages. */
export interface OutageMessages {
  /** Follows "waiting until". */
  waiting: string;
  /** Precedes the duration of a finished outage. */
  back: string;
  /** Precedes the duration after which the wait ended without success. */
  gaveUp: string;
}

/** Delay before the first probe. Short, because most outages are only a database session that ended. */
const FIRST_PROBE_DELAY_MS = 50;
/**
 * Maximum delay between probes. A worker must reach the database again before the sweep for expired heartbeats, which runs
 * every few seconds.
 */
const MAX_PROBE_DELAY_MS = 250;
/** Outage timeout after an interrupt, so that the program can still store its outcomes. */
const INTERRUPTED_TIMEOUT_MS = 3_000;

/** The outage lasted longer than its timeout. */
export class OutageTimeoutError extends Error {}

/** Retries tasks after an outage of a service. All tasks share one probe. */
export class OutageRetry {
  /** Called when the service is reachable again, before any task is retried. */
  readonly onRecovered = new Set<() => Promise<void>>();
  #options: OutageOptions;
  #waiting: Promise<void> | null = null;
  /** Start of the outage. Stays set after the timeout: later tasks are tried once and do not wait. */
  #downSinceMs: number | null = null;
  #recoveredAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: OutageOptions) {
    this.#options = options;
  }

  /** How long the service has been reachable; 0 during an outage. */
  get healthyForMs(): number {
    return this.#downSinceMs === null ? this.#options.clock.monotonic() - this.#recoveredAtMs : 0;
  }

  /**
   * Runs a task until no outage interrupts it. With `isRepeat`, an earlier attempt may have succeeded although its
   * response was lost.
   */
  async run<T>(task: (isRepeat: boolean) => Promise<T>): Promise<T> {
    for (let isRepeat = false; ; isRepeat = true) {
      try {
        const value = await task(isRepeat);
        if (!this.#waiting && this.#downSinceMs !== null) {
          this.#downSinceMs = null;
          this.#recoveredAtMs = this.#options.clock.monotonic();
        }
        return value;
      } catch (error) {
        if (!this.#options.isOutage(error)) throw error;
        this.#checkTimeout(error);
        this.#waiting ??= this.#untilRecovered(error).finally(() => {
          this.#waiting = null;
        });
        await this.#waiting;
      }
    }
  }

  async #untilRecovered(loss: unknown): Promise<void> {
    const { clock, probe, report, messages, isOutage } = this.#options;
    const lostAtMs = clock.monotonic();
    let isReported = false;
    for (let delayMs = FIRST_PROBE_DELAY_MS; ; delayMs = Math.min(MAX_PROBE_DELAY_MS, delayMs * 2)) {
      await sleep(clock, delayMs);
      try {
        await probe();
        await Promise.all([...this.onRecovered].map((listener) => listener()));
        if (isReported) report(`${messages.back} after ${secondsText(clock.monotonic() - lostAtMs)}`);
        return;
      } catch (error) {
        if (!isOutage(error)) throw error;
        this.#checkTimeout(error);
        if (!isReported) report(`${describeError(loss)}; waiting until ${messages.waiting}`);
        isReported = true;
      }
    }
  }

  #checkTimeout(error: unknown): void {
    const now = this.#options.clock.monotonic();
    this.#downSinceMs ??= now;
    const downMs = now - this.#downSinceMs;
    if (downMs <= this.#timeoutMs()) return;
    const { gaveUp } = this.#options.messages;
    throw new OutageTimeoutError(`${gaveUp} for ${secondsText(downMs)}: ${describeError(error)}`, {
      cause: error,
    });
  }

  #timeoutMs(): number {
    const { timeoutMs, signal } = this.#options;
    return signal?.aborted ? Math.min(INTERRUPTED_TIMEOUT_MS, timeoutMs) : timeoutMs;
  }
}

function secondsText(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}

function describeError(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // An AggregateError of several connection attempts has an empty message.
  return error.message || (getErrorCode(error) ?? error.name);
}
