import type { ExecSession } from "./exec-session.ts";

export interface SessionLimits {
  /** Maximum number of sessions. Beyond it, the least recently used is evicted. */
  maxSessions: number;
  /** Number of most recently used sessions that are never evicted. */
  protectedSessions: number;
}

/** The limits of Codex. Enough for one model, and evicts forgotten servers. */
export const DEFAULT_SESSION_LIMITS: SessionLimits = { maxSessions: 64, protectedSessions: 8 };

/** The exec sessions that a model can use, in the order of their last use. */
export class ExecSessionTable {
  readonly #limits: SessionLimits;
  /** Least recently used first. */
  readonly #sessions = new Map<number, ExecSession>();
  #lastId = 0;

  constructor(limits: SessionLimits = DEFAULT_SESSION_LIMITS) {
    this.#limits = limits;
  }

  /** Returns an unused session id. Ids are never reused, so that an old id cannot address a new process. */
  allocate(): number {
    return ++this.#lastId;
  }

  /** Adds a session. Returns the session that is evicted for it, or null. */
  add(session: ExecSession): ExecSession | null {
    this.#sessions.set(session.sessionId, session);
    const evicted = this.#sessions.size > this.#limits.maxSessions ? this.#evictionCandidate() : null;
    if (evicted) this.remove(evicted);
    return evicted;
  }

  get(sessionId: number): ExecSession | null {
    return this.#sessions.get(sessionId) ?? null;
  }

  /** Marks a session as most recently used. */
  touch(session: ExecSession): void {
    if (this.#sessions.get(session.sessionId) !== session) return;
    this.#sessions.delete(session.sessionId);
    this.#sessions.set(session.sessionId, session);
  }

  remove(session: ExecSession): void {
    if (this.#sessions.get(session.sessionId) === session) this.#sessions.delete(session.sessionId);
  }

  /** Most recently used first. */
  list(): ExecSession[] {
    return [...this.#sessions.values()].reverse();
  }

  /** Prefers exited sessions, then unwatched ones, each in the order of their last use. */
  #evictionCandidate(): ExecSession | null {
    // Never evicts the session that was just added.
    const recent = Math.max(1, Math.min(this.#limits.protectedSessions, this.#limits.maxSessions));
    const candidates = [...this.#sessions.values()].slice(0, -recent);
    return (
      candidates.find((session) => session.end !== null) ??
      candidates.find((session) => !session.watched) ??
      candidates[0] ??
      null
    );
  }
}
