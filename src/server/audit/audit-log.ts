import { type Clock, systemClock } from "../../async/clock.ts";
import { getErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { internalError } from "../../protocol/errors.ts";
import { VERSION } from "../../version.ts";
import { CHAIN_START, type ChainPosition, digestOf, encodeLine } from "./audit-chain.ts";
import { type Actor, type AuditEvent, clipEvent } from "./audit-event.ts";
import { AuditFile, type AuditSystem } from "./audit-file.ts";
import type { AuditSink } from "./audit-sink.ts";
import { RejectionAudit } from "./rejection-audit.ts";

export interface AuditLogDeps {
  clock?: Clock | undefined;
  /** Locks, reserved space and datagram sockets. Default: none of them. */
  system?: AuditSystem | null | undefined;
  /** Receives a copy of each line. */
  sink?: AuditSink | undefined;
}

/** Interval of rotation checks. Between a rename and the next check, lines go to the renamed file. */
const ROTATION_CHECK_INTERVAL_MS = 1_000;
/** Minimum time between two lines about lines that the sink dropped. */
const DROP_REPORT_INTERVAL_MS = 10_000;
/** Maximum lines in memory while the file cannot be written. Calls are refused then, so only ends of processes arrive. */
const MAX_PENDING_LINES = 10_000;

/**
 * A log with one JSON line per decision. Each line is one synchronous write, so that readers can follow the file and lines
 * survive a crash. Each line has a sequence number and the digest of the line before; the chain continues after rotation and
 * restart. While the file cannot be written (full disk), `requireWritable` throws, and lines of actions that already began
 * wait in memory.
 */
export class AuditLog {
  readonly #file: AuditFile;
  readonly #clock: Clock;
  readonly #sink: AuditSink | null;
  readonly #isLocked: boolean;
  /** Records rejected credentials at a limited rate. */
  readonly rejections: RejectionAudit;
  #position: ChainPosition = CHAIN_START;
  #rotationCheckedAtMs: number;
  #lines = 0;
  #isClosed = false;
  /** Why the file cannot be written; null while it can. */
  #failure: string | null = null;
  /** Incomplete last line of the file. The next write ends it. */
  #fragment: Buffer = Buffer.alloc(0);
  #pending: object[] = [];
  #lostLines = 0;
  #refusedCalls = 0;
  #reportedDrops = 0;
  #dropsReportedAtMs = Number.NEGATIVE_INFINITY;

  /** Throws if the file cannot be opened or locked: a server with `--audit` does not start without its log. */
  constructor(path: string, { clock = systemClock, system = null, sink }: AuditLogDeps = {}) {
    this.#clock = clock;
    this.#sink = sink ?? null;
    this.rejections = new RejectionAudit(this, clock);
    try {
      this.#file = new AuditFile(path, system);
      this.#isLocked = system !== null;
      const { last, fragment } = this.#file.tail();
      const position = last ?? this.#file.rotatedTail();
      if (position !== null && position !== "unreadable") this.#position = position;
      this.#fragment = fragment;
      const reason =
        last === "unreadable" ? "the last line is not a line of an audit log; a new chain begins" : undefined;
      this.record(null, { event: "log/opened", pid: process.pid, version: VERSION, reason });
    } catch (cause) {
      throw new Error(`cannot write the audit log ${path}: ${errorMessage(cause)}`, { cause });
    }
    this.#rotationCheckedAtMs = clock.monotonic();
  }

  /** Number of lines written by this server. */
  get lines(): number {
    return this.#lines;
  }

  /** Number of lines that the second sink did not receive; null without a sink. */
  get droppedSinkLines(): number | null {
    return this.#sink?.dropped ?? null;
  }

  /** False while audited calls are refused. */
  get isWritable(): boolean {
    return this.#failure === null;
  }

  /** Throws if the next line cannot be written. Called before an audited action, which must not happen then. */
  requireWritable(action: string): void {
    if (this.#isClosed) throw internalError(`${action} refused: the audit log is closed`);
    this.#followRotation();
    this.#failure ??= this.#file.reserve();
    if (this.#failure === null || this.#tryResume()) return;
    this.#refusedCalls++;
    throw internalError(
      `${action} refused: cannot write the audit log (${this.#failure}); nothing was executed; retry when the file of --audit can be written`,
    );
  }

  /** Records an action and its outcome. Never throws. No-op after `close`. */
  record(actor: Actor | null, event: AuditEvent): void {
    if (this.#isClosed) return;
    this.#followRotation();
    const time = new Date(this.#clock.now()).toISOString();
    const entry = { time, ...actor, ...clipEvent(event) };
    if ((this.#failure === null || this.#tryResume()) && this.#append(entry)) this.#reportDrops();
    else if (this.#pending.length < MAX_PENDING_LINES) this.#pending.push(entry);
    else this.#lostLines++;
  }

  /** Returns the features that do not work, with reasons, for the health endpoint. */
  degradedComponents(): string[] {
    if (this.#isClosed) return [];
    this.#failure ??= this.#file.reserve();
    if (this.#failure !== null) this.#tryResume();
    const { failure, dropped = 0, path } = this.#sink ?? {};
    return [
      ...(this.#failure === null ? [] : [`audit log cannot be written (${this.#failure}); audited calls are refused`]),
      ...(this.#isLocked ? [] : ["audit log is not locked and reserves no space: native addon not available"]),
      ...(failure ? [`audit sink ${path} is unavailable (${failure}); ${dropped} lines dropped`] : []),
    ];
  }

  /** Closes the file and the sink. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#dropsReportedAtMs = Number.NEGATIVE_INFINITY;
    this.#reportDrops();
    this.#file.close();
    this.#sink?.close();
  }

  /** Writes one line. Returns false, and remembers the failure, if the file cannot be written. */
  #append(entry: object): boolean {
    if (this.#fragment.length > 0) {
      const time = new Date(this.#clock.now()).toISOString();
      const { length: bytes } = this.#fragment;
      const marker: AuditEvent = { event: "log/fragment", bytes, digest: digestOf(this.#fragment) };
      if (!this.#write({ time, ...marker }, "\n")) return false;
      this.#fragment = Buffer.alloc(0);
    }
    return this.#write(entry, "");
  }

  #write(entry: object, lineEnd: string): boolean {
    const { text, seq, digest } = encodeLine(this.#position, entry);
    try {
      this.#file.append(Buffer.from(`${lineEnd}${text}\n`));
    } catch (error) {
      this.#failure = getErrorCode(error) ?? errorMessage(error);
      this.#fragment = this.#file.fragment();
      return false;
    }
    this.#position = { seq, digest };
    this.#lines++;
    this.#sink?.send(text);
    return true;
  }

  /** Writes the waiting lines if there is space again. Returns true if all of them were written. */
  #tryResume(): boolean {
    const reason = this.#failure ?? "";
    if (this.#file.reserve() !== null) return false;
    const time = new Date(this.#clock.now()).toISOString();
    const marker: AuditEvent = {
      event: "log/resumed",
      reason,
      lines: this.#lostLines === 0 ? undefined : this.#lostLines,
      refusedCalls: this.#refusedCalls,
    };
    if (!this.#append({ time, ...marker })) return false;
    this.#lostLines = 0;
    this.#refusedCalls = 0;
    while (this.#pending.length > 0) {
      if (!this.#append(this.#pending[0] ?? {})) return false;
      this.#pending.shift();
    }
    this.#failure = null;
    return true;
  }

  /** Records how many lines the sink has dropped since the last such line. */
  #reportDrops(): void {
    const { dropped = 0, failure } = this.#sink ?? {};
    const lines = dropped - this.#reportedDrops;
    const isDue = this.#clock.monotonic() - this.#dropsReportedAtMs >= DROP_REPORT_INTERVAL_MS;
    if (lines === 0 || !isDue || this.#failure !== null) return;
    const time = new Date(this.#clock.now()).toISOString();
    const marker: AuditEvent = { event: "log/sinkDropped", lines, reason: failure ?? undefined };
    if (!this.#append({ time, ...marker })) return;
    this.#dropsReportedAtMs = this.#clock.monotonic();
    // The line itself counts too if the sink is still unavailable.
    this.#reportedDrops += lines;
  }

  #followRotation(): void {
    if (this.#clock.monotonic() - this.#rotationCheckedAtMs < ROTATION_CHECK_INTERVAL_MS) return;
    this.#rotationCheckedAtMs = this.#clock.monotonic();
    if (this.#file.followRotation()) this.#fragment = this.#file.fragment();
  }
}
