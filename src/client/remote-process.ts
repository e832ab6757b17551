import type { Clock } from "../async/clock.ts";
import { sleep } from "../async/clock.ts";
import type { WatchReceiver } from "../async/watch.ts";
import type { EventLogLimits } from "../exec/event-log.ts";
import { EventLog } from "../exec/event-log.ts";
import type {
  CloseStdinStatus,
  EventsOptions,
  ExecEvent,
  ExecProcess,
  ExitStatus,
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
  WriteStatus,
} from "../exec/exec-process.ts";
import { waitOn } from "../exec/wait-condition.ts";
import { DisconnectedError, ErrorCode, RequestError } from "../protocol/errors.ts";
import type { MethodName, ParamsOf, ResultOf } from "../protocol/methods.ts";
import { Acknowledger } from "./acknowledger.ts";
import type { Link, LinkCallOptions } from "./link.ts";
import { FIRST_PAGE_BYTES, type SequencedEvent, Sequencer } from "./sequencer.ts";
import { explainUnknownMethod, notSupported } from "./unsupported.ts";
import { MAX_WRITE_BYTES, WriteWindow } from "./write-window.ts";

/** Between two looks at a process whose start is still under way on the server. */
const STARTING_POLL_MS = 20;
/** How long disposing waits to see the exit of a process it has ended. */
const DISPOSE_WAIT_MS = 5000;

export interface RemoteProcessDeps {
  link: Link;
  clock: Clock;
  /** Unique among everything this client ever writes. */
  newWriteId: () => string;
  logLimits?: Partial<EventLogLimits>;
}

/**
 * A process on a server, with the calls and the events of a local one. Its own log is fed by what the server tells;
 * a lost connection that is recovered from does not show.
 */
export class RemoteProcess implements ExecProcess {
  readonly processId: string;
  readonly log: EventLog;
  readonly #params: StartParams | null;
  readonly #link: Link;
  readonly #clock: Clock;
  readonly #newWriteId: () => string;
  readonly #sequencer: Sequencer;
  readonly #acknowledger: Acknowledger;
  readonly #writes = new WriteWindow();
  readonly #startedAtMs: number;
  #pid: number | null = null;
  #sandboxType: SandboxType = "none";
  #isStarted = false;
  /** The connection changed before it was known to run: it may have told something to nobody. */
  #hasMissed = false;
  #isEndedByUs = false;
  #isHeldBack = false;

  constructor(processId: string, params: StartParams | null, deps: RemoteProcessDeps) {
    this.processId = processId;
    this.#params = params;
    this.#link = deps.link;
    this.#clock = deps.clock;
    this.#newWriteId = deps.newWriteId;
    this.#startedAtMs = deps.clock.now();
    this.log = new EventLog({
      clock: deps.clock,
      isFollower: true,
      ...(deps.logLimits && { limits: deps.logLimits }),
    });
    this.#acknowledger = new Acknowledger(
      (seq) => this.#link.ack(processId, seq),
      () => this.log.nextSeq - 1,
      deps.clock,
    );
    this.log.onPressure = (isPaused) => this.#holdBack(isPaused);
    this.#sequencer = new Sequencer(this.log, {
      read: (params) => this.#readPage(params),
      exitStatus: (result) => this.#exitStatus(result),
      added: (bytes) => this.#acknowledger.added(bytes),
    });
  }

  get pid(): number | null {
    return this.#pid;
  }

  get sandboxType(): SandboxType {
    return this.#sandboxType;
  }

  // ---- what the backend tells it

  /** The server has answered that it runs. What came before that answer is put in order now. */
  started(sandboxType: SandboxType): void {
    this.#sandboxType = sandboxType;
    this.#isStarted = true;
    if (this.#hasMissed) this.#catchUp();
    else if (this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  learnPid(pid: number | null): void {
    this.#pid = pid;
  }

  offer(event: SequencedEvent): void {
    this.#sequencer.offer(event);
    if (event.type !== "output") this.#acknowledger.flush();
    if (this.#isStarted && this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  /** On a new connection: reads what was told while there was none. */
  resumed(): void {
    this.#hasMissed = true;
    if (this.#isStarted) this.#catchUp();
  }

  /** Reads everything there is from the beginning; for a process this client has not started. */
  async adopt(): Promise<void> {
    this.#isStarted = true;
    await this.#sequencer.catchUp();
  }

  fail(message: string): void {
    this.log.fail(message);
  }

  listing(): ProcessListing {
    return {
      processId: this.processId,
      argv: this.#params?.argv ?? [],
      cwd: this.#params?.cwd ?? "",
      tty: this.#params?.tty ?? false,
      pid: this.#pid,
      running: this.log.exit === null && this.log.failure === null,
      exitCode: this.log.exit?.exitCode ?? null,
      signal: this.log.exit?.signal ?? null,
      startedAtMs: this.#startedAtMs,
      outputBytes: this.log.totalBytes,
    };
  }

  // ---- reading

  events(options?: EventsOptions): AsyncIterableIterator<ExecEvent> {
    return this.log.events(options);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.log.subscribeWake();
  }

  /** Answered from the own log, so a lost server never leaves it hanging; only what that has let go is asked for. */
  async read(params: ReadParams = {}): Promise<ReadResult> {
    const own = await this.log.readWaiting(params);
    if (!own.gap || this.log.failure !== null) return own;
    try {
      const { afterSeq, maxBytes } = params;
      const theirs = await this.#readRemote({
        afterSeq: afterSeq ?? 0,
        ...(maxBytes !== undefined && { maxBytes }),
      });
      return (theirs.chunks[0]?.seq ?? Number.POSITIVE_INFINITY) <= own.gap.toSeq ? theirs : own;
    } catch (error) {
      // The server has forgotten the process, or is gone: what is known here is still true.
      if (error instanceof RequestError || error instanceof DisconnectedError) return own;
      throw error;
    }
  }

  async wait(params: WaitParams = {}): Promise<WaitResult> {
    if (!this.#link.server.extended) return this.#waitHere(params);
    const { until, afterSeq, timeoutMs, signal } = params;
    const deadline = timeoutMs === undefined ? null : this.#clock.now() + timeoutMs;
    const wire = (remainingMs: number | undefined): ParamsOf<"process/wait"> => ({
      processId: this.processId,
      ...(until && { until }),
      ...(afterSeq !== undefined && { afterSeq }),
      ...(remainingMs !== undefined && { timeoutMs: remainingMs }),
    });
    const result = await this.#call("process/wait", wire(timeoutMs), {
      signal,
      renew: () => wire(deadline === null ? undefined : Math.max(0, deadline - this.#clock.now())),
    });
    await this.#reach(result.seq, signal);
    return result;
  }

  async snapshot(): Promise<Snapshot> {
    if (this.#link.server.extended) return this.#call("process/snapshot", { processId: this.processId });
    const streams = (["stdout", "stderr", "pty"] as const).map((stream) => this.log.headTail(stream));
    const omittedBytes = streams.reduce((sum, stream) => sum + stream.omittedBytes, 0);
    const [stdout, stderr, terminal] = streams.map((stream) => stream.bytes());
    return {
      stdout: stdout ?? NOTHING,
      stderr: stderr ?? NOTHING,
      terminal: terminal ?? NOTHING,
      truncated: omittedBytes > 0,
      omittedBytes,
      totalBytes: this.log.totalBytes,
      exitCode: this.log.exit?.exitCode ?? null,
      signal: this.log.exit?.signal ?? null,
      running: this.log.exit === null,
    };
  }

  // ---- feeding

  async write(bytes: Uint8Array, options: { writeId?: string } = {}): Promise<{ status: WriteStatus }> {
    const writeId = options.writeId ?? this.#newWriteId();
    if (bytes.length <= MAX_WRITE_BYTES) return this.#writePart(bytes, writeId);
    const parts: Promise<{ status: WriteStatus }>[] = [];
    for (let at = 0; at < bytes.length; at += MAX_WRITE_BYTES)
      parts.push(this.#writePart(bytes.subarray(at, at + MAX_WRITE_BYTES), `${writeId}@${at}`));
    const results = await Promise.all(parts);
    return results.find(({ status }) => status !== "accepted") ?? { status: "accepted" };
  }

  closeStdin(): Promise<{ status: CloseStdinStatus }> {
    // Behind the writes that were made before it, also those that still wait for room.
    return this.#writes.run(0, () => this.#callExtended("process/closeStdin", { processId: this.processId }));
  }

  async resize(size: TerminalSize): Promise<void> {
    await this.#callExtended("process/resize", { processId: this.processId, size });
  }

  /**
   * A signal whose answer was lost with its connection may have been sent or not, and twice is not the same as once:
   * it rejects, and the caller decides. One that waited for a connection is sent when there is one.
   */
  async signal(name: string): Promise<void> {
    const isInterrupt = name === "interrupt" || name === "SIGINT" || name === "INT";
    if (!this.#link.server.extended && !isInterrupt) throw notSupported(`signal ${name}`);
    await this.#call(
      "process/signal",
      { processId: this.processId, signal: isInterrupt ? "interrupt" : name },
      { resend: "unsent" },
    );
  }

  async terminate(mode?: TerminateMode): Promise<TerminateResult> {
    this.#isEndedByUs = true;
    const { processId } = this;
    if (mode?.type !== "graceful" || this.#link.server.extended)
      return this.#call("process/terminate", { processId, ...(mode && { mode }) });
    // The mildest word such a server knows, then its only other one.
    const running = this.log.exit === null && !this.log.isClosed;
    await this.signal("interrupt");
    await this.#waitHere({ timeoutMs: mode.timeoutMs });
    await this.#call("process/terminate", { processId });
    return { running };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.log.isClosed && this.log.failure === null) {
      try {
        await this.terminate();
        await this.#waitHere({ timeoutMs: DISPOSE_WAIT_MS });
      } catch (error) {
        // Whatever the server says now, there is nobody left to follow the process.
        const isExpected = error instanceof DisconnectedError || error instanceof RequestError;
        if (!isExpected && this.log.failure === null) throw error;
      }
    }
    this.log.fail(`process ${this.processId} was disposed of`);
    this.log.dispose();
  }

  // ---- below

  #writePart(chunk: Uint8Array, writeId: string): Promise<{ status: WriteStatus }> {
    const { processId } = this;
    return this.#writes.run(chunk.length, () => this.#call("process/write", { processId, chunk, writeId }));
  }

  async #callExtended<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>> {
    if (!this.#link.server.extended) throw notSupported(method);
    return this.#call(method, params);
  }

  async #call<M extends MethodName>(
    method: M,
    params: ParamsOf<M>,
    options?: LinkCallOptions<M>,
  ): Promise<ResultOf<M>> {
    try {
      return await this.#link.call(method, params, options);
    } catch (error) {
      throw explainUnknownMethod(method, error);
    }
  }

  /** Asks for less when the connection broke over a page. */
  #readPage(params: { afterSeq: number; maxBytes?: number }): Promise<ReadResult> {
    const { maxBytes } = params;
    return this.#readRemote(
      params,
      maxBytes === undefined ? params : { ...params, maxBytes: Math.min(maxBytes, FIRST_PAGE_BYTES) },
    );
  }

  async #readRemote(params: { afterSeq: number; maxBytes?: number }, again = params): Promise<ReadResult> {
    const { processId } = this;
    const result = await this.#link.call(
      "process/read",
      { processId, ...params },
      { renew: () => ({ processId, ...again }) },
    );
    const { sandboxDenied, gap, ...rest } = result;
    return { ...rest, sandboxDenied: sandboxDenied ?? false, ...(gap && { gap }) };
  }

  /** A read tells only the exit code; what else there is to know is asked for where it can be. */
  async #exitStatus({ exitCode, sandboxDenied }: ReadResult): Promise<ExitStatus> {
    const signal = this.#link.server.extended
      ? (await this.#link.call("process/wait", { processId: this.processId, timeoutMs: 0 })).signal
      : null;
    const reason = signal === null ? "exited" : this.#isEndedByUs ? "terminated" : "signaled";
    return { exitCode: exitCode ?? -1, signal, reason, sandboxDenied };
  }

  #waitHere(params: WaitParams): Promise<WaitResult> {
    if (params.until?.type === "port") return Promise.reject(notSupported("waiting for a port"));
    return waitOn({ log: this.log, clock: this.#clock, isPortListening: async () => false }, params);
  }

  /**
   * What the server has seen when a wait ended is soon seen here too: whoever waited may then read it. Not when
   * somebody holds the output back, since that may take as long as they like.
   */
  async #reach(seq: number, signal: AbortSignal | undefined): Promise<void> {
    while (this.log.nextSeq <= seq && !this.log.isClosed && this.log.failure === null && !this.#isHeldBack) {
      if (signal?.aborted) return;
      await this.log.nextChange(signal ? { signal } : {});
    }
  }

  #holdBack(isPaused: boolean): void {
    this.#isHeldBack = isPaused;
    if (this.#link.server.granted.has("outputAck")) this.#acknowledger.withhold(isPaused);
    else this.#link.hold(this, isPaused);
  }

  #catchUp(): void {
    this.#acknowledger.again();
    this.#follow(() => this.#sequencer.catchUp());
    // Nice to know; the process goes on without it.
    if (this.#pid === null && this.#link.server.extended) void this.#askPid().catch(() => undefined);
  }

  async #askPid(): Promise<void> {
    const { processes } = await this.#link.call("process/list", {});
    this.#pid = processes.find(({ processId }) => processId === this.processId)?.pid ?? null;
  }

  #follow(step: () => Promise<void>): void {
    // Every way it can end is dealt with there: recovered, retried, or told by a failed log.
    void this.#followUntilKnown(step);
  }

  async #followUntilKnown(step: () => Promise<void>): Promise<void> {
    for (;;) {
      try {
        await step();
        this.#acknowledger.flush();
        return;
      } catch (error) {
        // The link has told every process of a lost server already.
        if (error instanceof DisconnectedError) return;
        const message = error instanceof Error ? error.message : String(error);
        if (!isStarting(error)) {
          this.log.fail(`process ${this.processId} can no longer be followed: ${message}`);
          return;
        }
        await sleep(this.#clock, STARTING_POLL_MS);
      }
    }
  }
}

const NOTHING = new Uint8Array(0);

function isStarting(error: unknown): boolean {
  return (
    error instanceof RequestError &&
    error.code === ErrorCode.invalidRequest &&
    error.message.endsWith(" is starting")
  );
}
