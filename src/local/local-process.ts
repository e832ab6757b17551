import type { Clock, Timer } from "../async/clock.ts";
import type { WatchReceiver } from "../async/watch.ts";
import { freeCopied } from "../base/free-buffer.ts";
import { defined } from "../base/omit-undefined.ts";
import { awaitedBy } from "../exec/awaited-input.ts";
import type { LimitName } from "../exec/backend/process-limits.ts";
import { asked } from "../exec/call-error.ts";
import type {
  CallOptions,
  CloseStdinStatus,
  EventsOptions,
  ExecEvent,
  ExitReason,
  ExitStatus,
  OutputStream,
  ProcessListing,
  ProcessTree,
  ReadParams,
  ReadResult,
  SandboxType,
  Snapshot,
  StartParams,
  TerminalSize,
  TerminateMode,
  TerminateResult,
  TtyState,
  WaitParams,
  WaitResult,
  WriteOptions,
  WriteStatus,
} from "../exec/exec-process.ts";
import { DEFAULT_TERMINAL_SIZE } from "../exec/exec-process.ts";
import type { Fed, HostProcess } from "../exec/host-backend.ts";
import { MAX_QUEUED_INPUT_BYTES } from "../exec/input-limits.ts";
import type { KeptSide } from "../exec/kept-process.ts";
import type { EventLog } from "../exec/log/event-log.ts";
import { listingOf, snapshotOf } from "../exec/log/log-views.ts";
import { SizeHistory } from "../exec/log/size-history.ts";
import { TerminalAnswers } from "../exec/terminal/terminal-responder.ts";
import { waitOn } from "../exec/wait/wait-condition.ts";
import { internalError, invalidRequest } from "../protocol/errors.ts";
import type { MethodName } from "../protocol/methods.ts";
import type { Child, ChildEvents, RawExit } from "./child.ts";
import { signalName, signalNumber } from "./signals.ts";
import { treeOf } from "./tree/process-tree.ts";
import type { TreeKiller } from "./tree/tree-kill.ts";

/** TERM comes this long before KILL when a process outlives its `timeoutMs`. */
const TIMEOUT_GRACE_MS = 2000;
/** After an ended process's leader is gone, how long a process out of reach may keep its streams open. */
const CUT_AFTER_MS = 2000;
/** A process with this much unread input does not read answers; its terminal's queries are not answered meanwhile. */
const MAX_UNREAD_ANSWERS_BYTES = 4096;
const NEVER = Number.POSITIVE_INFINITY;

export interface LocalProcessDeps {
  log: EventLog;
  clock: Clock;
  killer: TreeKiller;
  sandboxType: SandboxType;
  droppedEnv: readonly string[] | undefined;
  /** Which limit a child reached that was killed by this signal. */
  limitMetBy: (signal: number) => LimitName | null;
  /** Looks at how a sandboxed process ended: did its walls refuse something? */
  wasDenied: (exit: { exitCode: number; signal: string | null }, log: EventLog) => boolean;
  onClose: (process: LocalProcess) => void;
  /** Default: now. */
  startedAtMs?: number | undefined;
  /** Of a process that an earlier server started: what was done to it. */
  restored?: RestoredState | undefined;
}

export interface RestoredState {
  isStdinClosed: boolean;
  hasExited: boolean;
}

/** One process on this machine. Owns its child and its log; `await using` ends it and gives both back. */
export class LocalProcess implements HostProcess {
  readonly processId: string;
  readonly sandboxType: SandboxType;
  readonly droppedEnv: readonly string[] | undefined;
  /** The process's events. A server puts its own cursors on it. */
  readonly log: EventLog;
  readonly sizes = new SizeHistory();

  readonly #params: StartParams;
  readonly #deps: LocalProcessDeps;
  readonly #startedAtMs: number;
  #child: Child | null = null;
  /** Kept apart from the log, which takes no exit once it has failed. */
  #hasExited = false;
  #stdin: "open" | "closed" | "none";
  #size: TerminalSize | null;
  #endReason: ExitReason | null = null;
  #limit: LimitName | null = null;
  #answers: TerminalAnswers | null = null;
  #wallTime: Timer | null = null;
  #timeout: Timer | null = null;
  #cutTimer: Timer | null = null;
  #drained: PromiseWithResolvers<void> | null = null;
  #closed = Promise.withResolvers<void>();

  /** @internal */
  constructor(params: StartParams, size: TerminalSize | null, deps: LocalProcessDeps) {
    this.processId = params.processId;
    this.sandboxType = deps.sandboxType;
    this.droppedEnv = deps.droppedEnv;
    this.log = deps.log;
    this.#params = params;
    this.#deps = deps;
    this.#size = size;
    this.#stdin = params.tty || params.pipeStdin ? "open" : "none";
    this.#startedAtMs = deps.startedAtMs ?? deps.clock.now();
    if (params.terminalQueries === "server") this.answerQueries(true);
    if (!deps.restored) return;
    const { isStdinClosed, hasExited } = deps.restored;
    if (isStdinClosed && this.#stdin === "open") this.#stdin = "closed";
    this.#hasExited = hasExited;
    if (this.log.isClosed) this.#closed.resolve();
  }

  /**
   * What the child calls; it may do so before `attach`.
   *
   * @internal
   */
  get childEvents(): ChildEvents {
    return {
      output: (stream, chunk) => this.#onOutput(stream, chunk),
      exit: (exit) => this.#onExit(exit),
      close: () => this.#onClose(),
      drain: () => this.#wakeWriters(),
      broken: (error) => this.#onBroken(error),
    };
  }

  /** @internal */
  attach(child: Child): void {
    this.#child = child;
    this.#recordEnd(child);
    if (this.log.failure !== null) void this.end("terminated").catch(() => undefined);
    this.log.onPressure = (paused) => (paused ? child.pause() : child.resume());
    if (this.log.exit) return;
    const { limits, timeoutMs = NEVER, maxAgeMs = NEVER } = this.#params;
    const endAfterMs = Math.min(timeoutMs, maxAgeMs);
    // A process of an earlier server has lived for a while.
    const ageMs = this.#deps.restored ? this.#deps.clock.now() - this.#startedAtMs : 0;
    const after = (ms: number, fn: () => void) =>
      this.#deps.clock.after(Math.max(ms - ageMs, 0), fn, { keepAlive: false });
    if (endAfterMs !== NEVER) this.#timeout = after(endAfterMs, () => this.#endLate("timeout"));
    const wallTimeMs = limits?.wallTimeMs;
    if (wallTimeMs !== undefined) this.#wallTime = after(wallTimeMs, () => this.#onLimit("wallTimeMs"));
  }

  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  /**
   * The started program below; null before it has started.
   *
   * @internal
   */
  get child(): Child | null {
    return this.#child;
  }

  get kept(): KeptSide | null {
    return this.#child?.kept ?? null;
  }

  get straightInput(): object | null {
    return this.#child?.input.straight ?? null;
  }

  get inputBytes(): number {
    return this.#child?.input.writtenBytes ?? 0;
  }

  get size(): TerminalSize | null {
    return this.#size;
  }

  get running(): boolean {
    return !this.#hasExited;
  }

  /** Resolves when every stream has ended and every file descriptor is given back. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  listing(): ProcessListing {
    const { processId, pid, running, log } = this;
    const listing = listingOf({
      processId,
      params: this.#params,
      pid,
      running,
      startedAtMs: this.#startedAtMs,
      log,
    });
    const tty = running ? this.#child?.ttyState() : undefined;
    return {
      ...listing,
      status: {
        exitReason: log.exit?.reason,
        limit: log.exit?.limit,
        limits: this.#params.limits,
        isHeld: running && log.isHeld ? true : undefined,
        awaits: tty ? awaitedBy(tty) : undefined,
      },
    };
  }

  // ---- reading

  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent> {
    return this.log.events(options);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.log.subscribeWake();
  }

  read(params: ReadParams = {}): Promise<ReadResult> {
    return this.#asked("process/read", () => this.log.readWaiting(params));
  }

  wait(params: WaitParams = {}): Promise<WaitResult> {
    const watched = { log: this.log, clock: this.#deps.clock, isPortListening };
    return this.#asked("process/wait", () => waitOn(watched, params));
  }

  async snapshot({ signal }: CallOptions = {}): Promise<Snapshot> {
    signal?.throwIfAborted();
    const tty = this.ttyState() ?? undefined;
    return defined<Snapshot>({ ...snapshotOf(this.log, this.running), tty });
  }

  ttyState(): TtyState | null {
    return this.#child?.ttyState() ?? null;
  }

  tree(): ProcessTree {
    return treeOf(this.#child ? this.#deps.killer.tree(this.#child) : []);
  }

  // ---- input

  write(bytes: Uint8Array, options: WriteOptions = {}): Promise<{ status: WriteStatus }> {
    const write = async (): Promise<{ status: WriteStatus }> => {
      if (!this.running) return { status: "stdinClosed" };
      const { status } = await this.feed(bytes, options);
      return { status };
    };
    return this.#asked("process/write", write, options.signal);
  }

  /**
   * `accepted` means queued, not read: a process that has closed its stdin or has ended by
   * itself still accepts. One that was ended by request refuses.
   */
  async feed(bytes: Uint8Array, { writeId }: WriteOptions = {}): Promise<Fed> {
    if (this.#stdin === "none") return { status: "stdinClosed" };
    const input = this.#child?.input;
    if (writeId !== undefined && input?.knows(writeId)) return { status: "accepted", isRepeated: true };
    if (this.#stdin === "closed") return { status: "stdinClosed" };
    if (this.#endReason !== null) throw internalError("failed to write to process stdin");
    if (!input) return { status: "starting" };
    input.write(bytes, writeId);
    const isTaken = input.queuedBytes === 0;
    if (input.queuedBytes > (input.maxQueuedBytes ?? MAX_QUEUED_INPUT_BYTES)) {
      this.#drained ??= Promise.withResolvers<void>();
      await this.#drained.promise;
    }
    return { status: "accepted", isTaken };
  }

  async closeStdin({ signal }: CallOptions = {}): Promise<{ status: CloseStdinStatus }> {
    signal?.throwIfAborted();
    if (this.#stdin !== "open") return { status: "stdinClosed" };
    this.#stdin = "closed";
    if (!this.log.isClosed) this.#child?.input.close();
    return { status: "accepted" };
  }

  resize(size: TerminalSize, { signal }: CallOptions = {}): Promise<void> {
    return this.#asked("process/resize", async () => this.#resize(size), signal);
  }

  #resize(size: TerminalSize): void {
    if (!this.#size) throw invalidRequest(`process ${this.processId} has no terminal`);
    if (isSameSize(size, this.#size)) return;
    const { nextSeq, ageMs } = this.log;
    // What there was before the first change was written for the size it began with.
    if (this.sizes.last === null) this.sizes.add({ size: this.#size, afterSeq: 0, atMs: 0 });
    this.#size = size;
    if (!this.log.isClosed) this.#child?.resize(size);
    this.sizes.add({ size, afterSeq: nextSeq - 1, atMs: Math.round(ageMs) });
  }

  answerQueries(answers: boolean, { afterSeq }: { afterSeq?: number } = {}): void {
    if (answers === (this.#answers !== null) || !this.#size || this.log.isClosed) return;
    this.#answers?.finish();
    this.#answers = answers ? this.#newAnswers() : null;
    if (afterSeq !== undefined) this.#answers?.lookBack({ afterSeq });
  }

  answerAsked(asked: { afterSeq: number; throughSeq: number }): void {
    if (!this.#size || this.log.isClosed) return;
    const answers = this.#newAnswers();
    answers.lookBack(asked);
    answers.finish();
  }

  #newAnswers(): TerminalAnswers {
    const { log } = this;
    const size = () => this.#size ?? DEFAULT_TERMINAL_SIZE;
    return new TerminalAnswers({ log, size, reply: (bytes) => this.#answer(bytes) });
  }

  #answer(bytes: Uint8Array): void {
    const input = this.#child?.input;
    if (!input || this.#stdin !== "open" || this.#endReason !== null || !this.running) return;
    if (input.queuedBytes <= MAX_UNREAD_ANSWERS_BYTES) input.write(bytes);
  }

  // ---- ending

  signal(name: string, { signal }: CallOptions = {}): Promise<void> {
    const send = async () => {
      const number = signalNumber(name);
      this.#child?.signalGroup(number);
    };
    return this.#asked("process/signal", send, signal);
  }

  /** Does nothing for a process that has exited, also while others still hold its streams. */
  terminate(mode: TerminateMode = { type: "force" }, { signal }: CallOptions = {}): Promise<TerminateResult> {
    const end = async () => (this.running ? this.end("terminated", mode) : { running: false });
    return this.#asked("process/terminate", end, signal);
  }

  /**
   * Ends it and all that belongs to it, and says why; the first reason stands. After the leader's exit it ends the
   * descendants that outlived it.
   */
  async end(reason: ExitReason, mode: TerminateMode = { type: "force" }): Promise<TerminateResult> {
    const child = this.#child;
    if (!child) return { running: false };
    if (!this.running) {
      const survivors = await this.#deps.killer.sweep(child);
      // A process out of reach may keep its end of a stream; ours is closed.
      if (!this.log.isClosed) child.cut();
      return ended(false, survivors);
    }
    this.#endReason ??= reason;
    child.input.refuse();
    this.#wakeWriters();
    const survivors = await this.#deps.killer.kill(
      { child, exited: () => this.#hasExited, onChange: (listener) => this.log.listen(listener) },
      mode,
    );
    return ended(true, survivors);
  }

  get hasLeft(): boolean {
    return this.#child !== null && !this.running && this.#deps.killer.hasLeft(this.#child);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child && !this.log.isClosed) {
      await this.end("terminated");
      this.#child.cut();
      await this.closed;
    }
    this.log.dispose();
  }

  /** Output beyond a limit is dropped, so that exactly as much as was allowed is emitted. */
  #onOutput(stream: OutputStream, chunk: Uint8Array): void {
    const left = (this.#params.limits?.outputBytes ?? Number.POSITIVE_INFINITY) - this.log.totalBytes;
    if (chunk.length <= left) {
      const appended = this.log.append(stream, chunk);
      this.#answers?.look(chunk);
      // Not left to the garbage collector, which may not run before there are hundreds of such chunks.
      if (appended === "copied") freeCopied(chunk);
      return;
    }
    if (left > 0) this.log.append(stream, chunk.subarray(0, left));
    if (this.#limit === null) this.#onLimit("outputBytes");
  }

  /** It can no longer be followed, so it is ended instead of running on unseen. */
  #onBroken(error: Error): void {
    this.log.fail(error.message);
    // The log has failed already; a second failure has nowhere to go.
    void this.end("terminated").catch(() => undefined);
  }

  #onLimit(limit: LimitName): void {
    if (this.#endReason === null) this.#limit = limit;
    this.#endLate("limit");
  }

  #endLate(reason: "timeout" | "limit"): void {
    this.end(reason, { type: "graceful", timeoutMs: TIMEOUT_GRACE_MS }).catch((error: unknown) =>
      this.log.fail(`the process went beyond its time or a limit and could not be ended: ${error}`),
    );
  }

  #onExit(raw: RawExit): void {
    this.#timeout?.cancel();
    this.#wallTime?.cancel();
    this.#hasExited = true;
    const status = this.#exitStatus(raw);
    this.#child?.kept?.recordExit(status);
    this.log.exited(status);
    // The caller that ended it does not wait for a process out of reach that holds a stream.
    if (this.#endReason !== null)
      this.#cutTimer = this.#deps.clock.after(CUT_AFTER_MS, () => this.#child?.cut(), { keepAlive: false });
  }

  #onClose(): void {
    this.#cutTimer?.cancel();
    this.#wakeWriters();
    this.#answers?.dispose();
    this.#child?.kept?.recordClosed();
    this.log.closed();
    this.#closed.resolve();
    this.#deps.onClose(this);
  }

  /** It may have ended before its child was known here. */
  #recordEnd({ kept }: Child): void {
    if (this.#deps.restored || !kept) return;
    if (this.log.exit) kept.recordExit(this.log.exit);
    if (this.log.isClosed) kept.recordClosed();
  }

  #exitStatus(raw: RawExit): ExitStatus {
    const ended =
      raw.type === "code"
        ? { exitCode: raw.code, signal: null }
        : { exitCode: 128 + raw.signal, signal: signalName(raw.signal) };
    // One that was ended by request failed because of that, whatever it wrote before.
    const denied = this.#endReason === null && this.#deps.wasDenied(ended, this.log);
    if (this.#endReason === null && raw.type === "signal") this.#limit ??= this.#deps.limitMetBy(raw.signal);
    const byItself = raw.type === "code" ? "exited" : this.#limit === null ? "signaled" : "limit";
    const reason = this.#endReason ?? byItself;
    const limit = reason === "limit" ? (this.#limit ?? undefined) : undefined;
    return defined<ExitStatus>({ ...ended, reason, limit, sandboxDenied: denied });
  }

  #asked<T>(method: MethodName, call: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    return asked({ method, argv: this.#params.argv }, call, signal);
  }

  #wakeWriters(): void {
    this.#drained?.resolve();
    this.#drained = null;
  }
}

function isSameSize(one: TerminalSize, other: TerminalSize): boolean {
  return one.rows === other.rows && one.cols === other.cols;
}

/** The member is present only if there are survivors. */
function ended(running: boolean, survivors: number[]): TerminateResult {
  return survivors.length > 0 ? { running, survivors } : { running };
}

/** Loaded by the first wait for a port. */
async function isPortListening(port: number): Promise<boolean> {
  return (await import("./listening-ports.ts")).isPortListening(port);
}
