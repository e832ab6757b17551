import { isObject } from "../../../agent/response-events.ts";
import { type Clock, sleep } from "../../../async/clock.ts";

export interface OutageOptions {
  /** Resolves when the database answers. */
  probe(): Promise<unknown>;
  /** How long a database may be away before the work on its rows is given up. */
  patienceMs: number;
  clock: Clock;
  /** Aborted when the user ends the program: then the wait is cut short. */
  signal?: AbortSignal | undefined;
  /** Told when an outage begins and when it is over. */
  tell(message: string): void;
}

/** The first look after a loss is soon, because most are only a session that was ended. */
const FIRST_LOOK_MS = 50;
/**
 * Rows that are held may be given to others once their heartbeat is too old: their process must notice that the
 * database is back before the engine does, which looks for old heartbeats every few seconds.
 */
const LONGEST_LOOK_MS = 250;
/** What a process that was told to end still waits, so that its rows can be given back. */
const INTERRUPTED_PATIENCE_MS = 3_000;

/** Waits, once for all statements of a process, while the database is away, and then has each of them run again. */
export class Outage {
  /** Called when the database is back, before any statement runs again. */
  readonly onBack = new Set<() => Promise<void>>();
  #options: OutageOptions;
  #waiting: Promise<void> | null = null;

  constructor(options: OutageOptions) {
    this.#options = options;
  }

  /**
   * Runs a task until the database was there from its beginning to its end. `isRepeat`: an earlier try may have been
   * carried out although its answer was lost.
   */
  async ride<T>(task: (isRepeat: boolean) => Promise<T>): Promise<T> {
    const { clock } = this.#options;
    let lostAtMs: number | null = null;
    for (;;) {
      try {
        return await task(lostAtMs !== null);
      } catch (error) {
        if (!isLostConnection(error)) throw error;
        lostAtMs ??= clock.steadyNow();
        if (clock.steadyNow() - lostAtMs > this.#patienceMs())
          throw gaveUp(error, clock.steadyNow() - lostAtMs);
        this.#waiting ??= this.#untilBack(error).finally(() => {
          this.#waiting = null;
        });
        await this.#waiting;
      }
    }
  }

  async #untilBack(loss: unknown): Promise<void> {
    const { clock, probe, tell } = this.#options;
    const lostAtMs = clock.steadyNow();
    let isTold = false;
    for (let delayMs = FIRST_LOOK_MS; ; delayMs = Math.min(LONGEST_LOOK_MS, delayMs * 2)) {
      await sleep(clock, delayMs);
      try {
        await probe();
        await Promise.all([...this.onBack].map((act) => act()));
        if (isTold) tell(`the database is back after ${secondsText(clock.steadyNow() - lostAtMs)}`);
        return;
      } catch (error) {
        if (!isLostConnection(error)) throw error;
        const awayMs = clock.steadyNow() - lostAtMs;
        if (awayMs > this.#patienceMs()) throw gaveUp(error, awayMs);
        if (!isTold) tell(`${messageOf(loss)}; waiting until it is back`);
        isTold = true;
      }
    }
  }

  #patienceMs(): number {
    const { patienceMs, signal } = this.#options;
    return signal?.aborted ? Math.min(INTERRUPTED_PATIENCE_MS, patienceMs) : patienceMs;
  }
}

function gaveUp(error: unknown, awayMs: number): Error {
  return new Error(`the database has been away for ${secondsText(awayMs)}: ${messageOf(error)}`, {
    cause: error,
  });
}

function secondsText(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message || codeOf(error) : String(error);
}

/**
 * Codes of the system, and of Postgres: connection exceptions (08), shutdown, crash and start-up (57P01 to 57P03), an idle
 * session that was ended (57P05), and no connection left (53300).
 */
const LOST =
  /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|08\w{3}|57P0[1235]|53300)$/;

/** What the driver says without a code. */
const LOST_TEXT =
  /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|Client has encountered a connection error|Client was closed)/;

function isLostConnection(error: unknown): boolean {
  return LOST.test(codeOf(error)) || (error instanceof Error && LOST_TEXT.test(error.message));
}

function codeOf(error: unknown): string {
  return isObject(error) && typeof error.code === "string" ? error.code : "";
}
