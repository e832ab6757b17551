import type { Clock } from "../../async/clock.ts";
import { TimeoutError } from "../../async/deadline.ts";
import { errorMessage } from "../../base/error-message.ts";
import { isAccessEnd, isTakeoverClose } from "../../exec/compat.ts";
import { DisconnectedError, ErrorCode, invalidRequest, RequestError } from "../../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import { type HandshakeOptions, performHandshake, type ServerInfo } from "../rpc/handshake.ts";
import type { ChannelClose, OpenChannel, RpcChannel, RpcChannelEvents } from "../rpc/rpc-channel.ts";
import { FinalAcks } from "./final-acks.ts";
import { Heartbeat } from "./heartbeat.ts";
import type { ReconnectPolicy } from "./reconnect-policy.ts";
import { isPermanent, isUnauthorized, retryUntilResponse, retryUntilResumed } from "./reconnect-policy.ts";

export interface SessionOptions {
  connect: OpenChannel;
  clientName: string;
  initializeTimeoutMs: number;
  /** Null: a lost connection is final. */
  reconnect: ReconnectPolicy | null;
  clock: Clock;
  resumeSessionId: string | null;
  takeOver: boolean;
  trace?: RpcChannelEvents["trace"];
}

export interface SessionEvents extends Pick<RpcChannelEvents, "onNotification" | "onRequest"> {
  /** Called when the connection is lost and the client reconnects. */
  onDisconnect(reason: string | null): void;
  /** Called when a new connection has resumed the session, before waiting calls are sent again. */
  onResumed(): void;
  /**
   * Called when the session is lost: every call of this session fails from now on. `canReopen` is false if the client
   * must not open another session.
   */
  onFailed(error: DisconnectedError, canReopen: boolean): void;
}

export interface SessionCallOptions<M extends MethodName> {
  signal?: AbortSignal | undefined;
  timeoutMs?: number | undefined;
  /**
   * Behavior after a lost connection. `always`: the client resends the call, because repeating it is safe.
   * `sameServer`: resends it, but not to a replacement of the server, which could not recognize the repetition.
   * `unsent`: sends it only if no connection had it yet; otherwise the server may have executed it, so the call rejects
   * and the caller decides.
   */
  resend?: ResendPolicy | undefined;
  /** Called before the call is sent again; may return other params. */
  onResend?: () => ParamsOf<M> | undefined;
  /**
   * Rejects with an UnsentCallError if the session is lost and no server has executed the call, so that the caller can
   * make it in a new session. Default: false, rejects with a DisconnectedError.
   */
  isMovable?: boolean;
}

export type ResendPolicy = "always" | "sameServer" | "unsent";

/** The rejection of a movable call of a lost session. No server has executed the call. `loss` is the reason. */
export class UnsentCallError extends Error {
  override readonly name = "UnsentCallError";
  readonly loss: DisconnectedError;

  constructor(loss: DisconnectedError) {
    super(loss.message, { cause: loss });
    this.loss = loss;
  }
}

type State = { type: "up"; channel: RpcChannel } | { type: "recovering" } | { type: "down"; error: DisconnectedError };

/**
 * How a session ended. `final`: the client must not open another session. `forgotten`: the server
 * does not have the session. `unreachable`: the deadline of the reconnect passed.
 */
type SessionLoss = "final" | "forgotten" | "unreachable";

interface PendingCall {
  /** Channel of the call; null while it waits for a connection. */
  channel: RpcChannel | null;
  wasSent: boolean;
  readonly resend: ResendPolicy;
  readonly isMovable: boolean;
  send(channel: RpcChannel): void;
  reject(reason: unknown): void;
}

/** One session across connections: calls wait while there is no connection, and are sent when there is one. */
export class ReconnectingSession {
  readonly #options: SessionOptions;
  readonly #listener: SessionEvents;
  /** In call order, which is also the order in which they are sent again. */
  readonly #pending = new Set<PendingCall>();
  readonly #pauseHolders = new Set<unknown>();
  readonly #finalAcks = new FinalAcks();
  readonly #ended = new AbortController();
  #state: State = { type: "recovering" };
  #server: ServerInfo = UNKNOWN_SERVER;
  #isInputPaused = false;
  #heartbeat: Heartbeat | null = null;

  private constructor(options: SessionOptions, listener: SessionEvents) {
    this.#options = options;
    this.#listener = listener;
  }

  /** Connects and performs the handshake. */
  static async open(
    options: SessionOptions,
    listener: SessionEvents,
    signal?: AbortSignal,
  ): Promise<ReconnectingSession> {
    const session = new ReconnectingSession(options, listener);
    const { resumeSessionId, takeOver, initializeTimeoutMs, reconnect, clock } = options;
    const until = signal ?? session.#ended.signal;
    const connect = () =>
      session.#connect({ resumeSessionId, takeOver, takeOverFrom: null }, initializeTimeoutMs, until);
    // A lost resume may have succeeded: the session then counts as connected for a while.
    const isRepeatable = reconnect !== null && resumeSessionId === null;
    session.#adopt(await (isRepeatable ? retryUntilResponse(connect, reconnect, clock, until) : connect()));
    return session;
  }

  get server(): ServerInfo {
    return this.#server;
  }

  get isConnected(): boolean {
    return this.#state.type === "up";
  }

  get isDisconnected(): boolean {
    return this.#state.type === "down";
  }

  call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options: SessionCallOptions<M> = {},
  ): Promise<ResultOf<M>> {
    if (options.signal?.aborted) return Promise.reject(options.signal.reason);
    const { isMovable = false } = options;
    if (this.#state.type === "down")
      return Promise.reject(isMovable ? new UnsentCallError(this.#state.error) : this.#state.error);
    const { promise, resolve, reject } = Promise.withResolvers<ResultOf<M>>();
    const { signal, timeoutMs } = options;
    const pending: PendingCall = {
      channel: null,
      wasSent: false,
      resend: options.resend ?? "always",
      isMovable,
      send: (channel) => {
        const current = pending.wasSent ? (options.onResend?.() ?? params) : params;
        pending.wasSent = true;
        const sendNumber = this.#finalAcks.callSent();
        channel.call(method, current).then(
          (result) => {
            this.#heartbeat?.onActivity();
            this.#finalAcks.onResponse(channel, sendNumber);
            if (pending.channel === channel) complete(() => resolve(result));
          },
          (error: Error) => {
            // `#onClosed` handles the calls of a lost connection.
            if (error instanceof DisconnectedError) return;
            this.#finalAcks.onResponse(channel, sendNumber);
            if (pending.channel !== channel) return;
            const isBeingReplaced = error instanceof RequestError && error.code === ErrorCode.beingReplaced;
            if (!this.#options.reconnect || !isBeingReplaced) return pending.reject(error);
            // The server did nothing and is about to close this connection: send it on the next one as a first
            // attempt.
            pending.channel = null;
            pending.wasSent = false;
          },
        );
      },
      reject: (error) => complete(() => reject(error)),
    };
    const onAbort = () => pending.reject(signal?.reason);
    const timer =
      timeoutMs === undefined
        ? null
        : this.#options.clock.after(timeoutMs, () => pending.reject(new TimeoutError(method, timeoutMs)));
    const complete = (finish: () => void) => {
      this.#pending.delete(pending);
      timer?.cancel();
      signal?.removeEventListener("abort", onAbort);
      finish();
      this.#updatePause();
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    this.#pending.add(pending);
    this.#updatePause();
    if (this.#state.type === "up") this.#send(pending, this.#state.channel);
    return promise;
  }

  /**
   * Acknowledges output, if the server granted `outputAck`. Without a connection the ack is sent later. The last ack
   * of a process is repeated until it has certainly arrived.
   */
  ack(processId: string, seq: number, isLast: boolean): void {
    if (this.#state.type === "down" || !this.#server.grantedExtensions.has("outputAck")) return;
    const channel = this.#state.type === "up" ? this.#state.channel : null;
    channel?.ack(processId, seq);
    if (isLast) this.#finalAcks.add(processId, seq, channel);
  }

  /**
   * Acknowledges forwarded bytes. A stream ends with its connection, so without one there is nothing to acknowledge.
   */
  ackForwarded(streamId: string, bytes: number): void {
    if (this.#state.type === "up") this.#state.channel.forwardAck(streamId, bytes);
  }

  /** Drops the final ack, because the id is about to name a new process. */
  forgetFinalAck(processId: string): void {
    this.#finalAcks.forget(processId);
  }

  /** Pauses reading while any holder requests it, for data without acknowledgements. */
  pauseInput(holder: unknown, isPaused: boolean): void {
    if (isPaused) this.#pauseHolders.add(holder);
    else this.#pauseHolders.delete(holder);
    this.#updatePause();
  }

  /** Moves the session to a new connection, because the server is blocked on this one. No-op without reconnect. */
  reconnect(reason: string): void {
    if (this.#state.type === "up" && this.#options.reconnect) this.#state.channel.close(reason);
  }

  close(): void {
    const channel = this.#state.type === "up" ? this.#state.channel : null;
    this.#fail(new DisconnectedError("the client was closed"), "final");
    channel?.close();
  }

  // ---- connections

  async #connect(
    resume: Pick<HandshakeOptions, "resumeSessionId" | "takeOver" | "takeOverFrom">,
    timeoutMs: number,
    signal: AbortSignal,
  ): Promise<{ channel: RpcChannel; server: ServerInfo }> {
    const opened: { channel: RpcChannel | null } = { channel: null };
    const events: RpcChannelEvents = {
      trace: this.#options.trace,
      onNotification: (notification) => {
        // The processes of a later session may have the same ids.
        if (this.isDisconnected) return;
        this.#heartbeat?.onActivity();
        this.#listener.onNotification(notification);
      },
      onRequest: async (request, requestSignal) => {
        const { onRequest } = this.#listener;
        if (this.isDisconnected || !onRequest) throw invalidRequest(`unknown method: ${request.method}`);
        this.#heartbeat?.onActivity();
        return onRequest(request, requestSignal);
      },
      onClosed: (end) => {
        if (opened.channel) this.#onClosed(opened.channel, end);
      },
    };
    signal.throwIfAborted();
    const channel = await this.#options.connect(events, signal);
    opened.channel = channel;
    const onAbort = () => channel.close();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      const { clientName, clock } = this.#options;
      const server = await performHandshake(channel, { clientName, timeoutMs, clock, ...resume });
      if (channel.closeInfo) throw new DisconnectedError(channel.closeInfo.reason ?? undefined);
      return { channel, server };
    } catch (error) {
      channel.close();
      throw signal.aborted ? signal.reason : error;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  #adopt({ channel, server }: { channel: RpcChannel; server: ServerInfo }): void {
    this.#server = server;
    this.#state = { type: "up", channel };
    this.#isInputPaused = false;
    if (this.#options.reconnect)
      this.#heartbeat = new Heartbeat(channel, {
        clock: this.#options.clock,
        // A server that handles requests in order may be busy with an earlier one; its transport always replies to a
        // ping.
        ping: () => (server.isExtended ? channel.call("environment/status", {}) : channel.ping()),
        isPaused: () => this.#isInputPaused,
      });
    // The connection may have closed between the handshake result and this line.
    if (channel.closeInfo) this.#onClosed(channel, channel.closeInfo);
  }

  #onClosed(channel: RpcChannel, end: ChannelClose): void {
    if (this.#state.type !== "up" || this.#state.channel !== channel) return;
    this.#heartbeat?.stop();
    const error = new DisconnectedError(end.reason ?? undefined);
    const { reconnect } = this.#options;
    const { sessionId } = this.#server;
    // A client that was taken over does not reconnect: the two would take the session from each other forever.
    if (!reconnect || !end.recoverable || isTakeoverClose(end.reason) || isAccessEnd(end.reason)) {
      this.#fail(error, "final");
      return;
    }
    if (sessionId === null) {
      this.#fail(error, "forgotten");
      return;
    }
    this.#state = { type: "recovering" };
    for (const pending of [...this.#pending]) {
      if (pending.channel !== channel) continue;
      pending.channel = null;
      if (pending.resend === "unsent") pending.reject(mayBeExecutedError(end.reason));
    }
    this.#listener.onDisconnect(end.reason);
    // Never rejects: it ends with a new connection or with a failed session.
    void this.#recover(sessionId, reconnect, end.reason);
  }

  async #recover(sessionId: string, policy: ReconnectPolicy, lossReason: string | null): Promise<void> {
    const { clock, initializeTimeoutMs } = this.#options;
    const { signal } = this.#ended;
    const { isExtended, attachmentId, generation } = this.#server;
    const resume = { resumeSessionId: sessionId, takeOver: isExtended, takeOverFrom: attachmentId };
    try {
      const connected = await retryUntilResumed(
        (timeoutMs) => this.#connect(resume, Math.min(initializeTimeoutMs, timeoutMs), signal),
        policy,
        clock,
        signal,
      );
      if (this.isDisconnected) {
        connected.channel.close();
        return;
      }
      this.#adopt(connected);
    } catch (cause) {
      this.#fail(new DisconnectedError(resumeFailure(lossReason, cause), { cause }), resumeLoss(cause));
      return;
    }
    if (this.#state.type !== "up") return;
    if (this.#server.grantedExtensions.has("outputAck")) this.#finalAcks.resend(this.#state.channel);
    if (generation !== this.#server.generation) this.#rejectSentCalls(generation, this.#server.generation);
    this.#listener.onResumed();
    for (const pending of [...this.#pending]) {
      if (this.#state.type !== "up") return;
      if (pending.channel === null) this.#send(pending, this.#state.channel);
    }
  }

  /** Rejects calls that only the previous server could recognize as repeated. */
  #rejectSentCalls(previousGeneration: string | null, currentGeneration: string | null): void {
    for (const pending of [...this.#pending])
      if (pending.resend === "sameServer" && pending.wasSent)
        pending.reject(
          new DisconnectedError(
            `the server was replaced (generation ${previousGeneration ?? "unknown"}, now ${currentGeneration ?? "unknown"}) before the response arrived; the request may have been executed`,
          ),
        );
  }

  #send(pending: PendingCall, channel: RpcChannel): void {
    pending.channel = channel;
    pending.send(channel);
  }

  #fail(error: DisconnectedError, loss: SessionLoss): void {
    if (this.#state.type === "down") return;
    this.#state = { type: "down", error };
    this.#heartbeat?.stop();
    this.#ended.abort(error);
    for (const pending of [...this.#pending]) {
      // After the deadline of the reconnect, waiting calls fail; a new session gets later calls only.
      if (pending.isMovable && !pending.wasSent && loss === "forgotten") pending.reject(new UnsentCallError(error));
      else if (pending.resend === "sameServer" && pending.wasSent && loss !== "final")
        pending.reject(mayBeExecutedError(error.lossReason, { cause: error }));
      else pending.reject(error);
    }
    this.#listener.onFailed(error, loss !== "final");
  }

  /** A pending call keeps reading active: its response arrives after the paused output on the same connection. */
  #updatePause(): void {
    if (this.#state.type !== "up") return;
    const isPaused = this.#pauseHolders.size > 0 && this.#pending.size === 0;
    if (isPaused === this.#isInputPaused) return;
    this.#isInputPaused = isPaused;
    if (isPaused) this.#state.channel.pause();
    else this.#state.channel.resume();
  }
}

const UNKNOWN_SERVER: ServerInfo = {
  sessionId: null,
  environmentInfo: null,
  isExtended: false,
  grantedExtensions: new Set(),
  attachmentId: null,
  generation: null,
};

function mayBeExecutedError(reason: string | null, options?: ErrorOptions): DisconnectedError {
  const text = `${reason ?? "connection lost"} before the response arrived; the request may have been executed`;
  return new DisconnectedError(text, options);
}

function resumeLoss(cause: unknown): SessionLoss {
  // Another client is attached to the session. The Codex server has no takeover and sends the same code.
  const isOthers = cause instanceof RequestError && cause.code === ErrorCode.sessionAttached;
  if (isUnauthorized(cause) || isOthers) return "final";
  return isPermanent(cause) ? "forgotten" : "unreachable";
}

function resumeFailure(lossReason: string | null, cause: unknown): string {
  return `${lossReason || "connection lost"}; failed to resume exec-server session: ${errorMessage(cause)}`;
}
