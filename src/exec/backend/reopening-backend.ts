import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import { DisconnectedError } from "../../protocol/errors.ts";
import type { ExecBackend, ExecProcess, ProcessListing, StartParams } from "../exec-process.ts";

/** A backend and the session that it depends on. */
export interface SessionBackend {
  backend: ExecBackend;
  /** Waits while the session may still recover; resolves false once it is lost for good. */
  isUsable(): Promise<boolean>;
  close(): Promise<void>;
}

/** Maximum time for which reopening retries: a restarting server listens again after a moment. */
const REOPEN_TIMEOUT_MS = 5000;
const RETRY_INTERVAL_MS = 200;

/**
 * A backend that outlives its sessions: when a session is lost for good, the next start opens a new one. Processes of
 * the lost session are lost. A start is sent once: if the connection breaks before the result arrives, the process
 * may have started, so the error is reported and not retried.
 */
export class ReopeningBackend implements ExecBackend {
  readonly defaultCwd: string | undefined;
  readonly #open: () => Promise<SessionBackend>;
  readonly #clock: Clock;
  #current: Promise<SessionBackend>;
  #reopenCount = 0;
  #isClosed = false;

  constructor(first: SessionBackend, open: () => Promise<SessionBackend>, clock: Clock = systemClock) {
    this.defaultCwd = first.backend.defaultCwd;
    this.#current = Promise.resolve(first);
    this.#open = open;
    this.#clock = clock;
  }

  /** How often a lost session was replaced by a new one. */
  get reopenCount(): number {
    return this.#reopenCount;
  }

  async start(params: StartParams): Promise<ExecProcess> {
    const backend = await this.#ensureOpen();
    try {
      return await backend.start(params);
    } catch (error) {
      if (!(error instanceof DisconnectedError)) throw error;
      throw new Error(`${error.message}; the process may have been started or not`, { cause: error });
    }
  }

  async list(): Promise<ProcessListing[]> {
    return (await this.#ensureOpen()).list();
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const current = await this.#current.catch(() => null);
    await current?.close();
  }

  /** Calls wait while a session is being opened; if opening fails, only these calls fail. */
  async #ensureOpen(): Promise<ExecBackend> {
    for (;;) {
      const known = this.#current;
      const session = await known;
      if (await session.isUsable()) return session.backend;
      if (this.#isClosed) throw new DisconnectedError("the connection was closed");
      if (this.#current !== known) continue;
      const opening = this.#reopen(session);
      this.#current = opening;
      opening.catch(() => {
        // Restores the lost session, so that the next call tries again.
        if (this.#current === opening) this.#current = known;
      });
    }
  }

  async #reopen(lost: SessionBackend): Promise<SessionBackend> {
    const deadline = this.#clock.monotonic() + REOPEN_TIMEOUT_MS;
    await lost.close();
    for (;;) {
      try {
        const session = await this.#open();
        this.#reopenCount++;
        if (this.#isClosed) await session.close();
        return session;
      } catch (error) {
        if (this.#isClosed || this.#clock.monotonic() + RETRY_INTERVAL_MS >= deadline) throw error;
      }
      await sleep(this.#clock, RETRY_INTERVAL_MS);
    }
  }
}
