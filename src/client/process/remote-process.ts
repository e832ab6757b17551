import type { Clock } from "../../async/clock.ts";
import type { WatchReceiver } from "../../async/watch.ts";
import { asked } from "../../exec/call-error.ts";
import type {
  CallOptions,
  CloseStdinStatus,
  EventsOptions,
  ExecEvent,
  ExecProcess,
  ProcessListing,
  ReadParams,
  ReadResult,
  SandboxType,
  Snapshot,
  StartParams,
  TerminalSize,
  TerminateMode,
  TerminateResult,
  WaitCondition,
  WaitParams,
  WaitResult,
  WriteOptions,
  WriteStatus,
} from "../../exec/exec-process.ts";
import type { EventLog } from "../../exec/log/event-log.ts";
import { listingOf, snapshotOf } from "../../exec/log/log-views.ts";
import { type SizeChange, SizeHistory } from "../../exec/log/size-history.ts";
import { waitOn } from "../../exec/wait/wait-condition.ts";
import { DisconnectedError, RequestError } from "../../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf } from "../../protocol/methods.ts";
import type { Link, LinkCallOptions } from "../session/reconnecting-session.ts";
import { isUnknown } from "../unknown-process.ts";
import { explainedCall, notSupported } from "../unsupported.ts";
import { type FollowerDeps, ProcessFollower } from "./process-follower.ts";
import { MAX_WRITE_BYTES, WriteWindow } from "./write-window.ts";

/** How long disposing waits to see the exit of a process it has ended. */
const DISPOSE_WAIT_MS = 5000;

export interface RemoteProcessDeps extends FollowerDeps {
  /** Unique among everything this client ever writes. */
  newWriteId: () => string;
  /** Called when the handle was disposed of before the process had ended. */
  onReleased: () => void;
}

/**
 * A process on a server, with the calls and the events of a local one. Its own log is fed by what the server tells;
 * a lost connection that is recovered from does not show.
 */
export class RemoteProcess implements ExecProcess {
  /**
   * Takes the events that the server sends.
   *
   * @internal
   */
  readonly follower: ProcessFollower;
  /** Called when another session begins to drive this process by its handle, or ceases to. */
  onDriverChanged: (driver: "attached" | "none") => void = () => undefined;
  /** Called when the terminal's size was changed, by whomever. */
  onResized: (change: SizeChange) => void = () => undefined;
  /** The sizes its terminal was given, as far as the server has told. */
  readonly sizes = new SizeHistory();
  readonly #params: StartParams | null;
  readonly #link: Link;
  readonly #clock: Clock;
  readonly #newWriteId: () => string;
  readonly #onReleased: () => void;
  readonly #writes = new WriteWindow();
  readonly #startedAtMs: number;
  #sandboxType: SandboxType = "none";
  /** As far as this client knows. */
  #hasOpenStdin: boolean;
  #droppedEnv: readonly string[] | undefined;
  #handle: string | null = null;

  /** @internal */
  constructor(processId: string, params: StartParams | null, deps: RemoteProcessDeps) {
    this.follower = new ProcessFollower(processId, deps);
    this.#params = params;
    this.#hasOpenStdin = params === null || params.tty || (params.pipeStdin ?? false);
    this.#link = deps.link;
    this.#clock = deps.clock;
    this.#newWriteId = deps.newWriteId;
    this.#onReleased = deps.onReleased;
    this.#startedAtMs = deps.clock.now();
  }

  get processId(): string {
    return this.follower.processId;
  }

  get pid(): number | null {
    return this.follower.pid;
  }

  get sandboxType(): SandboxType {
    return this.#sandboxType;
  }

  /**
   * The client's own copy of what the process has told.
   *
   * @internal
   */
  get log(): EventLog {
    return this.follower.log;
  }

  get droppedEnv(): readonly string[] | undefined {
    return this.#droppedEnv;
  }

  get canCloseStdin(): boolean {
    return this.#link.server.extended;
  }

  /** The name by which other sessions can attach to it; null where the server gives none. */
  get handle(): string | null {
    return this.#handle;
  }

  /**
   * The server has answered that it runs.
   *
   * @internal
   */
  started({ sandboxType = "none", droppedEnv, handle }: Omit<ResultOf<"process/start">, "processId">): void {
    this.#handle = handle ?? null;
    this.#sandboxType = sandboxType;
    this.#droppedEnv = droppedEnv;
    this.follower.started();
  }

  /** @internal */
  resized(change: SizeChange): void {
    this.sizes.add(change);
    this.onResized(change);
  }

  listing(): ProcessListing {
    const { processId, pid, log } = this;
    const running = log.exit === null && log.failure === null;
    return listingOf({ processId, params: this.#params, pid, running, startedAtMs: this.#startedAtMs, log });
  }

  // ---- reading

  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent> {
    return this.log.events(options);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.log.subscribeWake();
  }

  /** Answered from the own log, so a lost server never leaves it hanging; only what that has let go is asked for. */
  read(params: ReadParams = {}): Promise<ReadResult> {
    return this.#asked("process/read", () => this.#read(params), params.signal);
  }

  wait(params: WaitParams = {}): Promise<WaitResult> {
    return this.#asked("process/wait", () => this.#wait(params), params.signal);
  }

  snapshot({ signal }: CallOptions = {}): Promise<Snapshot> {
    return this.#asked("process/snapshot", () => this.#snapshot(), signal);
  }

  /** Who typed how much into it, and when; what was typed only with `recordInput`, and never what was not echoed. */
  inputs({ signal }: CallOptions = {}): Promise<ResultOf<"process/inputs">> {
    const { processId } = this;
    return this.#asked("process/inputs", () => this.#callExtended("process/inputs", { processId }), signal);
  }

  /** Whether this client's terminal is the one to answer what is asked in the output of this seq; absent: it always is. */
  get claimQueries(): ((seq: number) => Promise<boolean>) | undefined {
    // What somebody else started may want it or not; its server knows.
    const mayBeClaimed = this.#params === null || this.#params.terminalQueries === "claimed";
    if (!mayBeClaimed || !this.#link.server.granted.has("queryClaims")) return undefined;
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

  // ---- feeding

  write(bytes: Uint8Array, options: WriteOptions = {}): Promise<{ status: WriteStatus }> {
    return this.#asked("process/write", () => this.#write(bytes, options), options.signal);
  }

  closeStdin({ signal }: CallOptions = {}): Promise<{ status: CloseStdinStatus }> {
    return this.#asked("process/closeStdin", () => this.#closeStdin(), signal);
  }

  resize(size: TerminalSize, { signal }: CallOptions = {}): Promise<void> {
    const { processId } = this;
    const resize = async () => void (await this.#callExtended("process/resize", { processId, size }));
    return this.#asked("process/resize", resize, signal);
  }

  /**
   * A signal whose answer was lost with its connection may have been sent or not, and twice is not the same as once:
   * it rejects, and the caller decides. One that waited for a connection is sent when there is one.
   */
  signal(name: string, { signal }: CallOptions = {}): Promise<void> {
    return this.#asked("process/signal", () => this.#signal(name), signal);
  }

  terminate(mode?: TerminateMode, { signal }: CallOptions = {}): Promise<TerminateResult> {
    return this.#asked("process/terminate", () => this.#terminate(mode), signal);
  }

  /**
   * Leaves a process of lifetime `server` to the server: it goes on, and is found again by its handle. Others are refused:
   * they end with their session. Nothing more is told here.
   */
  async detach(): Promise<void> {
    await this.#callExtended("process/detach", { processId: this.processId });
    this.#onReleased();
    this.log.fail(`this client has detached from process ${this.processId}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.follower.isOver) {
      try {
        await this.#terminate();
        await this.#waitHere({ timeoutMs: DISPOSE_WAIT_MS });
      } catch (error) {
        // Whatever the server says now, there is nobody left to follow the process.
        const isExpected = error instanceof DisconnectedError || error instanceof RequestError;
        if (!isExpected && this.log.failure === null) throw error;
      }
    }
    if (!this.follower.isOver) this.#onReleased();
    this.log.fail(`this client has disposed of process ${this.processId}`);
    this.log.dispose();
  }

  // ---- below

  /** A call whose errors name the method and the program. */
  #asked<T>(method: MethodName, call: () => Promise<T>, signal: AbortSignal | undefined): Promise<T> {
    return asked({ method, argv: this.#params?.argv }, call, signal);
  }

  async #read(params: ReadParams): Promise<ReadResult> {
    // The own log only knows when something came here.
    if (params.times) {
      const { afterSeq = 0, maxBytes, times } = params;
      return this.follower.readRemote({ afterSeq, maxBytes, times });
    }
    const own = await this.log.readWaiting(params);
    if (!own.gap || this.log.failure !== null) return own;
    try {
      const { afterSeq, maxBytes } = params;
      const theirs = await this.follower.readRemote({ afterSeq: afterSeq ?? 0, maxBytes });
      return (theirs.chunks[0]?.seq ?? Number.POSITIVE_INFINITY) <= own.gap.toSeq ? upTo(own, theirs) : own;
    } catch (error) {
      // The server has forgotten the process, or is gone: what is known here is still true.
      if (error instanceof RequestError || error instanceof DisconnectedError) return own;
      throw error;
    }
  }

  async #wait(params: WaitParams): Promise<WaitResult> {
    if (!this.#link.server.extended) return this.#waitHere(params);
    // What is known here is true whatever has become of the server.
    const isKnown = this.log.exit !== null && (params.until ?? EXIT).type === "exit";
    if (isKnown || this.#link.isDown) return this.#waitOnLog(params);
    const { until, afterSeq, timeoutMs, signal } = params;
    const deadline = timeoutMs === undefined ? null : this.#clock.monotonic() + timeoutMs;
    const wire = (remainingMs: number | undefined): ParamsOf<"process/wait"> => ({
      processId: this.processId,
      until,
      afterSeq,
      timeoutMs: remainingMs,
    });
    try {
      const result = await this.#call("process/wait", wire(timeoutMs), {
        signal,
        renew: () => wire(deadline === null ? undefined : Math.max(0, deadline - this.#clock.monotonic())),
      });
      await this.follower.reach(result.seq, signal);
      return result;
    } catch (error) {
      const isKnownHere = this.log.failure !== null || this.#isForgotten(error);
      if (!isKnownHere && !(error instanceof DisconnectedError)) throw error;
      return this.#waitOnLog(params);
    }
  }

  async #snapshot(): Promise<Snapshot> {
    if (!this.#link.server.extended) return this.#snapshotHere();
    try {
      return await this.#call("process/snapshot", { processId: this.processId });
    } catch (error) {
      const isEndKnown = error instanceof DisconnectedError && this.log.exit !== null;
      if (!this.#isForgotten(error) && !isEndKnown) throw error;
      return this.#snapshotHere();
    }
  }

  async #write(bytes: Uint8Array, options: WriteOptions): Promise<{ status: WriteStatus }> {
    // Servers accept input for a process that has ended, although nobody will read it.
    if (this.log.exit !== null) return { status: "stdinClosed" };
    const writeId = options.writeId ?? this.#newWriteId();
    if (bytes.length <= MAX_WRITE_BYTES) return this.#writePart(bytes, writeId);
    const parts: Promise<{ status: WriteStatus }>[] = [];
    for (let at = 0; at < bytes.length; at += MAX_WRITE_BYTES)
      parts.push(this.#writePart(bytes.subarray(at, at + MAX_WRITE_BYTES), `${writeId}@${at}`));
    const results = await Promise.all(parts);
    return results.find(({ status }) => status !== "accepted") ?? { status: "accepted" };
  }

  #closeStdin(): Promise<{ status: CloseStdinStatus }> {
    if (!this.canCloseStdin) return Promise.reject(notSupported("process/closeStdin"));
    // Behind the writes that were made before it, also those that still wait for room.
    return this.#writes.run(0, () => this.#closeStdinOnce());
  }

  async #signal(name: string): Promise<void> {
    const isInterrupt = name === "interrupt" || name === "SIGINT" || name === "INT";
    if (!this.#link.server.extended && !isInterrupt) throw notSupported(`signal ${name}`);
    await this.#call(
      "process/signal",
      { processId: this.processId, signal: isInterrupt ? "interrupt" : name },
      { resend: "unsent" },
    );
  }

  async #terminate(mode?: TerminateMode): Promise<TerminateResult> {
    if (this.log.exit === null) this.follower.endedFor ??= "terminated";
    const { processId } = this;
    if (mode?.type !== "graceful" || this.#link.server.extended)
      return this.#terminateOnce({ processId, mode });
    // The mildest request such a server knows, then the only other one.
    const running = this.log.exit === null && !this.log.isClosed;
    await this.#signal("interrupt");
    await this.#waitHere({ timeoutMs: mode.timeoutMs });
    await this.#call("process/terminate", { processId });
    return { running };
  }

  /** The server forgets a process some time after its end was confirmed; what is known here is all there is then. */
  #isForgotten(error: unknown): boolean {
    return this.log.isClosed && isUnknown(error, this.processId);
  }

  #snapshotHere(): Snapshot {
    return snapshotOf(this.log, this.log.exit === null && this.log.failure === null);
  }

  #writePart(chunk: Uint8Array, writeId: string): Promise<{ status: WriteStatus }> {
    const { processId } = this;
    return this.#writes.run(chunk.length, () => this.#call("process/write", { processId, chunk, writeId }));
  }

  /** One that had to be sent again and finds the process ended by request has met its own first copy. */
  async #terminateOnce(params: ParamsOf<"process/terminate">): Promise<TerminateResult> {
    let isRepeated = false;
    const renew = () => {
      isRepeated = true;
      return params;
    };
    const result = await this.#call("process/terminate", params, { renew });
    if (!isRepeated || result.running || !this.#link.server.extended) return result;
    try {
      const { exitReason } = await this.#wait({ timeoutMs: 0 });
      return exitReason === "terminated" ? { ...result, running: true } : result;
    } catch (error) {
      // The server has forgotten it, so nobody can say more than that it is over.
      if (error instanceof RequestError) return result;
      throw error;
    }
  }

  /** One that had to be sent again and finds stdin closed has met its own first copy, if there was something to close. */
  async #closeStdinOnce(): Promise<{ status: CloseStdinStatus }> {
    const params = { processId: this.processId };
    let isRepeated = false;
    const renew = () => {
      isRepeated = true;
      return params;
    };
    const result = await this.#callExtended("process/closeStdin", params, { renew });
    const isMet = isRepeated && result.status === "stdinClosed" && this.#hasOpenStdin;
    if (isMet || result.status === "accepted") this.#hasOpenStdin = false;
    return isMet ? { status: "accepted" } : result;
  }

  async #callExtended<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options?: LinkCallOptions<M>,
  ): Promise<ResultOf<M>> {
    if (!this.#link.server.extended) throw notSupported(method);
    return this.#call(method, params, options);
  }

  #call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options?: LinkCallOptions<M>,
  ): Promise<ResultOf<M>> {
    return explainedCall(this.#link, method, params, options);
  }

  #waitHere(params: WaitParams): Promise<WaitResult> {
    if (params.until?.type === "port") return Promise.reject(notSupported("waiting for a port"));
    return this.#waitOnLog(params);
  }

  #waitOnLog(params: WaitParams): Promise<WaitResult> {
    return waitOn({ log: this.log, clock: this.#clock, isPortListening: async () => false }, params);
  }
}

/** The server's answer as far as the own log has come: a later read must not fall behind this one. */
function upTo(own: ReadResult, { chunks, nextSeq, gap }: ReadResult): ReadResult {
  const { gap: _replaced, ...rest } = own;
  return {
    ...rest,
    chunks: chunks.filter(({ seq }) => seq < own.nextSeq),
    nextSeq: Math.min(nextSeq, own.nextSeq),
    gap,
  };
}

const EXIT: WaitCondition = { type: "exit" };
