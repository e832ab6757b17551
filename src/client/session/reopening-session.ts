import { abortable } from "../../async/abort.ts";
import { withDeadline } from "../../async/deadline.ts";
import { errorMessage } from "../../base/error-message.ts";
import { DisconnectedError, invalidRequest } from "../../protocol/errors.ts";
import { isUnauthorized, retryUntilResumed } from "./reconnect-policy.ts";
import type { SessionEvents, SessionOptions } from "./reconnecting-session.ts";
import { ReconnectingSession, UnsentCallError } from "./reconnecting-session.ts";

/** Events of the sessions of one client. Events of a lost session are not reported. */
export interface ReopeningSessionEvents extends Omit<SessionEvents, "onFailed"> {
  /** Called when a session was opened: the first one, or a new one in place of a lost one. */
  onOpened(): void;
  /** Called when the session is lost. The next call opens a new one. */
  onLost(error: DisconnectedError): void;
  /** Called when the session is lost and no new one follows. Called once. */
  onEnded(error: DisconnectedError): void;
}

/**
 * Maximum time for which a call tries to open a new session: a restarting server listens again after a moment. An
 * earlier deadline of the reconnect policy applies.
 */
const REOPEN_TIMEOUT_MS = 5000;

/** Maximum sessions for one call: a server may lose the new session before it received the call. */
const MAX_SESSIONS_PER_CALL = 5;

/**
 * The sessions of one client, one after another: when a session is lost, the next call opens a new one. Calls that are
 * made meanwhile share it. Processes, files and streams belong to the session that created them and are lost with it.
 */
export class ReopeningSession {
  readonly #events: ReopeningSessionEvents;
  readonly #ended = new AbortController();
  /** Options of the first session; null before `open`. */
  #options: SessionOptions | null = null;
  #current: ReconnectingSession | null = null;
  #opening: Promise<ReconnectingSession> | null = null;
  /** Why no session is opened any more; null while one may be. */
  #end: DisconnectedError | null = null;
  /** Number of the last session that was opened or is being opened. Events of earlier ones are ignored. */
  #sessionNumber = 0;

  constructor(events: ReopeningSessionEvents) {
    this.#events = events;
  }

  /** Opens the first session. Later sessions have the same options, and resume no earlier session. */
  async open(options: SessionOptions, signal?: AbortSignal): Promise<void> {
    this.#options = options;
    await this.#open(options, signal);
  }

  /** The current session; the lost one until a new one is open. */
  get current(): ReconnectingSession {
    if (!this.#current) throw new Error("the client is not connected yet");
    return this.#current;
  }

  /**
   * Runs an operation in the current session, or in a new one if the session is lost. The first call of the operation
   * has `isMovable`: if the session is lost before a server has executed this call, the operation runs again in a new session.
   * All other failures reject, because a server may have executed the call. If the signal aborts, or `reopenTimeoutMs` passes,
   * while the session is opened, the operation does not run.
   */
  async run<T>(
    operation: (session: ReconnectingSession) => Promise<T>,
    signal?: AbortSignal,
    reopenTimeoutMs?: number,
  ): Promise<T> {
    for (let sessions = 1; ; sessions++) {
      const session = this.current.isDisconnected ? await this.#reopen(signal, reopenTimeoutMs) : this.current;
      try {
        return await operation(session);
      } catch (error) {
        if (!(error instanceof UnsentCallError)) throw error;
        if (this.#end || sessions === MAX_SESSIONS_PER_CALL) throw error.loss;
      }
    }
  }

  close(): void {
    this.#finish(new DisconnectedError("the client was closed"), () => this.#current?.close());
  }

  async #reopen(signal: AbortSignal | undefined, timeoutMs: number | undefined): Promise<ReconnectingSession> {
    if (this.#end) throw this.#end;
    this.#opening ??= this.#openNext().finally(() => {
      this.#opening = null;
    });
    const opening = abortable(this.#opening, signal);
    if (timeoutMs === undefined) return opening;
    return withDeadline(opening, timeoutMs, "a new session", this.#options?.clock);
  }

  async #openNext(): Promise<ReconnectingSession> {
    const { signal } = this.#ended;
    if (!this.#options?.reconnect) throw new Error("the client does not open new sessions");
    const options: SessionOptions = { ...this.#options, resumeSessionId: null, takeOver: false };
    const { reconnect, clock } = this.#options;
    const policy = { ...reconnect, deadlineMs: Math.min(reconnect.deadlineMs, REOPEN_TIMEOUT_MS) };
    try {
      return await retryUntilResumed(() => this.#open(options, signal), policy, clock, signal);
    } catch (cause) {
      if (this.#end) throw this.#end;
      const reason = `session lost; failed to open a new session: ${errorMessage(cause)}`;
      const error = new DisconnectedError(reason, { cause });
      if (isUnauthorized(cause)) this.#finish(error);
      throw error;
    }
  }

  async #open(options: SessionOptions, signal: AbortSignal | undefined): Promise<ReconnectingSession> {
    const sessionNumber = ++this.#sessionNumber;
    const session = await ReconnectingSession.open(options, this.#listener(sessionNumber), signal);
    if (this.#end) {
      session.close();
      throw this.#end;
    }
    this.#current = session;
    // A connection that was lost meanwhile has been reported, and its resumption is reported later.
    if (session.isConnected) this.#events.onOpened();
    return session;
  }

  #listener(sessionNumber: number): SessionEvents {
    const isCurrent = () => sessionNumber === this.#sessionNumber && !this.#end;
    return {
      onNotification: (notification) => {
        if (isCurrent()) this.#events.onNotification(notification);
      },
      onRequest: async (request, signal) => {
        const { onRequest } = this.#events;
        if (!isCurrent() || !onRequest) throw invalidRequest(`unknown method: ${request.method}`);
        return onRequest(request, signal);
      },
      onDisconnect: (reason) => {
        if (isCurrent()) this.#events.onDisconnect(reason);
      },
      onResumed: () => {
        if (isCurrent()) this.#events.onResumed();
      },
      onFailed: (error, canReopen) => {
        if (!isCurrent()) return;
        if (canReopen && this.#options?.reconnect?.newSession) this.#events.onLost(error);
        else this.#finish(error);
      },
    };
  }

  #finish(error: DisconnectedError, closeSession?: () => void): void {
    if (this.#end) return;
    this.#end = error;
    this.#ended.abort(error);
    closeSession?.();
    this.#events.onEnded(error);
  }
}
