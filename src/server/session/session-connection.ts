import type { Clock, Timer } from "../../async/clock.ts";
import type { SessionClient } from "./session-process.ts";

export type SessionConnectionState =
  | { type: "connected"; client: SessionClient }
  /** `extensions` of the last client apply to processes whose start completes meanwhile. */
  | { type: "detached"; expiry: Timer; extensions: SessionClient["extensions"] }
  /** The processes have ended, and the session cannot be resumed. */
  | { type: "ended" };

export interface SessionConnectionOptions {
  clock: Clock;
  /** Lifetime of the session without a connection, in milliseconds. */
  detachedTtlMs: number;
  onExpired: () => void;
}

/** The connection state of a session: connected, detached until its TTL elapses, or ended. */
export class SessionConnection {
  readonly #options: SessionConnectionOptions;
  #state: SessionConnectionState;
  #clientCount = 1;

  /** Without a client, the session is detached: a restored session waits for its client. */
  constructor(client: SessionClient | null, options: SessionConnectionOptions) {
    this.#options = options;
    this.#state = client ? { type: "connected", client } : this.#detachedState(new Set());
  }

  get state(): SessionConnectionState {
    return this.#state;
  }

  get client(): SessionClient | null {
    return this.#state.type === "connected" ? this.#state.client : null;
  }

  /** Number of clients that have had the session. A client that resumes its own session does not count again. */
  get clientCount(): number {
    return this.#clientCount;
  }

  /** Restores the count of a session of the previous server. */
  restoreClientCount(count: number): void {
    this.#clientCount = Math.max(this.#clientCount, count);
  }

  connect(client: SessionClient, kind: "same" | "another"): void {
    if (kind === "another") this.#clientCount++;
    this.#cancelExpiry();
    this.#state = { type: "connected", client };
  }

  detach(extensions: SessionClient["extensions"]): void {
    this.#state = this.#detachedState(extensions);
  }

  end(): void {
    this.#cancelExpiry();
    this.#state = { type: "ended" };
  }

  #detachedState(extensions: SessionClient["extensions"]): SessionConnectionState {
    const { clock, detachedTtlMs, onExpired } = this.#options;
    return {
      type: "detached",
      expiry: clock.after(detachedTtlMs, onExpired, { keepAlive: false }),
      extensions,
    };
  }

  #cancelExpiry(): void {
    if (this.#state.type === "detached") this.#state.expiry.cancel();
  }
}
