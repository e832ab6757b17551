import { type Clock, sleep } from "./clock.ts";

export interface OutageOptions {
  words: OutageWords;
  /** Whether an error means that the service cannot be reached, as opposed to a refusal by it. */
  isLoss(error: unknown): boolean;
  /** Resolves when the service can be used. */
  probe(): Promise<unknown>;
  /** How long an outage may last before the wait is given up. */
  patienceMs: number;
  clock: Clock;
  /** Aborted when the user ends the program: then the wait is cut short. */
  signal?: AbortSignal | undefined;
  /** Told when an outage begins and when it is over. */
  tell(message: string): void;
}

/** How an outage is told. */
export interface OutageWords {
  /** After the error that began it: what is waited for. */
  waiting: string;
  /** Before the time it took. */
  back: string;
  /** Before the time after which it was given up. */
  gaveUp: string;
}

/** The first look after a loss is soon, because most are only a session that was ended. */
const FIRST_LOOK_MS = 50;
/**
 * A worker that holds rows by a heartbeat must reach the database again before the database's sweep for old heartbeats,
 * which runs every few seconds.
 */
const LONGEST_LOOK_MS = 250;
/** How long a program that was told to end still waits, so that it can settle what it has. */
const INTERRUPTED_PATIENCE_MS = 3_000;

/** Patience is over. */
export class OutageError extends Error {}

/** Lets all tasks of a program wait together while a service is away, then runs each of them again. */
export class Outage {
  /** Called when the service is back, before any task runs again. */
  readonly onBack = new Set<() => Promise<void>>();
  #options: OutageOptions;
  #waiting: Promise<void> | null = null;
  /** When the outage began. Kept after patience is over: tasks that come later are tried once and do not wait. */
  #awaySinceMs: number | null = null;
  #backAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: OutageOptions) {
    this.#options = options;
  }

  /** How long the service has been reachable; 0 during an outage. */
  get steadyMs(): number {
    return this.#awaySinceMs === null ? this.#options.clock.monotonic() - this.#backAtMs : 0;
  }

  /**
   * Runs a task until no outage interrupts it. `isRepeat`: an earlier try may have been carried out although its answer
   * was lost.
   */
  async ride<T>(task: (isRepeat: boolean) => Promise<T>): Promise<T> {
    for (let isRepeat = false; ; isRepeat = true) {
      try {
        const value = await task(isRepeat);
        if (!this.#waiting && this.#awaySinceMs !== null) {
          this.#awaySinceMs = null;
          this.#backAtMs = this.#options.clock.monotonic();
        }
        return value;
      } catch (error) {
        if (!this.#options.isLoss(error)) throw error;
        this.#checkPatience(error);
        this.#waiting ??= this.#untilBack(error).finally(() => {
          this.#waiting = null;
        });
        await this.#waiting;
      }
    }
  }

  async #untilBack(loss: unknown): Promise<void> {
    const { clock, probe, tell, words, isLoss } = this.#options;
    const lostAtMs = clock.monotonic();
    let isTold = false;
    for (let delayMs = FIRST_LOOK_MS; ; delayMs = Math.min(LONGEST_LOOK_MS, delayMs * 2)) {
      await sleep(clock, delayMs);
      try {
        await probe();
        await Promise.all([...this.onBack].map((act) => act()));
        if (isTold) tell(`${words.back} after ${secondsText(clock.monotonic() - lostAtMs)}`);
        return;
      } catch (error) {
        if (!isLoss(error)) throw error;
        this.#checkPatience(error);
        if (!isTold) tell(`${messageOf(loss)}; waiting until ${words.waiting}`);
        isTold = true;
      }
    }
  }

  #checkPatience(error: unknown): void {
    const now = this.#options.clock.monotonic();
    this.#awaySinceMs ??= now;
    const awayMs = now - this.#awaySinceMs;
    if (awayMs <= this.#patienceMs()) return;
    const { gaveUp } = this.#options.words;
    throw new OutageError(`${gaveUp} for ${secondsText(awayMs)}: ${messageOf(error)}`, { cause: error });
  }

  #patienceMs(): number {
    const { patienceMs, signal } = this.#options;
    return signal?.aborted ? Math.min(INTERRUPTED_PATIENCE_MS, patienceMs) : patienceMs;
  }
}

function secondsText(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}

function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  // Several addresses that were tried have an error each, and the whole has no message.
  return error.message || ("code" in error ? String(error.code) : error.name);
}
