import type { Clock } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { messageOf } from "../../base/error-message.ts";
import {
  DISCONNECTED_PREFIX,
  DisconnectedError,
  ErrorCode,
  isTakenOver,
  RequestError,
} from "../../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf, ServerNotification } from "../../protocol/methods.ts";
import type { Caller, CallerEnd, CallerEvents, Connect } from "../caller.ts";
import { LastAcks } from "../last-acks.ts";
import { type HandshakeOptions, type ServerTraits, shakeHands } from "../rpc/handshake.ts";
import { SilenceWatch } from "../silence-watch.ts";
import { type ReconnectPolicy, retryUntilAnswered, retryUntilResumed } from "./reconnect-policy.ts";

export interface LinkOptions {
  connect: Connect;
  clientName: string;
  initializeTimeoutMs: number;
  /** Null: a lost connection is the end. */
  reconnect: ReconnectPolicy | null;
  clock: Clock;
  resumeSessionId: string | null;
  takeOver: boolean;
  trace?: CallerEvents["trace"];
}

export interface LinkListener {
  notified(notification: ServerNotification): void;
  /** The connection is lost; the client reconnects. */
  lost(reason: string | null): void;
  /** The same session, on a new connection. Told before calls that waited are sent again. */
  resumed(): void;
  /** The end: every call fails from now on. */
  failed(error: DisconnectedError): void;
}

export interface LinkCallOptions<M extends MethodName> {
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
  /**
   * `always`: safe to repeat, so it is sent again after a loss. `sameServer`: the same, but not to a server that has
   * replaced the one it was sent to, which would have recognised the repetition. `unsent`: only a call that was never
   * handed to a connection is sent; any other may have been carried out or not, so it rejects and the caller decides.
   */
  resend?: Resend;
  /** Gives the params when the call is sent again. */
  renew?: () => ParamsOf<M>;
}

export type Resend = "always" | "sameServer" | "unsent";

type State =
  | { type: "up"; caller: Caller }
  | { type: "recovering" }
  | { type: "down"; error: DisconnectedError };

interface PendingCall {
  /** On which connection it is under way; null while it waits for one. */
  caller: Caller | null;
  wasSent: boolean;
  readonly resend: Resend;
  send(caller: Caller): void;
  reject(reason: unknown): void;
}

/** One session with a server across connections: calls wait while there is none, and go on when there is. */
export class Link {
  readonly #options: LinkOptions;
  readonly #listener: LinkListener;
  /** In the order they were made, which is the order they are sent again in. */
  readonly #pending = new Set<PendingCall>();
  readonly #holders = new Set<unknown>();
  readonly #lastAcks = new LastAcks();
  readonly #ended = new AbortController();
  #state: State = { type: "recovering" };
  #server: ServerTraits = UNKNOWN_SERVER;
  #isInputPaused = false;
  #silence: SilenceWatch | null = null;

  private constructor(options: LinkOptions, listener: LinkListener) {
    this.#options = options;
    this.#listener = listener;
  }

  /** Connects and shakes hands. */
  static async open(options: LinkOptions, listener: LinkListener, signal?: AbortSignal): Promise<Link> {
    const link = new Link(options, listener);
    const { resumeSessionId, takeOver, initializeTimeoutMs, reconnect, clock } = options;
    const until = signal ?? link.#ended.signal;
    const attach = () =>
      link.#attach({ resumeSessionId, takeOver, takeOverFrom: null }, initializeTimeoutMs, until);
    // A resume that was lost may have been done: the session then counts as attached for a while.
    const isRepeatable = reconnect !== null && resumeSessionId === null;
    link.#adopt(await (isRepeatable ? retryUntilAnswered(attach, reconnect, clock, until) : attach()));
    return link;
  }

  get server(): ServerTraits {
    return this.#server;
  }

  get isDown(): boolean {
    return this.#state.type === "down";
  }

  call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options: LinkCallOptions<M> = {},
  ): Promise<ResultOf<M>> {
    if (this.#state.type === "down") return Promise.reject(this.#state.error);
    if (options.signal?.aborted) return Promise.reject(options.signal.reason);
    const { promise, resolve, reject } = Promise.withResolvers<ResultOf<M>>();
    const { signal, timeoutMs } = options;
    let isFirst = true;
    const pending: PendingCall = {
      caller: null,
      wasSent: false,
      resend: options.resend ?? "always",
      send: (caller) => {
        const current = isFirst ? params : (options.renew?.() ?? params);
        isFirst = false;
        const sentAs = this.#lastAcks.callSent();
        caller.call(method, current).then(
          (result) => {
            this.#silence?.heard();
            this.#lastAcks.answered(caller, sentAs);
            if (pending.caller === caller) settle(() => resolve(result));
          },
          (error: Error) => {
            // Calls of a lost connection are handled in `#onClosed`.
            if (error instanceof DisconnectedError) return;
            this.#lastAcks.answered(caller, sentAs);
            if (pending.caller !== caller) return;
            if (!this.#options.reconnect || !isBeingReplaced(error)) return pending.reject(error);
            // Nothing was done, and this connection is about to be closed: sent on the next one as for the first time.
            pending.caller = null;
            pending.wasSent = false;
            isFirst = true;
          },
        );
      },
      reject: (error) => settle(() => reject(error)),
    };
    const onAbort = () => pending.reject(signal?.reason);
    const timer =
      timeoutMs === undefined
        ? null
        : this.#options.clock.after(timeoutMs, () => pending.reject(new TimeoutError(method, timeoutMs)));
    const settle = (finish: () => void) => {
      this.#pending.delete(pending);
      timer?.cancel();
      signal?.removeEventListener("abort", onAbort);
      finish();
      this.#updatePause();
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#pending.add(pending);
    this.#updatePause();
    if (this.#state.type === "up") this.#send(pending, this.#state.caller);
    return promise;
  }

  /**
   * Confirms output, where the server asked for that. Nothing is lost when there is no connection: confirmed later. The
   * last one of a process is sent until it is sure to have arrived.
   */
  ack(processId: string, seq: number, isLast: boolean): void {
    if (this.#state.type === "down" || !this.#server.granted.has("outputAck")) return;
    const caller = this.#state.type === "up" ? this.#state.caller : null;
    caller?.ack(processId, seq);
    if (isLast) this.#lastAcks.add(processId, seq, caller);
  }

  /** A stream ends with its connection, and what was under way with it: nothing to confirm where there is none. */
  confirmForwarded(streamId: string, bytes: number): void {
    if (this.#state.type === "up") this.#state.caller.forwardAck(streamId, bytes);
  }

  /** This id is about to name another process. */
  reuse(processId: string): void {
    this.#lastAcks.forget(processId);
  }

  /** Takes no more input while somebody holds: for servers that know no acknowledgements. */
  hold(holder: unknown, isHeld: boolean): void {
    if (isHeld) this.#holders.add(holder);
    else this.#holders.delete(holder);
    this.#updatePause();
  }

  /** Moves the session to a new connection, because the server is blocked on this one. Does nothing where a loss is final. */
  renew(reason: string): void {
    if (this.#state.type === "up" && this.#options.reconnect) this.#state.caller.close(reason);
  }

  close(reason = "the client was closed"): void {
    const caller = this.#state.type === "up" ? this.#state.caller : null;
    this.#fail(new DisconnectedError(reason));
    caller?.close();
  }

  // ---- connections

  async #attach(
    resume: Pick<HandshakeOptions, "resumeSessionId" | "takeOver" | "takeOverFrom">,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<{ caller: Caller; server: ServerTraits }> {
    const opened: { caller: Caller | null } = { caller: null };
    const events: CallerEvents = {
      trace: this.#options.trace,
      notified: (notification) => {
        this.#silence?.heard();
        this.#listener.notified(notification);
      },
      closed: (end) => {
        if (opened.caller) this.#onClosed(opened.caller, end);
      },
    };
    signal.throwIfAborted();
    const caller = await this.#options.connect(events, signal);
    opened.caller = caller;
    const onAbort = () => caller.close();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      const { clientName, clock } = this.#options;
      const server = await shakeHands(caller, { clientName, timeoutMs, clock, ...resume });
      if (caller.end) throw new DisconnectedError(caller.end.reason ?? undefined);
      return { caller, server };
    } catch (error) {
      caller.close();
      throw signal.aborted ? signal.reason : error;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  #adopt({ caller, server }: { caller: Caller; server: ServerTraits }): void {
    this.#server = server;
    this.#state = { type: "up", caller };
    this.#isInputPaused = false;
    if (this.#options.reconnect)
      this.#silence = new SilenceWatch(caller, {
        clock: this.#options.clock,
        // A server that answers strictly in order may be busy with an earlier request; its transport always answers a ping.
        ask: () => (server.extended ? caller.call("environment/status", {}) : caller.ping()),
        isPaused: () => this.#isInputPaused,
      });
    // It may have been lost while the handshake's answer was on its way up to here.
    if (caller.end) this.#onClosed(caller, caller.end);
  }

  #onClosed(caller: Caller, end: CallerEnd): void {
    if (this.#state.type !== "up" || this.#state.caller !== caller) return;
    this.#silence?.stop();
    const error = new DisconnectedError(end.reason ?? undefined);
    const { reconnect } = this.#options;
    const { sessionId } = this.#server;
    // A client that was taken over does not reconnect: the two would take the session from each other for ever.
    if (!reconnect || !end.recoverable || sessionId === null || isTakenOver(end.reason)) {
      this.#fail(error);
      return;
    }
    this.#state = { type: "recovering" };
    for (const pending of [...this.#pending]) {
      if (pending.caller !== caller) continue;
      pending.caller = null;
      if (pending.resend === "unsent")
        pending.reject(
          new DisconnectedError(
            `${end.reason ?? "connection lost"} before the answer came; the request may have been carried out or not`,
          ),
        );
    }
    this.#listener.lost(end.reason);
    // Ends by adopting a connection or by failing the link; there is nothing else it could reject with.
    void this.#recover(sessionId, reconnect, error);
  }

  async #recover(sessionId: string, policy: ReconnectPolicy, loss: DisconnectedError): Promise<void> {
    const { clock, initializeTimeoutMs } = this.#options;
    const { signal } = this.#ended;
    const { extended, attachmentId, generation } = this.#server;
    const resume = { resumeSessionId: sessionId, takeOver: extended, takeOverFrom: attachmentId };
    try {
      const attached = await retryUntilResumed(
        (remainingMs) =>
          this.#attach(resume, Math.min(initializeTimeoutMs, Math.max(remainingMs, 1)), signal),
        policy,
        clock,
        signal,
      );
      if (this.isDown) {
        attached.caller.close();
        return;
      }
      this.#adopt(attached);
    } catch (cause) {
      this.#fail(new DisconnectedError(resumeFailure(loss, cause), { cause }));
      return;
    }
    if (this.#state.type !== "up") return;
    if (this.#server.granted.has("outputAck")) this.#lastAcks.sendAgain(this.#state.caller);
    if (generation !== this.#server.generation) this.#rejectWhatWasSent(generation, this.#server.generation);
    this.#listener.resumed();
    for (const pending of [...this.#pending]) {
      if (this.#state.type !== "up") return;
      if (pending.caller === null) this.#send(pending, this.#state.caller);
    }
  }

  /** Another server has the session now: it cannot know what the former one had begun. */
  #rejectWhatWasSent(former: string | null, present: string | null): void {
    for (const pending of [...this.#pending])
      if (pending.resend === "sameServer" && pending.wasSent)
        pending.reject(
          new DisconnectedError(
            `the server was replaced (generation ${former ?? "unknown"}, now ${present ?? "unknown"}) before the answer came; the request may have been carried out or not`,
          ),
        );
  }

  #send(pending: PendingCall, caller: Caller): void {
    pending.caller = caller;
    pending.wasSent = true;
    pending.send(caller);
  }

  #fail(error: DisconnectedError): void {
    if (this.#state.type === "down") return;
    this.#state = { type: "down", error };
    this.#silence?.stop();
    this.#ended.abort(error);
    for (const pending of [...this.#pending]) pending.reject(error);
    this.#listener.failed(error);
  }

  /** A call in flight keeps the input open: its answer comes the same way as the output that is held back. */
  #updatePause(): void {
    if (this.#state.type !== "up") return;
    const isPaused = this.#holders.size > 0 && this.#pending.size === 0;
    if (isPaused === this.#isInputPaused) return;
    this.#isInputPaused = isPaused;
    if (isPaused) this.#state.caller.pause();
    else this.#state.caller.resume();
  }
}

const UNKNOWN_SERVER: ServerTraits = {
  sessionId: null,
  environmentInfo: null,
  extended: false,
  granted: new Set(),
  attachmentId: null,
  generation: null,
};

function isBeingReplaced(error: unknown): boolean {
  return error instanceof RequestError && error.code === ErrorCode.beingReplaced;
}

function resumeFailure(loss: DisconnectedError, cause: unknown): string {
  const why = messageOf(cause);
  const first = loss.message.slice(DISCONNECTED_PREFIX.length).replace(/^: /, "");
  return `${first === "" ? "connection lost" : first}; failed to resume exec-server session: ${why}`;
}
