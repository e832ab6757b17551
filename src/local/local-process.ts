import type { Clock, Timer } from "../async/clock.ts";
import type { WatchReceiver } from "../async/watch.ts";
import { freeCopiedBuffer } from "../base/free-buffer.ts";
import { omitUndefined } from "../base/omit-undefined.ts";
import type { HostProcess, WriteOutcome } from "../exec/backend/host-backend.ts";
import { MAX_QUEUED_INPUT_BYTES } from "../exec/backend/input-limits.ts";
import type { PersistentRecordWriter } from "../exec/backend/persistent-process.ts";
import type { LimitName } from "../exec/backend/process-limits.ts";
import { withCallErrors } from "../exec/call-error.ts";
import type * as exec from "../exec/exec-process.ts";
import { DEFAULT_TERMINAL_SIZE, earliestEndMs } from "../exec/exec-process.ts";
import type { EventLog } from "../exec/log/event-log.ts";
import { takeSnapshot, toListing } from "../exec/log/log-views.ts";
import { SizeHistory } from "../exec/log/size-history.ts";
import { type InputData, toInputBytes } from "../exec/options/input-bytes.ts";
import * as checks from "../exec/options/process-checks.ts";
import { inputStateOf } from "../exec/terminal/input-state.ts";
import { TerminalResponder } from "../exec/terminal/terminal-responder.ts";
import { waitForCondition } from "../exec/wait/wait-condition.ts";
import { internalError, invalidRequest } from "../protocol/errors.ts";
import { ExecServerError, type ExecServerErrorDetails } from "../protocol/exec-server-error.ts";
import type { MethodName } from "../protocol/methods.ts";
import type { Child, ChildEvents, WaitStatus } from "./child.ts";
import { signalName, signalNumber } from "./signals.ts";
import { describeTree } from "./tree/process-tree.ts";
import type { TreeKiller } from "./tree/tree-kill.ts";

export interface LocalProcessDeps {
  log: EventLog;
  clock: Clock;
  killer: TreeKiller;
  sandboxType: exec.SandboxType;
  droppedEnv?: readonly string[] | undefined;
  /** Returns the limit that caused this signal; null if no limit did. */
  limitExceededBy: (signal: number) => LimitName | null;
  /** Returns true if the exit of a sandboxed process shows that the sandbox denied an operation. */
  isDenial?: ((exit: { exitCode: number; signal: string | null }, log: EventLog) => boolean) | undefined;
  onClose: (process: LocalProcess) => void;
  /** Defaults to now. */
  startedAtMs?: number | undefined;
  /** Set for a process that an earlier server started. */
  restored?: RestoredProcessState | undefined;
}

export interface RestoredProcessState {
  isStdinClosed: boolean;
  hasExited: boolean;
}

/** Grace period of a process that exceeds its `timeoutMs`. */
const TIMEOUT_GRACE_MS = 2000;
/** Time after the exit of a terminated leader in which a process that the server cannot kill may hold its streams open. */
const CUT_AFTER_MS = 2000;
/** With this much unread input the process is not reading replies, so the server stops replying to terminal queries. */
const MAX_UNREAD_REPLY_BYTES = 4096;

/** A process on the local host. It owns its child and its event log; `await using` terminates it and frees both. */
export class LocalProcess implements HostProcess {
  readonly processId: string;
  readonly sandboxType: exec.SandboxType;
  readonly droppedEnv: readonly string[] | undefined;
  /** The event log. A server adds its cursors to it. */
  readonly log: EventLog;
  readonly sizes = new SizeHistory();

  readonly #params: exec.StartParams;
  readonly #deps: LocalProcessDeps;
  readonly #startedAtMs: number;
  #child: Child | null = null;
  /** Stored here as well, because a failed log records no exit. */
  #hasExited = false;
  #stdin: "open" | "closed" | "none";
  #size: exec.TerminalSize | null;
  #endReason: exec.ExitReason | null = null;
  #limit: LimitName | null = null;
  #responder: TerminalResponder | null = null;
  #wallTime: Timer | null = null;
  #timeout: Timer | null = null;
  #cutTimer: Timer | null = null;
  #drained: PromiseWithResolvers<void> | null = null;
  #closed = Promise.withResolvers<void>();

  /** @internal */
  constructor(params: exec.StartParams, size: exec.TerminalSize | null, deps: LocalProcessDeps) {
    this.processId = params.processId;
    this.sandboxType = deps.sandboxType;
    this.droppedEnv = deps.droppedEnv;
    this.log = deps.log;
    this.#params = params;
    this.#deps = deps;
    this.#size = size;
    this.#stdin = params.tty || params.pipeStdin ? "open" : "none";
    this.#startedAtMs = deps.startedAtMs ?? deps.clock.now();
    if (params.terminalQueries === "server") this.setTerminalResponder(true);
    if (!deps.restored) return;
    const { isStdinClosed, hasExited } = deps.restored;
    if (isStdinClosed && this.#stdin === "open") this.#stdin = "closed";
    this.#hasExited = hasExited;
    if (this.log.isClosed) this.#closed.resolve();
  }

  /**
   * Callbacks for the child, which may call them before `attach`.
   *
   * @internal
   */
  get childEvents(): ChildEvents {
    return {
      output: (stream, chunk) => this.#onOutput(stream, chunk),
      exit: (exit) => this.#onExit(exit),
      close: () => this.#onClose(),
      drain: () => this.#wakeWriters(),
      failed: (error) => this.#onFailed(error),
    };
  }

  /** @internal */
  attach(child: Child): void {
    this.#child = child;
    // Handles events that came before `attach`, when there was no child.
    if (!this.#deps.restored && this.log.exit) child.persistent?.recordExit(this.log.exit);
    if (!this.#deps.restored && this.log.isClosed) child.persistent?.recordClosed();
    if (this.log.failure !== null) void this.terminateWithReason("terminated").catch(() => undefined);
    this.log.onBackpressure = (paused) => (paused ? child.pause() : child.resume());
    if (this.log.exit) return;
    const endAfterMs = earliestEndMs(this.#params);
    // A restored process has used part of its time.
    const ageMs = this.#deps.restored ? this.#deps.clock.now() - this.#startedAtMs : 0;
    const after = (ms: number, fn: () => void) =>
      this.#deps.clock.after(Math.max(ms - ageMs, 0), fn, { keepAlive: false });
    if (endAfterMs !== null) this.#timeout = after(endAfterMs, () => this.#terminateBy("timeout"));
    const wallTimeMs = this.#params.limits?.wallTimeMs;
    if (wallTimeMs !== undefined) this.#wallTime = after(wallTimeMs, () => this.#onLimit("wallTimeMs"));
  }

  get pid(): number | null {
    return this.#child?.pid ?? null;
  }

  /**
   * Null before the spawn has completed.
   *
   * @internal
   */
  get child(): Child | null {
    return this.#child;
  }

  get persistent(): PersistentRecordWriter | null {
    return this.#child?.persistent ?? null;
  }

  get directInput(): object | null {
    return this.#child?.input.direct ?? null;
  }

  get inputBytes(): number {
    return this.#child?.input.writtenBytes ?? 0;
  }

  get size(): exec.TerminalSize | null {
    return this.#size;
  }

  get running(): boolean {
    return !this.#hasExited;
  }

  /** Resolves when every stream has ended and every file descriptor is closed. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  listing(): exec.ProcessListing {
    const { processId, pid, running, log } = this;
    const startedAtMs = this.#startedAtMs;
    const listing = toListing({ processId, params: this.#params, pid, running, startedAtMs, log });
    const tty = running ? this.#child?.ttyState() : undefined;
    return {
      ...listing,
      status: {
        exitReason: log.exit?.reason,
        limit: log.exit?.limit,
        limits: this.#params.limits,
        isHeld: running && log.isPaused ? true : undefined,
        awaits: tty ? inputStateOf(tty) : undefined,
      },
    };
  }

  // ---- reading

  events(options?: exec.EventsOptions): AsyncIterableIterator<exec.ExecEvent> {
    checks.checkEvents(options);
    return this.log.events(options);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.log.subscribeWake();
  }

  read(params: exec.ReadParams = {}): Promise<exec.ReadResult> {
    const check = () => checks.checkRead(params);
    return withCallErrors(this.#about("process/read"), () => this.log.readWaiting(params), undefined, check);
  }

  wait(params: exec.WaitParams = {}): Promise<exec.WaitResult> {
    const watched = { log: this.log, clock: this.#deps.clock, isPortListening };
    const check = () => checks.checkWait(params);
    return withCallErrors(this.#about("process/wait"), () => waitForCondition(watched, params), undefined, check);
  }

  async snapshot(options: exec.CallOptions = {}): Promise<exec.Snapshot> {
    checks.checkCall("snapshot", options);
    options.signal?.throwIfAborted();
    const tty = this.ttyState() ?? undefined;
    return omitUndefined<exec.Snapshot>({ ...takeSnapshot(this.log, this.running), tty });
  }

  ttyState(): exec.TtyState | null {
    return this.#child?.ttyState() ?? null;
  }

  tree(): exec.ProcessTree {
    return describeTree(this.#child ? this.#deps.killer.tree(this.#child) : []);
  }

  // ---- input

  write(data: InputData, options: exec.WriteOptions = {}): Promise<{ status: exec.WriteStatus }> {
    const write = async (): Promise<{ status: exec.WriteStatus }> => {
      if (!this.running) return { status: "stdinClosed" };
      const { status } = await this.writeRaw(toInputBytes(data), options);
      return { status };
    };
    return withCallErrors(this.#about("process/write"), write, options?.signal, () => checks.checkWrite(data, options));
  }

  /**
   * `accepted` means queued, not read. A process that closed its stdin or exited still accepts writes; a
   * terminated process does not.
   */
  async writeRaw(bytes: Uint8Array, { writeId }: exec.WriteOptions = {}): Promise<WriteOutcome> {
    if (this.#stdin === "none") return { status: "stdinClosed" };
    const input = this.#child?.input;
    if (writeId !== undefined && input?.hasWriteId(writeId)) return { status: "accepted", isDuplicate: true };
    if (this.#stdin === "closed") return { status: "stdinClosed" };
    if (this.#endReason !== null) throw internalError("failed to write to process stdin");
    if (!input) return { status: "starting" };
    input.write(bytes, writeId);
    const isFlushed = input.queuedBytes === 0;
    if (input.queuedBytes > (input.maxQueuedBytes ?? MAX_QUEUED_INPUT_BYTES)) {
      this.#drained ??= Promise.withResolvers<void>();
      await this.#drained.promise;
    }
    return { status: "accepted", isFlushed };
  }

  async closeStdin(options: exec.CallOptions = {}): Promise<{ status: exec.CloseStdinStatus }> {
    checks.checkCall("closeStdin", options);
    options.signal?.throwIfAborted();
    if (this.#stdin !== "open") return { status: "stdinClosed" };
    this.#stdin = "closed";
    if (!this.log.isClosed) this.#child?.input.close();
    return { status: "accepted" };
  }

  resize(size: exec.TerminalSize, options: exec.CallOptions = {}): Promise<void> {
    const check = () => checks.checkResize(size, options);
    return withCallErrors(this.#about("process/resize"), async () => this.#resize(size), options?.signal, check);
  }

  #resize(size: exec.TerminalSize): void {
    if (!this.#size) throw invalidRequest(`process ${this.processId} has no terminal`);
    if (size.rows === this.#size.rows && size.cols === this.#size.cols) return;
    const { nextSeq, ageMs } = this.log;
    // Output before the first resize was written for the initial size.
    if (this.sizes.last === null) this.sizes.add({ size: this.#size, afterSeq: 0, atMs: 0 });
    this.#size = size;
    if (!this.log.isClosed) this.#child?.resize(size);
    this.sizes.add({ size, afterSeq: nextSeq - 1, atMs: Math.round(ageMs) });
  }

  setTerminalResponder(isEnabled: boolean, { afterSeq }: { afterSeq?: number } = {}): void {
    if (isEnabled === (this.#responder !== null) || !this.#size || this.log.isClosed) return;
    this.#responder?.finish();
    this.#responder = isEnabled ? this.#createResponder() : null;
    if (afterSeq !== undefined) this.#responder?.replay({ afterSeq });
  }

  answerQueriesIn(range: { afterSeq: number; throughSeq: number }): void {
    if (!this.#size || this.log.isClosed) return;
    const responder = this.#createResponder();
    responder.replay(range);
    responder.finish();
  }

  #createResponder(): TerminalResponder {
    const { log } = this;
    const size = () => this.#size ?? DEFAULT_TERMINAL_SIZE;
    return new TerminalResponder({ log, size, reply: (bytes) => this.#reply(bytes) });
  }

  #reply(bytes: Uint8Array): void {
    const input = this.#child?.input;
    if (!input || this.#stdin !== "open" || this.#endReason !== null || !this.running) return;
    if (input.queuedBytes <= MAX_UNREAD_REPLY_BYTES) input.write(bytes);
  }

  // ---- ending

  signal(name: string, options: exec.CallOptions = {}): Promise<void> {
    const send = async () => void this.#child?.signalGroup(signalNumber(name));
    return withCallErrors(this.#about("process/signal"), send, options?.signal, () =>
      checks.checkSignal(name, options),
    );
  }

  /** Sends a signal to the whole process group. Resolves to false if the process has exited. Default signal: SIGTERM. */
  kill(signal = "SIGTERM", options: exec.CallOptions = {}): Promise<boolean> {
    const kill = async () => {
      const number = signalNumber(signal);
      if (!this.running) return false;
      this.#child?.signalGroup(number);
      return true;
    };
    return withCallErrors(this.#about("process/signal"), kill, options?.signal, () =>
      checks.checkKill(signal, options),
    );
  }

  /** Does nothing if the process has exited, even while descendants still hold its streams. */
  terminate(
    mode: exec.TerminateMode = { type: "force" },
    options: exec.CallOptions = {},
  ): Promise<exec.TerminateResult> {
    const end = async () => (this.running ? this.terminateWithReason("terminated", mode) : { running: false });
    const check = () => checks.checkTerminate(mode, options);
    return withCallErrors(this.#about("process/terminate"), end, options?.signal, check);
  }

  /**
   * Terminates the process tree and records the exit reason; the first reason wins. After the leader's exit it kills
   * the remaining descendants.
   */
  async terminateWithReason(
    reason: exec.ExitReason,
    mode: exec.TerminateMode = { type: "force" },
  ): Promise<exec.TerminateResult> {
    const child = this.#child;
    if (!child) return { running: false };
    if (!this.running) {
      const survivors = await this.#deps.killer.sweep(child);
      // A process that the server cannot kill may still hold its end of a stream. The server closes its own end.
      if (!this.log.isClosed) child.closeStreams();
      return terminateResult(false, survivors);
    }
    this.#endReason ??= reason;
    child.input.closeDirect();
    this.#wakeWriters();
    const survivors = await this.#deps.killer.kill(
      { child, exited: () => this.#hasExited, onChange: (listener) => this.log.listen(listener) },
      mode,
    );
    return terminateResult(true, survivors);
  }

  get hasOrphans(): boolean {
    return this.#child !== null && !this.running && this.#deps.killer.hasDescendants(this.#child);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child && !this.log.isClosed) {
      await this.terminateWithReason("terminated");
      this.#child.closeStreams();
      await this.closed;
    }
    this.log.dispose();
  }

  /** Drops output beyond the limit, so that exactly the allowed number of bytes is emitted. */
  #onOutput(stream: exec.OutputStream, chunk: Uint8Array): void {
    const remaining = (this.#params.limits?.outputBytes ?? Number.POSITIVE_INFINITY) - this.log.totalBytes;
    if (chunk.length <= remaining) {
      const appended = this.log.append(stream, chunk);
      this.#responder?.feed(chunk);
      // Freed at once, because hundreds of such chunks may accumulate before the garbage collector runs.
      if (appended === "copied") freeCopiedBuffer(chunk);
      return;
    }
    if (remaining > 0) this.log.append(stream, chunk.subarray(0, remaining));
    if (this.#limit === null) this.#onLimit("outputBytes");
  }

  /** Terminates a process that can no longer be tracked, so that it does not run unobserved. */
  #onFailed(error: Error): void {
    this.log.fail(new ExecServerError(error.message, "FAILED", {}, { cause: error }));
    // The log has already failed, so a second failure cannot be reported.
    void this.terminateWithReason("terminated").catch(() => undefined);
  }

  #onLimit(limit: LimitName): void {
    if (this.#endReason === null) this.#limit = limit;
    this.#terminateBy("limit");
  }

  #terminateBy(reason: "timeout" | "limit"): void {
    this.terminateWithReason(reason, { type: "graceful", timeoutMs: TIMEOUT_GRACE_MS }).catch((error: unknown) =>
      this.log.fail(
        new ExecServerError(
          `terminate process: it exceeded its timeout or a limit and could not be killed: ${error}`,
          "FAILED",
        ),
      ),
    );
  }

  #onExit(raw: WaitStatus): void {
    this.#timeout?.cancel();
    this.#wallTime?.cancel();
    this.#hasExited = true;
    const status = this.#exitStatus(raw);
    this.#child?.persistent?.recordExit(status);
    this.log.exited(status);
    // The caller of terminate does not wait for a process that holds a stream and that the server cannot kill.
    if (this.#endReason !== null)
      this.#cutTimer = this.#deps.clock.after(CUT_AFTER_MS, () => this.#child?.closeStreams(), { keepAlive: false });
  }

  #onClose(): void {
    this.#cutTimer?.cancel();
    this.#wakeWriters();
    this.#responder?.dispose();
    this.#child?.persistent?.recordClosed();
    this.log.closed();
    this.#closed.resolve();
    this.#deps.onClose(this);
  }

  #exitStatus(raw: WaitStatus): exec.ExitStatus {
    const ended =
      raw.type === "code"
        ? { exitCode: raw.code, signal: null }
        : { exitCode: 128 + raw.signal, signal: signalName(raw.signal) };
    // A terminated process failed because of the termination, whatever it wrote before.
    const denied = this.#endReason === null && (this.#deps.isDenial?.(ended, this.log) ?? false);
    if (this.#endReason === null && raw.type === "signal") this.#limit ??= this.#deps.limitExceededBy(raw.signal);
    const ownReason = raw.type === "code" ? "exited" : this.#limit === null ? "signaled" : "limit";
    const reason = this.#endReason ?? ownReason;
    const limit = reason === "limit" ? (this.#limit ?? undefined) : undefined;
    return omitUndefined<exec.ExitStatus>({ ...ended, reason, limit, sandboxDenied: denied });
  }

  /** Returns the details of the errors of a call. */
  #about(method: MethodName): ExecServerErrorDetails {
    return { method, argv: this.#params.argv };
  }

  #wakeWriters(): void {
    this.#drained?.resolve();
    this.#drained = null;
  }
}

/** Includes `survivors` only if there are any. */
function terminateResult(running: boolean, survivors: number[]): exec.TerminateResult {
  return survivors.length > 0 ? { running, survivors } : { running };
}

/** Imports the module on the first wait for a port. */
async function isPortListening(port: number): Promise<boolean> {
  return (await import("./listening-ports.ts")).isPortListening(port);
}
