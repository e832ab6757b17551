import type { Clock, Timer } from "../../async/clock.ts";
import type { TokenScope } from "./token-scope.ts";

/** The token or certificate behind a connection, a console session or a share link. Each of them ends with it. */
export interface Credential {
  /** Claim `jti` of a JWT, by which it can be revoked. */
  readonly tokenId: string | undefined;
  /** End of validity by the wall clock, including the tolerated clock skew. Undefined: unlimited. */
  readonly expiresAtMs: number | undefined;
  /** Rights of the token. Undefined: all. */
  readonly scope: TokenScope | undefined;
  /**
   * Calls `listener` once when the token expires, is revoked or is removed. Returns the function that removes the listener,
   * or null if the credential has ended already.
   */
  onEnd(listener: (reason: string) => void): (() => void) | null;
}

/** Reasons for the end of a credential. The server sends them as the reason of the close. */
export const CREDENTIAL_END_REASONS = {
  expired: "the token has expired",
  revoked: "the token was revoked",
  removed: "the token is no longer valid",
} as const;

/** Maximum time until the wall clock is compared again, because it may jump, and timers stop while the host sleeps. */
const MAX_CHECK_INTERVAL_MS = 60_000;

export interface LiveCredentialOptions {
  clock: Clock;
  tokenId?: string | undefined;
  expiresAtMs?: number | undefined;
  scope?: TokenScope | undefined;
  /** Reason for the end at `expiresAtMs`. Default: that of a token. */
  expiredReason?: string | undefined;
  /** Called when the credential gets its first listener. */
  onUsed: (credential: LiveCredential) => void;
  /** Called when it has lost its last listener, or has ended. */
  onUnused: (credential: LiveCredential) => void;
}

/** A credential that the server can end. It has a timer only while it has listeners. */
export class LiveCredential implements Credential {
  readonly tokenId: string | undefined;
  readonly expiresAtMs: number | undefined;
  readonly scope: TokenScope | undefined;
  readonly #options: LiveCredentialOptions;
  readonly #listeners = new Set<(reason: string) => void>();
  #expiry: Timer | null = null;
  #hasEnded = false;

  constructor(options: LiveCredentialOptions) {
    this.tokenId = options.tokenId;
    this.expiresAtMs = options.expiresAtMs;
    this.scope = options.scope;
    this.#options = options;
  }

  onEnd(listener: (reason: string) => void): (() => void) | null {
    const remainingMs = this.#remainingMs();
    if (this.#hasEnded || (remainingMs !== null && remainingMs <= 0)) return null;
    // A wrapper, so that one function can listen twice.
    const entry = (reason: string) => listener(reason);
    this.#listeners.add(entry);
    if (this.#listeners.size === 1) {
      this.#scheduleExpiry();
      this.#options.onUsed(this);
    }
    return () => {
      if (this.#listeners.delete(entry) && this.#listeners.size === 0) this.#stop();
    };
  }

  get listenerCount(): number {
    return this.#listeners.size;
  }

  /** Ends the credential and calls its listeners. */
  end(reason: string): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const listeners = [...this.#listeners];
    this.#listeners.clear();
    this.#stop();
    for (const listener of listeners) listener(reason);
  }

  /** Returns null if the credential does not expire. */
  #remainingMs(): number | null {
    const { expiresAtMs } = this;
    return expiresAtMs === undefined ? null : expiresAtMs - this.#options.clock.now();
  }

  #scheduleExpiry(): void {
    const remainingMs = this.#remainingMs();
    if (remainingMs === null) return;
    if (remainingMs <= 0) {
      this.end(this.#options.expiredReason ?? CREDENTIAL_END_REASONS.expired);
      return;
    }
    this.#expiry = this.#options.clock.after(
      Math.min(remainingMs, MAX_CHECK_INTERVAL_MS),
      () => this.#scheduleExpiry(),
      { keepAlive: false },
    );
  }

  #stop(): void {
    this.#expiry?.cancel();
    this.#expiry = null;
    this.#options.onUnused(this);
  }
}
