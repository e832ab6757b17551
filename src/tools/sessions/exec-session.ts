import type { Clock, Timer } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { shellQuote } from "../../base/text/printable-text.ts";
import { Utf8Splitter } from "../../base/text/utf8.ts";
import type { ExecEvent, ExecProcess, ExitStatus, OutputStream } from "../../exec/exec-process.ts";
import { HeadTailBuffer } from "../../exec/log/head-tail-buffer.ts";
import type { NetworkDecision } from "../../protocol/network/network-schemas.ts";
import { isSandboxDenial } from "../../sandbox/denial-compat.ts";
import type { CommandNetwork } from "../network/command-network.ts";
import type { OutputArchive } from "../output/output-archive.ts";
import type { RetainedText } from "../output/token-budget.ts";
import type {
  EventFeed,
  ExecCommandBegin,
  ExecCommandEnd,
  ExecSessionEnd,
  TerminalDriver,
  TerminalWaiting,
} from "./exec-events.ts";

/** How a user attaches to a session. */
export interface AttachHint {
  handle: string;
  /** Shell command. */
  command: string;
}

export interface ExecSessionDeps {
  /** URL at which users reach the host of the processes; null if they cannot. */
  attachUrl: string | null;
  clock: Clock;
  feed: EventFeed;
  archive: OutputArchive;
}

/** The requested command of a session. */
export interface ExecSessionCommand
  extends Pick<ExecCommandBegin, "cmd" | "argv" | "cwd" | "tty" | "sandbox" | "attempt"> {
  network?: CommandNetwork | undefined;
}

/** Maximum output retained between two calls: half head, half tail. */
const CALL_OUTPUT_BYTES = 1024 * 1024;
/** Wait for output after the exit, if another process holds the streams open. */
const DRAIN_MS = 50;
/** Grace period between SIGTERM and SIGKILL. */
const END_GRACE_MS = 2000;
/** Wait for the exit event after the grace period. Afterwards the end is reported without it. */
const END_DEADLINE_MS = 5000;

/**
 * One exec session. Reads all output of its process without loss, emits events, collects the output for the next call,
 * and emits the end event exactly once.
 */
export class ExecSession {
  readonly sessionId: number;
  readonly command: ExecSessionCommand;
  readonly process: ExecProcess;
  readonly archive: OutputArchive;
  /** Monotonic, as `lastOutputAtMs` is. */
  readonly startedAtMs: number;
  /** The managed network of the process; null if it has none. */
  readonly network: CommandNetwork | null;
  /** Sequence number of the last event before the last input. */
  inputSeq = 0;

  readonly #deps: ExecSessionDeps;
  readonly #readAbort = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  /** Resolves when the process exited and its output is drained, or when the server lost track of it. */
  readonly ended = this.#ended.promise;
  readonly #splitters = new Map<OutputStream, Utf8Splitter>();
  #output = newCallBuffer();
  /** Bytes evicted before this session read them. */
  #lostBytes = 0;
  #seq = 0;
  #lastOutputAtMs: number;
  #exit: ExitStatus | null = null;
  #stopType: "evicted" | "closed" | null = null;
  #end: ExecSessionEnd | null = null;
  #drainTimer: Timer | null = null;
  /** While false, an end with a sandbox denial is not emitted, because the command may run again without a sandbox. */
  #isRetryDecided: boolean;
  #unreportedEnd: ExecCommandEnd | null = null;
  #watchers = 0;
  #onUnwatched: () => void = () => undefined;
  /** `user` while a user is attached as driver. */
  #driver: TerminalDriver["driver"] = "model";
  readonly #driverListeners = new Set<(driver: TerminalDriver["driver"]) => void>();
  /** Whether a user drove the terminal since the last reported result. */
  #hasUnreportedUser = false;
  /** Sequence number at the last TerminalWaiting event, so that each prompt is reported once. Null before the first. */
  #waitReportedAtSeq: number | null = null;

  constructor(sessionId: number, process: ExecProcess, command: ExecSessionCommand, deps: ExecSessionDeps) {
    this.network = command.network ?? null;
    this.sessionId = sessionId;
    this.process = process;
    this.command = command;
    this.archive = deps.archive;
    this.#isRetryDecided = command.sandbox === "none";
    this.#deps = deps;
    this.startedAtMs = deps.clock.monotonic();
    this.#lastOutputAtMs = this.startedAtMs;
    const { network, ...begin } = command;
    deps.feed.emit({ type: "ExecCommandBegin", ...this.#ids, ...begin, atMs: deps.clock.now() });
    network?.listen((decision) => this.#emitNetwork(decision));
    process.onDriverChanged = (driver) => this.#driverChanged(driver === "attached" ? "user" : "model");
  }

  /** Null if users cannot attach. */
  get attachHint(): AttachHint | null {
    const { attachUrl } = this.#deps;
    const { handle } = this.process;
    return attachUrl === null || !handle || this.#end
      ? null
      : { handle, command: `procwire attach --connect ${shellQuote(attachUrl)} ${handle}` };
  }

  /** Emits a TerminalWaiting event. Emits a secret prompt only once, even if several calls see it. */
  promptState(waitingFor: TerminalWaiting["waitingFor"], reason: string | null = null): void {
    if (this.#end || (waitingFor === "secret" && this.#waitReportedAtSeq === this.#seq)) return;
    this.#waitReportedAtSeq = this.#seq;
    const atMs = this.#deps.clock.now();
    const attach = this.attachHint;
    this.#deps.feed.emit({ type: "TerminalWaiting", ...this.#ids, waitingFor, reason, attach, atMs });
  }

  /** Returns the user activity since the last call of this method, or undefined. */
  takeUserActivity(): "driving" | "returned" | undefined {
    if (this.#driver === "user") return "driving";
    const hasReturned = this.#hasUnreportedUser;
    this.#hasUnreportedUser = false;
    return hasReturned ? "returned" : undefined;
  }

  get driver(): TerminalDriver["driver"] {
    return this.#driver;
  }

  /** Calls `listener` on each change of the driver. Returns a function that unsubscribes. */
  listenDriver(listener: (driver: TerminalDriver["driver"]) => void): () => void {
    this.#driverListeners.add(listener);
    return () => void this.#driverListeners.delete(listener);
  }

  #driverChanged(driver: TerminalDriver["driver"]): void {
    if (this.#driver === driver) return;
    this.#driver = driver;
    this.#hasUnreportedUser = true;
    for (const listener of this.#driverListeners) listener(driver);
    if (this.#end) return;
    this.#deps.feed.emit({ type: "TerminalDriver", ...this.#ids, driver, atMs: this.#deps.clock.now() });
  }

  /** Reads the process until its last event. Never rejects. The owner awaits it. */
  async follow(): Promise<void> {
    try {
      const events = this.process.events({ lossless: true, signal: this.#readAbort.signal });
      for await (const event of events) await this.#onEvent(event);
      this.#finish(this.#toEnd("lost track of the process"));
    } catch (error) {
      this.#finish(this.#toEnd(errorMessage(error)));
    }
  }

  get end(): ExecSessionEnd | null {
    return this.#end;
  }

  /** Whether a call currently waits for this session. */
  get watched(): boolean {
    return this.#watchers > 0;
  }

  async withWatcher<T>(wait: () => Promise<T>): Promise<T> {
    this.#watchers++;
    try {
      return await wait();
    } finally {
      this.#watchers--;
      if (this.#watchers === 0) this.#onUnwatched();
    }
  }

  get lastOutputAtMs(): number {
    return this.#lastOutputAtMs;
  }

  /** Returns and removes the output since the last call. */
  takeOutput(): RetainedText {
    if (this.#end) for (const splitter of this.#splitters.values()) this.#output.push(splitter.flush());
    const buffer = this.#output;
    const totalBytes = buffer.totalBytes + this.#lostBytes;
    this.#output = newCallBuffer();
    this.#lostBytes = 0;
    return { head: buffer.head(), tail: buffer.tail(), totalBytes };
  }

  /** Emits a TerminalInteraction event before a write. */
  onInteraction(stdin: string | null): void {
    this.inputSeq = this.#seq;
    if (this.#end) return;
    this.#deps.feed.emit({ type: "TerminalInteraction", ...this.#ids, stdin, atMs: this.#deps.clock.now() });
  }

  /** Terminates the process. Resolves when it ended, or after the deadline. */
  async stop(type: "evicted" | "closed"): Promise<void> {
    if (this.#end) return;
    this.#stopType = type;
    const { clock } = this.#deps;
    const deadline = clock.after(END_GRACE_MS + END_DEADLINE_MS, () => this.#finish({ type }));
    // An unreachable process counts as ended.
    this.process.terminate({ type: "graceful", timeoutMs: END_GRACE_MS }).catch(() => this.#finish({ type }));
    await this.ended;
    deadline.cancel();
    this.#readAbort.abort();
  }

  /**
   * Records whether the command runs again without a sandbox, and emits the end event that waited for this decision.
   * Called once per sandboxed session.
   */
  settle(willRetry: boolean): void {
    this.#isRetryDecided = true;
    const end = this.#unreportedEnd;
    this.#unreportedEnd = null;
    if (end) this.#deps.feed.emit({ ...end, willRetry });
  }

  /** Stops reading an exited process whose streams another process holds open. */
  release(): void {
    this.#readAbort.abort();
  }

  get #ids() {
    return { sessionId: this.sessionId, processId: this.process.processId };
  }

  async #onEvent(event: ExecEvent): Promise<void> {
    switch (event.type) {
      case "output":
        this.#seq = event.seq;
        if (this.#end) return;
        this.#lastOutputAtMs = this.#deps.clock.monotonic();
        this.#output.push(this.#getSplitter(event.stream).push(event.chunk));
        this.#emitOutput(event.stream, event.chunk, 0);
        await this.archive.append(event.chunk);
        return;
      case "gap":
        this.#seq = event.toSeq;
        if (this.#end) return;
        this.#lostBytes += event.bytes ?? 0;
        this.#emitOutput(this.command.tty ? "pty" : "stdout", new Uint8Array(0), event.bytes ?? 0);
        return;
      case "exited":
        this.#seq = event.seq;
        this.#exit = this.#withDenial(event);
        this.#drainTimer = this.#deps.clock.after(DRAIN_MS, () => this.#finish(this.#toEnd("")));
        return;
      case "closed":
        this.#seq = event.seq;
        this.#finish(this.#toEnd("the process closed its streams without an exit"));
        // After the last event, the backend may drop retained output, unless a call still searches it.
        await this.#waitUntilUnwatched();
        await this.process[Symbol.asyncDispose]();
        return;
      case "failed":
        this.#finish(this.#toEnd(event.message));
        return;
    }
  }

  #emitNetwork({ decision, source, reason, protocol, host, port, method }: NetworkDecision): void {
    if (this.#end) return;
    const atMs = this.#deps.clock.now();
    const fields = { decision, source, reason, protocol, host, port, method };
    this.#deps.feed.emit({ type: "NetworkAccess", ...this.#ids, ...fields, atMs });
  }

  async #waitUntilUnwatched(): Promise<void> {
    while (this.watched) {
      await new Promise<void>((resolve) => {
        this.#onUnwatched = resolve;
      });
    }
  }

  #getSplitter(stream: OutputStream): Utf8Splitter {
    const splitter = this.#splitters.get(stream) ?? new Utf8Splitter();
    this.#splitters.set(stream, splitter);
    return splitter;
  }

  #emitOutput(stream: OutputStream, chunk: Uint8Array, omittedBytes: number): void {
    this.#deps.feed.emit({ type: "ExecCommandOutputDelta", ...this.#ids, stream, chunk, omittedBytes });
  }

  /** Adds a sandbox denial that the backend cannot detect, because this process resolved the sandbox. */
  #withDenial({ exitCode, signal, reason, sandboxDenied }: ExitStatus): ExitStatus {
    const { head, tail } = this.archive.headAndTail();
    const isSandboxed = this.command.sandbox !== "none" && this.#stopType === null;
    const denied = isSandboxed && isSandboxDenial({ exitCode, signal }, tail.length > 0 ? tail : head);
    return { exitCode, signal, reason, sandboxDenied: sandboxDenied || denied };
  }

  #toEnd(failure: string): ExecSessionEnd {
    if (this.#stopType) return { type: this.#stopType };
    return this.#exit ? { type: "exited", ...this.#exit } : { type: "failed", message: failure };
  }

  #finish(end: ExecSessionEnd): void {
    this.#drainTimer?.cancel();
    if (this.#end) return;
    this.#end = end;
    const { clock } = this.#deps;
    const event: ExecCommandEnd = {
      type: "ExecCommandEnd",
      ...this.#ids,
      end,
      willRetry: false,
      ...this.archive.headAndTail(),
      totalBytes: this.archive.totalBytes,
      durationMs: clock.monotonic() - this.startedAtMs,
      atMs: clock.now(),
    };
    if (!this.#isRetryDecided && end.type === "exited" && end.sandboxDenied) this.#unreportedEnd = event;
    else this.#deps.feed.emit(event);
    this.#ended.resolve();
  }
}

function newCallBuffer(): HeadTailBuffer {
  return new HeadTailBuffer({ headBytes: CALL_OUTPUT_BYTES / 2, tailBytes: CALL_OUTPUT_BYTES / 2 });
}
