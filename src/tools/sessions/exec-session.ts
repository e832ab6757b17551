import type { Clock, Timer } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import { visibleWord } from "../../base/printable-text.ts";
import { WholeCharacters } from "../../base/utf8.ts";
import type { ExecEvent, ExecProcess, ExitStatus, OutputStream } from "../../exec/exec-process.ts";
import { HeadTailBuffer } from "../../exec/log/head-tail-buffer.ts";
import { isSandboxDenial } from "../../sandbox/sandbox-denial.ts";
import type { OutputArchive } from "../output/output-archive.ts";
import type { CollectedOutput } from "../output/token-budget.ts";
import type {
  EventFeed,
  ExecCommandBegin,
  ExecCommandEnd,
  SessionEnd,
  TerminalDriver,
  TerminalWaiting,
} from "./exec-events.ts";

/** How a person attaches to a session. */
export interface AttachHint {
  handle: string;
  /** The line to type in a shell. */
  command: string;
}

export interface SessionDeps {
  /** Where a person reaches the host of the processes; null: not at all. */
  attachUrl: string | null;
  clock: Clock;
  feed: EventFeed;
  archive: OutputArchive;
}

/** What a session runs, as it was asked for. */
export type SessionCommand = Pick<ExecCommandBegin, "cmd" | "argv" | "cwd" | "tty" | "sandbox" | "attempt">;

/** Output kept between two calls: half from the beginning, half from the end. */
const CALL_OUTPUT_BYTES = 1024 * 1024;
/** After the exit, how long a stream that another process holds open is waited for. */
const DRAIN_MS = 50;
/** TERM comes this long before KILL when a session is ended. */
const END_GRACE_MS = 2000;
/** After that, how long the end is waited for before it is told anyway. */
const END_DEADLINE_MS = 5000;

/**
 * One process a model has started. Follows it from start to end, without losing output and without being asked: tells
 * the feed, keeps what the next call will show, and tells the end exactly once.
 */
export class ExecSession {
  readonly sessionId: number;
  readonly command: SessionCommand;
  readonly process: ExecProcess;
  readonly archive: OutputArchive;
  readonly startedAtMs: number;
  /** The last seq seen when something was last written to it. */
  inputSeq = 0;

  readonly #deps: SessionDeps;
  readonly #following = new AbortController();
  readonly #ended = Promise.withResolvers<void>();
  readonly #characters = new Map<OutputStream, WholeCharacters>();
  #output = newCallBuffer();
  /** Bytes that were lost before they came here. */
  #lostBytes = 0;
  #seq = 0;
  #lastOutputAtMs: number;
  #exit: ExitStatus | null = null;
  #endAs: "evicted" | "closed" | null = null;
  #end: SessionEnd | null = null;
  #drain: Timer | null = null;
  /** Until it is settled, an end caused by the walls is not told: the command may be run again without them. */
  #isSettled: boolean;
  #untoldEnd: ExecCommandEnd | null = null;
  #waiting = 0;
  #onUnwatched: () => void = () => undefined;
  /** Who types: somebody has attached as driver, or nobody but the model. */
  #driver: TerminalDriver["driver"] = "model";
  readonly #driverListeners = new Set<(driver: TerminalDriver["driver"]) => void>();
  /** A person drives, or has driven, and no answer has told it yet. */
  #isPersonUntold = false;
  /** The last output when a wait for a secret was told: one prompt is told once. */
  #waitToldAtSeq = -1;

  constructor(sessionId: number, process: ExecProcess, command: SessionCommand, deps: SessionDeps) {
    this.sessionId = sessionId;
    this.process = process;
    this.command = command;
    this.archive = deps.archive;
    this.#isSettled = command.sandbox === "none";
    this.#deps = deps;
    this.startedAtMs = deps.clock.now();
    this.#lastOutputAtMs = this.startedAtMs;
    deps.feed.emit({ type: "ExecCommandBegin", ...this.#ids, ...command, atMs: this.startedAtMs });
    process.onDriverChanged = (driver) => this.#driverChanged(driver === "attached" ? "person" : "model");
  }

  /** Null where nobody can attach. */
  get attachHint(): AttachHint | null {
    const { attachUrl } = this.#deps;
    const { handle } = this.process;
    return attachUrl === null || !handle || this.#end
      ? null
      : { handle, command: `procwire attach --connect ${visibleWord(attachUrl)} ${handle}` };
  }

  /** It waits for what a person should type. A prompt is told once, whoever looks at it how often. */
  waitsFor(waitingFor: TerminalWaiting["waitingFor"], reason: string | null = null): void {
    if (this.#end || (waitingFor === "secret" && this.#waitToldAtSeq === this.#seq)) return;
    this.#waitToldAtSeq = this.#seq;
    const atMs = this.#deps.clock.now();
    const attach = this.attachHint;
    this.#deps.feed.emit({ type: "TerminalWaiting", ...this.#ids, waitingFor, reason, attach, atMs });
  }

  /** What an answer has to say of a person at this terminal, since the last one that said it. */
  takePerson(): "drives" | "handed_back" | undefined {
    if (this.#driver === "person") return "drives";
    const isUntold = this.#isPersonUntold;
    this.#isPersonUntold = false;
    return isUntold ? "handed_back" : undefined;
  }

  get driver(): TerminalDriver["driver"] {
    return this.#driver;
  }

  /** Calls back at each change. Returns how to stop. */
  listenDriver(listener: (driver: TerminalDriver["driver"]) => void): () => void {
    this.#driverListeners.add(listener);
    return () => void this.#driverListeners.delete(listener);
  }

  #driverChanged(driver: TerminalDriver["driver"]): void {
    if (this.#driver === driver) return;
    this.#driver = driver;
    this.#isPersonUntold = true;
    for (const listener of this.#driverListeners) listener(driver);
    if (this.#end) return;
    this.#deps.feed.emit({ type: "TerminalDriver", ...this.#ids, driver, atMs: this.#deps.clock.now() });
  }

  /** Follows the process until its last event. Never rejects; its owner waits for it. */
  async follow(): Promise<void> {
    try {
      const events = this.process.events({ lossless: true, signal: this.#following.signal });
      for await (const event of events) await this.#take(event);
      this.#finish(this.#endOf("the process can no longer be followed"));
    } catch (error) {
      this.#finish(this.#endOf(messageOf(error)));
    }
  }

  get end(): SessionEnd | null {
    return this.#end;
  }

  /** Resolves when the process has exited and its output is drained, or when it can no longer be followed. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** A call waits on it right now. */
  get watched(): boolean {
    return this.#waiting > 0;
  }

  async whileWatched<T>(wait: () => Promise<T>): Promise<T> {
    this.#waiting++;
    try {
      return await wait();
    } finally {
      this.#waiting--;
      if (this.#waiting === 0) this.#onUnwatched();
    }
  }

  get seq(): number {
    return this.#seq;
  }

  get lastOutputAtMs(): number {
    return this.#lastOutputAtMs;
  }

  /** What was written since it was last taken. */
  takeOutput(): CollectedOutput {
    if (this.#end) for (const characters of this.#characters.values()) this.#output.push(characters.rest());
    const buffer = this.#output;
    const totalBytes = buffer.totalBytes + this.#lostBytes;
    this.#output = newCallBuffer();
    this.#lostBytes = 0;
    return { head: buffer.head(), tail: buffer.tail(), totalBytes };
  }

  /** Tells the feed that something is about to be written. */
  interacted(stdin: string | null): void {
    this.inputSeq = this.#seq;
    if (this.#end) return;
    this.#deps.feed.emit({ type: "TerminalInteraction", ...this.#ids, stdin, atMs: this.#deps.clock.now() });
  }

  /** Ends the process and tells why. Resolves when it is over, or when nothing more is heard of it. */
  async stop(type: "evicted" | "closed"): Promise<void> {
    if (this.#end) return;
    this.#endAs = type;
    const { clock } = this.#deps;
    const deadline = clock.after(END_GRACE_MS + END_DEADLINE_MS, () => this.#finish({ type }));
    // A process that cannot be reached any more counts as over.
    this.process.terminate({ type: "graceful", timeoutMs: END_GRACE_MS }).catch(() => this.#finish({ type }));
    await this.ended;
    deadline.cancel();
    this.#following.abort();
  }

  /** Says whether the command has been started again without walls; called once for each session behind walls. */
  settle(runsAgain: boolean): void {
    this.#isSettled = true;
    const end = this.#untoldEnd;
    this.#untoldEnd = null;
    if (end) this.#deps.feed.emit({ ...end, runsAgain });
  }

  /** Stops following a session that has ended while another process holds its streams open. */
  letGo(): void {
    this.#following.abort();
  }

  get #ids() {
    return { sessionId: this.sessionId, processId: this.process.processId };
  }

  async #take(event: ExecEvent): Promise<void> {
    switch (event.type) {
      case "output":
        this.#seq = event.seq;
        if (this.#end) return;
        this.#lastOutputAtMs = this.#deps.clock.now();
        this.#output.push(this.#whole(event.stream).push(event.chunk));
        this.#tellOutput(event.stream, event.chunk, 0);
        await this.archive.append(event.chunk);
        return;
      case "gap":
        this.#seq = event.toSeq;
        if (this.#end) return;
        this.#lostBytes += event.bytes ?? 0;
        this.#tellOutput(this.command.tty ? "pty" : "stdout", new Uint8Array(0), event.bytes ?? 0);
        return;
      case "exited":
        this.#seq = event.seq;
        this.#exit = this.#judged(event);
        this.#drain = this.#deps.clock.after(DRAIN_MS, () => this.#finish(this.#endOf("")));
        return;
      case "closed":
        this.#seq = event.seq;
        this.#finish(this.#endOf("the process closed its streams without an exit"));
        // No more events come: the backend may drop what it retains, once no call searches in it any more.
        await this.#unwatched();
        await this.process[Symbol.asyncDispose]();
        return;
      case "failed":
        this.#finish(this.#endOf(event.message));
        return;
    }
  }

  async #unwatched(): Promise<void> {
    while (this.watched) {
      await new Promise<void>((resolve) => {
        this.#onUnwatched = resolve;
      });
    }
  }

  #whole(stream: OutputStream): WholeCharacters {
    let characters = this.#characters.get(stream);
    if (!characters) {
      characters = new WholeCharacters();
      this.#characters.set(stream, characters);
    }
    return characters;
  }

  #tellOutput(stream: OutputStream, chunk: Uint8Array, omittedBytes: number): void {
    this.#deps.feed.emit({ type: "ExecCommandOutputDelta", ...this.#ids, stream, chunk, omittedBytes });
  }

  /** The backend knows nothing of walls that were put up here. */
  #judged({ exitCode, signal, reason, sandboxDenied }: ExitStatus): ExitStatus {
    const { head, tail } = this.archive.ends();
    const isOurs = this.command.sandbox !== "none" && this.#endAs === null;
    const denied = isOurs && isSandboxDenial({ exitCode, signal }, tail.length > 0 ? tail : head);
    return { exitCode, signal, reason, sandboxDenied: sandboxDenied || denied };
  }

  #endOf(failure: string): SessionEnd {
    if (this.#endAs) return { type: this.#endAs };
    return this.#exit ? { type: "exited", ...this.#exit } : { type: "failed", message: failure };
  }

  #finish(end: SessionEnd): void {
    this.#drain?.cancel();
    if (this.#end) return;
    this.#end = end;
    const atMs = this.#deps.clock.now();
    const event: ExecCommandEnd = {
      type: "ExecCommandEnd",
      ...this.#ids,
      end,
      runsAgain: false,
      ...this.archive.ends(),
      totalBytes: this.archive.totalBytes,
      durationMs: atMs - this.startedAtMs,
      atMs,
    };
    if (!this.#isSettled && end.type === "exited" && end.sandboxDenied) this.#untoldEnd = event;
    else this.#deps.feed.emit(event);
    this.#ended.resolve();
  }
}

function newCallBuffer(): HeadTailBuffer {
  return new HeadTailBuffer({ headBytes: CALL_OUTPUT_BYTES / 2, tailBytes: CALL_OUTPUT_BYTES / 2 });
}
