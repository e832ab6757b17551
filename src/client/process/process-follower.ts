import { type Clock, sleep } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { omitUndefined } from "../../base/omit-undefined.ts";
import { isProcessStarting } from "../../exec/compat.ts";
import type { ExitReason, ExitStatus, Gap, ReadResult } from "../../exec/exec-process.ts";
import { EventLog, type EventLogLimits } from "../../exec/log/event-log.ts";
import { DisconnectedError } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { ReconnectingSession } from "../session/reconnecting-session.ts";
import { Acknowledger } from "./acknowledger.ts";
import { FIRST_PAGE_BYTES, type SequencedEvent, Sequencer } from "./sequencer.ts";

/** The polling interval while the server reports a process as starting. */
export const STARTING_POLL_MS = 20;
/**
 * Maximum time of that polling after a lost connection: some servers drop a start with its connection and report
 * "starting" forever.
 */
export const STARTING_TIMEOUT_MS = 10_000;

export interface FollowerDeps {
  session: ReconnectingSession;
  clock: Clock;
  logLimits?: Partial<EventLogLimits> | undefined;
  /** Reports whether this client is a viewer, whose acks the server does not wait for. Default: false. */
  isViewer?: (() => boolean) | undefined;
}

/**
 * Maintains the local event log of a remote process. It appends notifications, reads events that were not notified,
 * acknowledges logged output, and pauses the server when a lossless reader of the log is slow.
 */
export class ProcessFollower {
  readonly processId: string;
  readonly log: EventLog;
  readonly #session: ReconnectingSession;
  readonly #clock: Clock;
  readonly #isViewer: () => boolean;
  readonly #sequencer: Sequencer;
  readonly #acknowledger: Acknowledger;
  /** Kernel process id; null until the server reports it. */
  pid: number | null = null;
  #isStarted = false;
  /** The connection changed before the start result arrived, so notifications may be lost. */
  #hasMissedEvents = false;
  #isPaused = false;
  /** Why this client terminated the process; used if the server reports no exit reason. */
  exitReason: "terminated" | "timeout" | null = null;

  constructor(processId: string, deps: FollowerDeps) {
    this.processId = processId;
    this.#session = deps.session;
    this.#clock = deps.clock;
    this.#isViewer = deps.isViewer ?? (() => false);
    this.log = new EventLog({
      clock: deps.clock,
      isReplica: true,
      limits: deps.logLimits,
    });
    this.log.onBackpressure = (isPaused) => this.#applyBackpressure(isPaused);
    this.#acknowledger = new Acknowledger(
      (seq) => this.#session.ack(processId, seq, this.log.isClosed),
      () => this.log.nextSeq - 1,
      deps.clock,
    );
    const source = {
      read: (params: { afterSeq: number; maxBytes?: number }) => this.#readPage(params),
      exitStatus: (result: ReadResult) => this.#exitStatus(result),
      onAppended: (bytes: number) => this.#acknowledger.onAppended(bytes),
    };
    this.#sequencer = new Sequencer(this.log, source, deps.clock);
  }

  /** True once an event has arrived: the process started even if the start result was lost. */
  get hasNewEvents(): boolean {
    return this.pid !== null || this.log.nextSeq > 1;
  }

  get isClosed(): boolean {
    return this.log.isClosed || this.log.failure !== null;
  }

  /** Called when the start result arrived. Events from before it are put in order now. */
  started(): void {
    this.#isStarted = true;
    if (this.#hasMissedEvents) this.#catchUp();
    else if (this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  /** Reads all events from the beginning, for a process that this client did not start. */
  async adopt(): Promise<void> {
    this.#isStarted = true;
    await this.#sequencer.catchUp();
  }

  onEvent(event: SequencedEvent): void {
    this.#sequencer.onEvent(event);
    if (event.type !== "output") this.#acknowledger.flush();
    if (this.#isStarted && this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  onGap(gap: Gap): void {
    this.#sequencer.onGap(gap);
    if (this.#isStarted && this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  /** Reads the events that were missed on the previous connection. */
  onResumed(): void {
    this.#hasMissedEvents = true;
    if (this.#isStarted) this.#catchUp();
  }

  fail(error: ExecServerError): void {
    this.log.fail(error);
  }

  /** Reads from the server. If the connection breaks, the call is resent with `resendParams`. */
  async readRemote(
    params: { afterSeq: number; maxBytes?: number | undefined; times?: boolean | undefined },
    resendParams = params,
  ): Promise<ReadResult> {
    const { processId } = this;
    const result = await this.#session.call(
      "process/read",
      { processId, ...params },
      { onResend: () => ({ processId, ...resendParams }) },
    );
    return { ...result, sandboxDenied: result.sandboxDenied ?? false };
  }

  /**
   * Waits until the log has reached `seq`, so that the caller of a wait can read the output that the server
   * had. Returns early while a reader pauses the output, because that pause has no limit.
   */
  async readThrough(seq: number, signal: AbortSignal | undefined): Promise<void> {
    while (this.log.nextSeq <= seq && !this.isClosed && !this.#isPaused && !signal?.aborted)
      await this.log.nextChange({ signal });
  }

  /** Applies the pause again: a slow reader pauses the process as a driver, but the connection as a viewer. */
  onRoleChanged(): void {
    if (this.#isPaused) this.#applyBackpressure(true);
  }

  #applyBackpressure(isPaused: boolean): void {
    this.#isPaused = isPaused;
    const canUseAcks = this.#session.server.grantedExtensions.has("outputAck") && !this.#isViewer();
    this.#acknowledger.suspend(isPaused && canUseAcks);
    this.#session.pauseInput(this, isPaused && !canUseAcks);
  }

  /** Reads one page; after a broken connection it requests a smaller one. */
  #readPage(params: { afterSeq: number; maxBytes?: number | undefined }): Promise<ReadResult> {
    const { maxBytes } = params;
    return this.readRemote(
      params,
      maxBytes === undefined ? params : { ...params, maxBytes: Math.min(maxBytes, FIRST_PAGE_BYTES) },
    );
  }

  /** Returns the exit status. A read result has only the exit code; extended servers report the rest. */
  async #exitStatus({ exitCode, sandboxDenied }: ReadResult): Promise<ExitStatus> {
    const wait = this.#session.server.isExtended
      ? await this.#session.call("process/wait", { processId: this.processId, timeoutMs: 0 })
      : null;
    const signal = wait?.signal ?? null;
    return omitUndefined<ExitStatus>({
      exitCode: exitCode ?? -1,
      signal,
      reason: wait?.exitReason ?? this.guessReason(signal),
      limit: wait?.limit,
      sandboxDenied,
    });
  }

  /** Returns the exit reason if the server does not report it. */
  guessReason(signal: string | null): ExitReason {
    return this.exitReason ?? (signal === null ? "exited" : "signaled");
  }

  #catchUp(): void {
    this.#acknowledger.resend();
    this.#follow(() => this.#sequencer.catchUp());
    // The pid is informative only, so a failure is ignored.
    if (this.pid === null && this.#session.server.isExtended) void this.#fetchPid().catch(() => undefined);
  }

  async #fetchPid(): Promise<void> {
    const { processes } = await this.#session.call("process/list", {});
    this.pid = processes.find(({ processId }) => processId === this.processId)?.pid ?? null;
  }

  #follow(step: () => Promise<void>): void {
    // Handles every outcome itself: recovered, retried, or reported by a failed log.
    void this.#followUntilKnown(step);
  }

  async #followUntilKnown(step: () => Promise<void>): Promise<void> {
    let startingSince: number | null = null;
    for (;;) {
      try {
        await step();
        this.#acknowledger.flush();
        return;
      } catch (error) {
        // The session has already failed every process of a lost server.
        if (error instanceof DisconnectedError) return;
        const message = errorMessage(error);
        startingSince ??= this.#clock.monotonic();
        if (!isProcessStarting(error) || this.#clock.monotonic() - startingSince >= STARTING_TIMEOUT_MS) {
          const text = `process ${this.processId} can no longer be followed: ${message}`;
          this.log.fail(new ExecServerError(text, "FAILED", {}, { cause: error }));
          return;
        }
        await sleep(this.#clock, STARTING_POLL_MS);
      }
    }
  }
}
