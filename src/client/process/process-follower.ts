import type { Clock } from "../../async/clock.ts";
import { sleep } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import { defined } from "../../base/omit-undefined.ts";
import type { ExitReason, ExitStatus, Gap, ReadResult } from "../../exec/exec-process.ts";
import type { EventLogLimits } from "../../exec/log/event-log.ts";
import { EventLog } from "../../exec/log/event-log.ts";
import { DisconnectedError, ErrorCode, RequestError } from "../../protocol/errors.ts";
import { Acknowledger } from "../acknowledger.ts";
import type { Link } from "../session/reconnecting-session.ts";
import { FIRST_PAGE_BYTES, type SequencedEvent, Sequencer } from "./sequencer.ts";

/** The polling interval for a process whose start is still under way on the server. */
export const STARTING_POLL_MS = 20;
/**
 * The limit of that polling after a lost connection: some servers drop a start with its connection and answer
 * "starting" for ever.
 */
export const STARTING_WITHIN_MS = 10_000;

export interface FollowerDeps {
  link: Link;
  clock: Clock;
  logLimits?: Partial<EventLogLimits> | undefined;
  /** The server does not wait for this one's confirmations: it only watches. Default: it does. */
  isViewer?: (() => boolean) | undefined;
}

/**
 * Keeps a log of a process on a server: takes what the server tells, reads what it did not get to tell, confirms what
 * the log holds, and holds the server back when a lossless reader of the log is slow.
 */
export class ProcessFollower {
  readonly processId: string;
  readonly log: EventLog;
  readonly #link: Link;
  readonly #clock: Clock;
  readonly #isViewer: () => boolean;
  readonly #sequencer: Sequencer;
  readonly #acknowledger: Acknowledger;
  #pid: number | null = null;
  #isStarted = false;
  /** The connection changed before the start was answered: notifications may have been lost. */
  #hasMissed = false;
  #isHeldBack = false;
  /** Why this client ended it; used as the exit reason where the server tells none. */
  endedFor: "terminated" | "timeout" | null = null;

  constructor(processId: string, deps: FollowerDeps) {
    this.processId = processId;
    this.#link = deps.link;
    this.#clock = deps.clock;
    this.#isViewer = deps.isViewer ?? (() => false);
    this.log = new EventLog({
      clock: deps.clock,
      isFollower: true,
      limits: deps.logLimits,
    });
    this.log.onPressure = (isPaused) => this.#holdBack(isPaused);
    this.#acknowledger = new Acknowledger(
      (seq) => this.#link.ack(processId, seq, this.log.isClosed),
      () => this.log.nextSeq - 1,
      deps.clock,
    );
    this.#sequencer = new Sequencer(this.log, {
      read: (params) => this.#readPage(params),
      exitStatus: (result) => this.#exitStatus(result),
      added: (bytes) => this.#acknowledger.added(bytes),
    });
  }

  get pid(): number | null {
    return this.#pid;
  }

  /** An event has arrived, so the process was started even if the answer to the start was lost. */
  get hasNews(): boolean {
    return this.#pid !== null || this.log.nextSeq > 1;
  }

  get isOver(): boolean {
    return this.log.isClosed || this.log.failure !== null;
  }

  /** The server has answered that it runs. What came before that answer is put in order now. */
  started(): void {
    this.#isStarted = true;
    if (this.#hasMissed) this.#catchUp();
    else if (this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  /** Reads everything there is from the beginning; for a process this client has not started. */
  async adopt(): Promise<void> {
    this.#isStarted = true;
    await this.#sequencer.catchUp();
  }

  learnPid(pid: number | null): void {
    this.#pid = pid;
  }

  offer(event: SequencedEvent): void {
    this.#sequencer.offer(event);
    if (event.type !== "output") this.#acknowledger.flush();
    if (this.#isStarted && this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  offerGap(gap: Gap): void {
    this.#sequencer.offerGap(gap);
    if (this.#isStarted && this.#sequencer.isBehind) this.#follow(() => this.#sequencer.fill());
  }

  /** On a new connection: reads the events that were missed. */
  resumed(): void {
    this.#hasMissed = true;
    if (this.#isStarted) this.#catchUp();
  }

  fail(message: string): void {
    this.log.fail(message);
  }

  /** What the server retains; `again` is asked instead when the connection broke over the first. */
  async readRemote(
    params: { afterSeq: number; maxBytes?: number | undefined; times?: boolean | undefined },
    again = params,
  ): Promise<ReadResult> {
    const { processId } = this;
    const result = await this.#link.call(
      "process/read",
      { processId, ...params },
      { renew: () => ({ processId, ...again }) },
    );
    return { ...result, sandboxDenied: result.sandboxDenied ?? false };
  }

  /**
   * What the server has seen when a wait ended is soon seen here too: whoever waited may then read it. Not when
   * somebody holds the output back, since that may take as long as they like.
   */
  async reach(seq: number, signal: AbortSignal | undefined): Promise<void> {
    while (this.log.nextSeq <= seq && !this.isOver && !this.#isHeldBack && !signal?.aborted)
      await this.log.nextChange(signal ? { signal } : {});
  }

  /** What a slow reader holds back changes with the role: a driver the process, a viewer the connection. */
  roleChanged(): void {
    if (this.#isHeldBack) this.#holdBack(true);
  }

  #holdBack(isPaused: boolean): void {
    this.#isHeldBack = isPaused;
    const isConfirmed = this.#link.server.granted.has("outputAck") && !this.#isViewer();
    this.#acknowledger.withhold(isPaused && isConfirmed);
    this.#link.hold(this, isPaused && !isConfirmed);
  }

  /** Asks for less when the connection broke over a page. */
  #readPage(params: { afterSeq: number; maxBytes?: number | undefined }): Promise<ReadResult> {
    const { maxBytes } = params;
    return this.readRemote(
      params,
      maxBytes === undefined ? params : { ...params, maxBytes: Math.min(maxBytes, FIRST_PAGE_BYTES) },
    );
  }

  /** A read tells only the exit code; what else there is to know is asked for where it can be. */
  async #exitStatus({ exitCode, sandboxDenied }: ReadResult): Promise<ExitStatus> {
    const told = this.#link.server.extended
      ? await this.#link.call("process/wait", { processId: this.processId, timeoutMs: 0 })
      : null;
    const signal = told?.signal ?? null;
    return defined<ExitStatus>({
      exitCode: exitCode ?? -1,
      signal,
      reason: told?.exitReason ?? this.guessReason(signal),
      limit: told?.limit,
      sandboxDenied,
    });
  }

  /** Where the server does not say why it ended. */
  guessReason(signal: string | null): ExitReason {
    return this.endedFor ?? (signal === null ? "exited" : "signaled");
  }

  #catchUp(): void {
    this.#acknowledger.again();
    this.#follow(() => this.#sequencer.catchUp());
    // Only informative: the process goes on without it.
    if (this.#pid === null && this.#link.server.extended) void this.#askPid().catch(() => undefined);
  }

  async #askPid(): Promise<void> {
    const { processes } = await this.#link.call("process/list", {});
    this.#pid = processes.find(({ processId }) => processId === this.processId)?.pid ?? null;
  }

  #follow(step: () => Promise<void>): void {
    // Handles every outcome itself: recovered, retried, or told by a failed log.
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
        // The link has told every process of a lost server already.
        if (error instanceof DisconnectedError) return;
        const message = messageOf(error);
        startingSince ??= this.#clock.monotonic();
        if (!isStarting(error) || this.#clock.monotonic() - startingSince >= STARTING_WITHIN_MS) {
          this.log.fail(`process ${this.processId} can no longer be followed: ${message}`);
          return;
        }
        await sleep(this.#clock, STARTING_POLL_MS);
      }
    }
  }
}

function isStarting(error: unknown): boolean {
  return (
    error instanceof RequestError &&
    error.code === ErrorCode.invalidRequest &&
    error.message.endsWith(" is starting")
  );
}
