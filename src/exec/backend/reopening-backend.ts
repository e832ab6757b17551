import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import { DisconnectedError } from "../../protocol/errors.ts";
import type { ExecBackend, ExecProcess, ProcessListing, StartParams } from "../exec-process.ts";

/** A backend for as long as its session lasts. */
export interface SessionBackend {
  backend: ExecBackend;
  /** Waits out a loss that may be recovered from; false once the session is lost for good. */
  isUsable(): Promise<boolean>;
  close(): Promise<void>;
}

/** A server that is being restarted takes a moment until it listens again. */
const RESTART_PATIENCE_MS = 5000;
const RETRY_MS = 200;

/**
 * A backend that outlives its sessions: when one is lost for good, the next start opens another. Processes of the old one
 * are gone. A start is sent once: one that was lost under way may have happened, so it is told, not repeated.
 */
export class RenewedBackend implements ExecBackend {
  readonly defaultCwd: string | undefined;
  readonly #open: () => Promise<SessionBackend>;
  readonly #clock: Clock;
  #current: Promise<SessionBackend>;
  #renewals = 0;
  #closed = false;

  constructor(first: SessionBackend, open: () => Promise<SessionBackend>, clock: Clock = systemClock) {
    this.defaultCwd = first.backend.defaultCwd;
    this.#current = Promise.resolve(first);
    this.#open = open;
    this.#clock = clock;
  }

  /** How often a session was lost and another one opened. */
  get renewals(): number {
    return this.#renewals;
  }

  async start(params: StartParams): Promise<ExecProcess> {
    const backend = await this.#usable();
    try {
      return await backend.start(params);
    } catch (error) {
      if (!(error instanceof DisconnectedError)) throw error;
      throw new Error(`${error.message}; the process may have been started or not`, { cause: error });
    }
  }

  async list(): Promise<ProcessListing[]> {
    return (await this.#usable()).list();
  }

  async close(): Promise<void> {
    this.#closed = true;
    const current = await this.#current.catch(() => null);
    await current?.close();
  }

  /** Calls made while a session is being opened wait for it; if that fails, only they fail. */
  async #usable(): Promise<ExecBackend> {
    for (;;) {
      const known = this.#current;
      const session = await known;
      if (await session.isUsable()) return session.backend;
      if (this.#closed) throw new DisconnectedError("the connection was closed");
      if (this.#current !== known) continue;
      const opening = this.#renew(session);
      this.#current = opening;
      opening.catch(() => {
        // Back to the lost session, so that the next call tries again.
        if (this.#current === opening) this.#current = known;
      });
    }
  }

  async #renew(lost: SessionBackend): Promise<SessionBackend> {
    const deadline = this.#clock.now() + RESTART_PATIENCE_MS;
    await lost.close();
    for (;;) {
      try {
        const session = await this.#open();
        this.#renewals++;
        if (this.#closed) await session.close();
        return session;
      } catch (error) {
        if (this.#closed || this.#clock.now() + RETRY_MS >= deadline) throw error;
      }
      await sleep(this.#clock, RETRY_MS);
    }
  }
}
