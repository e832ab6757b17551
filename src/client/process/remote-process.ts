import type { WatchReceiver } from "../../async/watch.ts";
import { withCallErrors } from "../../exec/call-error.ts";
import { isUnknownProcess } from "../../exec/compat.ts";
import type {
  CallOptions,
  CloseStdinStatus,
  EventsOptions,
  ExecEvent,
  ExecProcess,
  InputHistory,
  ProcessListing,
  ReadParams,
  ReadResult,
  SandboxType,
  Snapshot,
  StartParams,
  TerminalSize,
  TerminateMode,
  TerminateResult,
  WaitParams,
  WaitResult,
  WriteOptions,
  WriteStatus,
} from "../../exec/exec-process.ts";
import type { EventLog } from "../../exec/log/event-log.ts";
import { takeSnapshot, toListing } from "../../exec/log/log-views.ts";
import { type SizeChange, SizeHistory } from "../../exec/log/size-history.ts";
import { type InputData, toInputBytes } from "../../exec/options/input-bytes.ts";
import * as checks from "../../exec/options/process-checks.ts";
import { waitForCondition } from "../../exec/wait/wait-condition.ts";
import { DisconnectedError, RequestError } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type {
  AskConsole,
  NetworkAnswer,
  NetworkDecision,
  NetworkRequest,
} from "../../protocol/network/network-schemas.ts";
import { callOrExplain, unsupportedMethodError } from "../rpc/unsupported-method.ts";
import type { ReconnectingSession, SessionCallOptions } from "../session/reconnecting-session.ts";
import { type FollowerDeps, ProcessFollower } from "./process-follower.ts";
import { MAX_WRITE_BYTES, WriteWindow } from "./write-window.ts";

/** Maximum time that disposal waits for the exit of the process it terminated. */
const DISPOSE_WAIT_MS = 5000;

export interface RemoteProcessDeps extends FollowerDeps {
  /** Returns an id that is unique among all writes of this client. */
  newWriteId: () => string;
  /** Called when the object is disposed before the process ended. */
  onReleased: () => void;
}

/**
 * A process on a server, with the calls and events of a local one. Its log is filled from notifications. A lost
 * connection that recovers is not visible.
 */
export class RemoteProcess implements ExecProcess {
  readonly processId: string;
  /**
   * The client's copy of the event log.
   *
   * @internal
   */
  readonly log: EventLog;
  /**
   * Receives the events that the server sends.
   *
   * @internal
   */
  readonly follower: ProcessFollower;
  /** Called when another session becomes or ceases to be the driver of this process. */
  onDriverChanged: (driver: "attached" | "none") => void = () => undefined;
  /** Called when any client changed the terminal size. */
  onResized: (change: SizeChange) => void = () => undefined;
  /** Terminal sizes reported by the server. */
  readonly sizes = new SizeHistory();
  readonly #params: StartParams | null;
  readonly #session: ReconnectingSession;
  readonly #deps: RemoteProcessDeps;
  readonly #writes = new WriteWindow();
  readonly #startedAtMs: number;
  #sandboxType: SandboxType = "none";
  /** True while this client may still close stdin. */
  #hasOpenStdin: boolean;
  #droppedEnv: readonly string[] | undefined;
  #handle: string | null = null;

  /** @internal */
  constructor(processId: string, params: StartParams | null, deps: RemoteProcessDeps) {
    this.follower = new ProcessFollower(processId, deps);
    this.processId = processId;
    this.log = this.follower.log;
    this.#params = params;
    this.#hasOpenStdin = params === null || params.tty || (params.pipeStdin ?? false);
    this.#session = deps.session;
    this.#deps = deps;
    this.#startedAtMs = deps.clock.now();
  }

  get pid(): number | null {
    return this.follower.pid;
  }

  get sandboxType(): SandboxType {
    return this.#sandboxType;
  }

  get droppedEnv(): readonly string[] | undefined {
    return this.#droppedEnv;
  }

  get canCloseStdin(): boolean {
    return this.#session.server.isExtended;
  }

  /** Handle by which other sessions attach; null if the server assigns none. */
  get handle(): string | null {
    return this.#handle;
  }

  /**
   * Decides about a request of the process that its network policy does not decide.
   *
   * @internal
   */
  async decideNetwork(request: NetworkRequest, signal: AbortSignal): Promise<NetworkAnswer> {
    const decide = this.#params?.decideNetwork;
    // The reason that the server itself uses.
    if (!decide) return { type: "deny", reason: "not_allowed" };
    return decide(request, signal, this.#session.server.isExtended ? this.#askConsole(request) : undefined);
  }

  /** A server without the method or without a console rejects the question. */
  #askConsole({ host, port, protocol }: NetworkRequest): AskConsole {
    const { processId } = this;
    return async (question, signal) => {
      const params = { processId, host, port, protocol, ...question };
      // A new connection has no request that waits.
      const asked = this.#session.call("network/ask", params, { signal, resend: "unsent" });
      return asked.then(
        ({ answer }) => answer ?? null,
        () => null,
      );
    };
  }

  /**
   * Called for every decision of the network proxy.
   *
   * @internal
   */
  networkDecided(decision: NetworkDecision): void {
    this.#params?.onNetworkDecision?.(decision);
  }

  /**
   * Called when the start result arrived.
   *
   * @internal
   */
  started({ sandboxType = "none", droppedEnv, handle, pid }: Omit<ResultOf<"process/start">, "processId">): void {
    this.follower.pid ??= pid ?? null;
    this.#handle = handle ?? null;
    this.#sandboxType = sandboxType;
    this.#droppedEnv = droppedEnv;
    this.follower.started();
  }

  /** @internal */
  driverChanged(driver: "attached" | "none"): void {
    this.onDriverChanged(driver);
  }

  /** @internal */
  resized(change: SizeChange): void {
    this.sizes.add(change);
    this.onResized(change);
  }

  listing(): ProcessListing {
    const { processId, pid, log } = this;
    const running = log.exit === null && log.failure === null;
    return toListing({ processId, params: this.#params, pid, running, startedAtMs: this.#startedAtMs, log });
  }

  // ---- reading

  subscribeWake(): WatchReceiver<number> {
    return this.log.subscribeWake();
  }

  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent> {
    checks.checkEvents(options);
    return this.log.events(options);
  }

  /** Reads from the local log, so that a lost server never blocks it. Only evicted output is read from the server. */
  read(params: ReadParams = {}): Promise<ReadResult> {
    const check = () => checks.checkRead(params);
    return this.#withCallErrors("process/read", () => this.#read(params), params, check);
  }

  wait(params: WaitParams = {}): Promise<WaitResult> {
    const check = () => checks.checkWait(params);
    return this.#withCallErrors("process/wait", () => this.#wait(params), params, check);
  }

  snapshot(options: CallOptions = {}): Promise<Snapshot> {
    const check = () => checks.checkCall("snapshot", options);
    return this.#withCallErrors("process/snapshot", () => this.#snapshot(), options, check);
  }

  /** Returns who wrote how many bytes and when. Bytes are included only with `recordInput`, and never without echo. */
  inputs(options: CallOptions = {}): Promise<InputHistory> {
    const { processId } = this;
    const call = () => this.#callExtended("process/inputs", { processId });
    return this.#withCallErrors("process/inputs", call, options, () => checks.checkCall("inputs", options));
  }

  /** Reports whether this client's terminal replies to the queries in this output. Absent: it always does. */
  get claimQueries(): ((seq: number) => Promise<boolean>) | undefined {
    // For a process of another client the setting is unknown here; the server decides.
    const mayBeClaimed = this.#params === null || this.#params.terminalQueries === "claimed";
    if (!mayBeClaimed || !this.#session.server.grantedExtensions.has("queryClaims")) return undefined;
    return (seq) => this.#claimQueries(seq);
  }

  async #claimQueries(seq: number): Promise<boolean> {
    const { processId } = this;
    try {
      return (await this.#call("process/claimQueries", { processId, seq })).granted;
    } catch (error) {
      if (error instanceof RequestError && this.#params === null) return true;
      throw error;
    }
  }

  // ---- input and control

  write(data: InputData, options: WriteOptions = {}): Promise<{ status: WriteStatus }> {
    const write = () => this.#write(toInputBytes(data), options);
    return this.#withCallErrors("process/write", write, options, () => checks.checkWrite(data, options));
  }

  closeStdin(options: CallOptions = {}): Promise<{ status: CloseStdinStatus }> {
    const close = async () => {
      if (!this.canCloseStdin) throw unsupportedMethodError("process/closeStdin");
      // Queued after all earlier writes, also if they still wait for capacity.
      return this.#writes.run(0, () => this.#closeStdinOnce());
    };
    return this.#withCallErrors("process/closeStdin", close, options, () => checks.checkCall("closeStdin", options));
  }

  resize(size: TerminalSize, options: CallOptions = {}): Promise<void> {
    const { processId } = this;
    const resize = async () => void (await this.#callExtended("process/resize", { processId, size }));
    return this.#withCallErrors("process/resize", resize, options, () => checks.checkResize(size, options));
  }

  /**
   * Sends a signal. If the connection breaks before the result arrives, the signal may have been sent, and sending it
   * twice differs from once: the call rejects, and the caller decides. A signal that waits for a connection is sent
   * once there is one.
   */
  signal(name: string, options: CallOptions = {}): Promise<void> {
    const check = () => checks.checkSignal(name, options);
    return this.#withCallErrors("process/signal", () => this.#signal(name), options, check);
  }

  /**
   * Sends a signal to the whole process group. Resolves to false if the process has exited, so that no signal was sent.
   * Default signal: SIGTERM.
   */
  kill(signal = "SIGTERM", options: CallOptions = {}): Promise<boolean> {
    const kill = async () => {
      if (this.log.exit !== null) return false;
      await this.#signal(signal);
      return true;
    };
    return this.#withCallErrors("process/signal", kill, options, () => checks.checkKill(signal, options));
  }

  terminate(mode?: TerminateMode, options: CallOptions = {}): Promise<TerminateResult> {
    const check = () => checks.checkTerminate(mode, options);
    return this.#withCallErrors("process/terminate", () => this.#terminate(mode), options, check);
  }

  /**
   * Leaves a process of lifetime `server` to the server. It continues to run and can be attached by its handle. The
   * server rejects this for other lifetimes, because these processes end with their session. This object gets no
   * more events.
   */
  async detach(): Promise<void> {
    await this.#callExtended("process/detach", { processId: this.processId });
    this.#deps.onReleased();
    this.log.fail(new ExecServerError(`detached from process ${this.processId}`, "FAILED"));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.follower.isClosed) {
      try {
        await this.#terminate();
        await this.#waitLocally({ timeoutMs: DISPOSE_WAIT_MS });
      } catch (error) {
        // Any error of the server is expected here: this client no longer follows the process.
        const isExpected = error instanceof DisconnectedError || error instanceof RequestError;
        if (!isExpected && this.log.failure === null) throw error;
      }
    }
    if (!this.follower.isClosed) this.#deps.onReleased();
    this.log.fail(new ExecServerError(`process ${this.processId} was disposed`, "FAILED"));
    this.log.dispose();
  }

  // ---- internals

  /** Makes a call whose errors name the method and the command. `check` validates the arguments first. */
  #withCallErrors<T>(
    method: MethodName,
    call: () => Promise<T>,
    options: CallOptions | undefined,
    check: () => void,
  ): Promise<T> {
    return withCallErrors({ method, argv: this.#params?.argv }, call, options?.signal, check);
  }

  async #read(params: ReadParams): Promise<ReadResult> {
    // The local log has only arrival times, so times come from the server.
    if (params.times) {
      const { afterSeq = 0, maxBytes, times } = params;
      return this.follower.readRemote({ afterSeq, maxBytes, times });
    }
    const local = await this.log.readWaiting(params);
    if (!local.gap || this.log.failure !== null) return local;
    try {
      const { afterSeq, maxBytes } = params;
      const remote = await this.follower.readRemote({ afterSeq: afterSeq ?? 0, maxBytes });
      const [first] = remote.chunks;
      return first && first.seq <= local.gap.toSeq ? clampToLog(local, remote) : local;
    } catch (error) {
      // The server has forgotten the process or is disconnected; the local result is still valid.
      if (error instanceof RequestError || error instanceof DisconnectedError) return local;
      throw error;
    }
  }

  async #wait(params: WaitParams): Promise<WaitResult> {
    if (!this.#session.server.isExtended) return this.#waitLocally(params);
    // Local state is valid whatever the state of the server is.
    const hasExit = this.log.exit !== null && (params.until?.type ?? "exit") === "exit";
    if (hasExit || this.#session.isDisconnected) return this.#waitOnLog(params);
    const { until, afterSeq, timeoutMs, signal } = params;
    const deadline = timeoutMs === undefined ? null : this.#deps.clock.monotonic() + timeoutMs;
    const toParams = (remainingMs: number | undefined): ParamsOf<"process/wait"> => ({
      processId: this.processId,
      until,
      afterSeq,
      timeoutMs: remainingMs,
    });
    try {
      const result = await this.#call("process/wait", toParams(timeoutMs), {
        signal,
        onResend: () => toParams(deadline === null ? undefined : Math.max(0, deadline - this.#deps.clock.monotonic())),
      });
      await this.follower.readThrough(result.seq, signal);
      return result;
    } catch (error) {
      const canUseLog = this.log.failure !== null || this.#isForgotten(error);
      if (!canUseLog && !(error instanceof DisconnectedError)) throw error;
      return this.#waitOnLog(params);
    }
  }

  async #snapshot(): Promise<Snapshot> {
    if (!this.#session.server.isExtended) return this.#snapshotFromLog();
    try {
      return await this.#call("process/snapshot", { processId: this.processId });
    } catch (error) {
      const isEndKnown = error instanceof DisconnectedError && this.log.exit !== null;
      if (!this.#isForgotten(error) && !isEndKnown) throw error;
      return this.#snapshotFromLog();
    }
  }

  async #write(bytes: Uint8Array, options: WriteOptions): Promise<{ status: WriteStatus }> {
    // Servers accept input for a process that has exited, although no process reads it.
    if (this.log.exit !== null) return { status: "stdinClosed" };
    const writeId = options.writeId ?? this.#deps.newWriteId();
    if (bytes.length <= MAX_WRITE_BYTES) return this.#writeChunk(bytes, writeId);
    const writes: Promise<{ status: WriteStatus }>[] = [];
    for (let at = 0; at < bytes.length; at += MAX_WRITE_BYTES)
      writes.push(this.#writeChunk(bytes.subarray(at, at + MAX_WRITE_BYTES), `${writeId}@${at}`));
    const results = await Promise.all(writes);
    return results.find(({ status }) => status !== "accepted") ?? { status: "accepted" };
  }

  async #signal(name: string): Promise<void> {
    const isInterrupt = name === "interrupt" || name === "SIGINT" || name === "INT";
    if (!this.#session.server.isExtended && !isInterrupt) throw unsupportedMethodError(`signal ${name}`);
    await this.#call(
      "process/signal",
      { processId: this.processId, signal: isInterrupt ? "interrupt" : name },
      { resend: "unsent" },
    );
  }

  async #terminate(mode?: TerminateMode): Promise<TerminateResult> {
    if (this.log.exit === null) this.follower.exitReason ??= "terminated";
    const { processId } = this;
    if (mode?.type !== "graceful" || this.#session.server.isExtended) return this.#terminateOnce({ processId, mode });
    // Without extensions a server only knows interrupt and a forced terminate; interrupt comes first.
    const running = this.log.exit === null && !this.log.isClosed;
    await this.#signal("interrupt");
    await this.#waitLocally({ timeoutMs: mode.timeoutMs });
    await this.#call("process/terminate", { processId });
    return { running };
  }

  /** Reports whether the server has forgotten the closed process. The local log is then complete. */
  #isForgotten(error: unknown): boolean {
    return this.log.isClosed && isUnknownProcess(error, this.processId);
  }

  #snapshotFromLog(): Snapshot {
    return takeSnapshot(this.log, this.log.exit === null && this.log.failure === null);
  }

  #writeChunk(chunk: Uint8Array, writeId: string): Promise<{ status: WriteStatus }> {
    const { processId } = this;
    return this.#writes.run(chunk.length, () => this.#call("process/write", { processId, chunk, writeId }));
  }

  /** Terminates once: if a repeated call finds the process ended by request, its first copy has arrived. */
  async #terminateOnce(params: ParamsOf<"process/terminate">): Promise<TerminateResult> {
    let isRepeated = false;
    const onResend = (): undefined => {
      isRepeated = true;
    };
    const result = await this.#call("process/terminate", params, { onResend });
    if (!isRepeated || result.running || !this.#session.server.isExtended) return result;
    try {
      const { exitReason } = await this.#wait({ timeoutMs: 0 });
      return exitReason === "terminated" ? { ...result, running: true } : result;
    } catch (error) {
      // The server has forgotten the process; nothing more can be learned.
      if (error instanceof RequestError) return result;
      throw error;
    }
  }

  /** Closes stdin once: if a repeated call finds an open stdin closed, its first copy has arrived. */
  async #closeStdinOnce(): Promise<{ status: CloseStdinStatus }> {
    const params = { processId: this.processId };
    let isRepeated = false;
    const onResend = (): undefined => {
      isRepeated = true;
    };
    const result = await this.#callExtended("process/closeStdin", params, { onResend });
    const wasClosedByFirst = isRepeated && result.status === "stdinClosed" && this.#hasOpenStdin;
    if (wasClosedByFirst || result.status === "accepted") this.#hasOpenStdin = false;
    return wasClosedByFirst ? { status: "accepted" } : result;
  }

  async #callExtended<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options?: SessionCallOptions<M>,
  ): Promise<ResultOf<M>> {
    if (!this.#session.server.isExtended) throw unsupportedMethodError(method);
    return this.#call(method, params, options);
  }

  #call<M extends MethodName>(method: M, params: ParamsOf<M>, options?: SessionCallOptions<M>): Promise<ResultOf<M>> {
    return callOrExplain(this.#session, method, params, options);
  }

  #waitLocally(params: WaitParams): Promise<WaitResult> {
    if (params.until?.type === "port") return Promise.reject(unsupportedMethodError("waiting for a port"));
    return this.#waitOnLog(params);
  }

  #waitOnLog(params: WaitParams): Promise<WaitResult> {
    return waitForCondition({ log: this.log, clock: this.#deps.clock, isPortListening: async () => false }, params);
  }
}

/** Cuts the server's result at the end of the local log, so that a later read does not fall behind this one. */
function clampToLog(local: ReadResult, { chunks, nextSeq, gap }: ReadResult): ReadResult {
  const { gap: _replaced, ...rest } = local;
  return {
    ...rest,
    chunks: chunks.filter(({ seq }) => seq < local.nextSeq),
    nextSeq: Math.min(nextSeq, local.nextSeq),
    gap,
  };
}
