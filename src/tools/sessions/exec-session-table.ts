import type { ExecSession } from "./exec-session.ts";

export interface SessionLimits {
  /** More than this many make the least recently used go. */
  maxSessions: number;
  /** This many of the most recently used never go. */
  protectedSessions: number;
}

/** As in Codex: plenty for one model, and an end to forgotten servers. */
export const DEFAULT_SESSION_LIMITS: SessionLimits = { maxSessions: 64, protectedSessions: 8 };

/** The sessions a model can name, in the order of their last use. */
export class SessionTable {
  readonly #limits: SessionLimits;
  /** Least recently used first. */
  readonly #sessions = new Map<number, ExecSession>();
  #lastId = 0;

  constructor(limits: SessionLimits = DEFAULT_SESSION_LIMITS) {
    this.#limits = limits;
  }

  /** A number that was never used before: a model that still remembers an old one cannot reach a new process with it. */
  allocate(): number {
    return ++this.#lastId;
  }

  /** Adds a session, and returns the one that is evicted for it, if any. */
  add(session: ExecSession): ExecSession | null {
    this.#sessions.set(session.sessionId, session);
    const goes = this.#sessions.size > this.#limits.maxSessions ? this.#leastWorthy() : null;
    if (goes) this.remove(goes);
    return goes;
  }

  get(sessionId: number): ExecSession | null {
    return this.#sessions.get(sessionId) ?? null;
  }

  /** It has just been used. */
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

  /** Exited sessions first, then those no call waits for, each by their last use. */
  #leastWorthy(): ExecSession | null {
    // The one that has just come stays in any case.
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
