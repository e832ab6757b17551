import type { EventLog } from "../exec/event-log.ts";
import type { ExecEvent, ExitStatus, OutputChunk, ReadResult } from "../exec/exec-process.ts";

/** An event with its place in the process's one sequence. */
export type SequencedEvent = Extract<ExecEvent, { seq: number }>;

/** What waits behind a missing event. More than a server retains, so that what is missing can be read meanwhile. */
const MAX_EARLY_BYTES = 4 * 1024 * 1024;
const MAX_EARLY_EVENTS = 50_000;
/** One page of catching up: as much as a server usually retains in all. */
const PAGE_BYTES = 1024 * 1024;

export interface SequencerSource {
  /** `process/read` without waiting; survives lost connections. */
  read(params: { afterSeq: number; maxBytes?: number }): Promise<ReadResult>;
  /** How the process ended, when all that is known is that it did. */
  exitStatus(result: ReadResult): Promise<ExitStatus>;
  /** So much was added to the log. */
  added(bytes: number): void;
}

/**
 * Puts what comes over the wire into a log in the order of its sequence numbers: no event twice, none missing, none
 * early. What was not notified is read; what can no longer be read is told as a gap.
 */
export class Sequencer {
  readonly #log: EventLog;
  readonly #source: SequencerSource;
  readonly #early = new Map<number, SequencedEvent>();
  #earlyBytes = 0;
  /** The highest number known to exist; infinite until a read has told. */
  #knownSeq = 0;
  /** Counts the calls to catch up. */
  #round = 0;
  #filling: Promise<void> | null = null;

  constructor(log: EventLog, source: SequencerSource) {
    this.#log = log;
    this.#source = source;
  }

  offer(event: SequencedEvent): void {
    const expected = this.#log.nextSeq;
    if (event.seq < expected) return;
    if (event.seq === expected) {
      this.#apply(event);
      if (this.#early.size > 0) this.#applyEarly();
      return;
    }
    this.#knownSeq = Math.max(this.#knownSeq, event.seq);
    this.#keep(event);
  }

  /** True when something is known to be missing. */
  get isBehind(): boolean {
    return this.#log.nextSeq <= this.#knownSeq && !this.#isOver;
  }

  /** Reads whatever may have been missed, and resolves when nothing is missing. Rejects as `read` does. */
  catchUp(): Promise<void> {
    this.#round++;
    this.#knownSeq = Number.POSITIVE_INFINITY;
    return this.fill();
  }

  /** Reads what is known to be missing. */
  fill(): Promise<void> {
    this.#filling ??= this.#fillAll().finally(() => {
      this.#filling = null;
    });
    return this.#filling;
  }

  get #isOver(): boolean {
    return this.#log.isClosed || this.#log.failure !== null;
  }

  async #fillAll(): Promise<void> {
    while (this.isBehind) {
      const round = this.#round;
      const afterSeq = this.#log.nextSeq - 1;
      const page = await this.#source.read({ afterSeq, maxBytes: PAGE_BYTES });
      const isAmbiguous = this.#isAmbiguous(page);
      const result = isAmbiguous ? await this.#source.read({ afterSeq }) : page;
      const exit = result.exited && !this.#log.exit ? await this.#source.exitStatus(result) : null;
      if (this.#isOver) return;
      this.#merge({ result, exit, isWhole: isAmbiguous || page.chunks.length === 0, round });
      this.#applyEarly();
    }
  }

  /** More than one number is missing before the first chunk, and the exit may be one of them: a page cannot tell. */
  #isAmbiguous(page: ReadResult): boolean {
    const first = page.chunks[0];
    return page.exited && !this.#log.exit && first !== undefined && first.seq > this.#log.nextSeq + 1;
  }

  #merge(answer: Answer): void {
    const { result, isWhole } = answer;
    const log = this.#log;
    for (const chunk of result.chunks) {
      if (chunk.seq < log.nextSeq) continue;
      this.#bridge(chunk.seq, answer);
      this.#append(chunk);
    }
    if (!isWhole) return;
    const endSeq = isClosed(result) ? result.nextSeq - 1 : result.nextSeq;
    this.#bridge(endSeq, answer);
    if (isClosed(result) && log.nextSeq === endSeq) log.closed();
    if (result.failure !== null) log.fail(result.failure);
    // An answer from before the last call to catch up says nothing about what was missed since.
    if (answer.round === this.#round && this.#knownSeq === Number.POSITIVE_INFINITY)
      this.#knownSeq = Math.max(result.nextSeq - 1, ...this.#early.keys());
  }

  /**
   * Accounts for the numbers before `untilSeq` that were not among the chunks: those that came early, the exit, and
   * what is no longer retained. Output is evicted from the front, so whatever is missing behind a chunk is the exit.
   */
  #bridge(untilSeq: number, answer: Answer): void {
    const log = this.#log;
    while (log.nextSeq < untilSeq) {
      const early = this.#early.get(log.nextSeq);
      if (early) {
        this.#take(early);
        continue;
      }
      let lastMissing = log.nextSeq;
      while (lastMissing + 1 < untilSeq && !this.#early.has(lastMissing + 1)) lastMissing++;
      const { exit, result } = answer;
      if (exit && !log.exit && !this.#hasEarlyExit && this.#includesExit(lastMissing, answer)) {
        if (lastMissing > log.nextSeq) log.skip(lastMissing - 1, result.gap?.bytes ?? 0);
        log.exited(exit);
      } else {
        log.skip(lastMissing, result.gap?.bytes ?? 0);
      }
    }
  }

  /** Is the exit among the missing numbers up to `lastMissing`? If so, it is taken to be the last of them. */
  #includesExit(lastMissing: number, { result, isWhole }: Answer): boolean {
    if (lastMissing === this.#log.nextSeq) return true;
    const evictedThrough = result.gap?.toSeq ?? 0;
    if (evictedThrough > 0 && lastMissing > evictedThrough) return true;
    return isWhole && !isExitBehind(result, lastMissing);
  }

  get #hasEarlyExit(): boolean {
    for (const event of this.#early.values()) if (event.type === "exited") return true;
    return false;
  }

  #keep(event: SequencedEvent): void {
    if (this.#early.has(event.seq)) return;
    const bytes = event.type === "output" ? event.chunk.length : 0;
    // What does not fit is read again later.
    if (this.#earlyBytes + bytes > MAX_EARLY_BYTES || this.#early.size >= MAX_EARLY_EVENTS) return;
    this.#early.set(event.seq, event);
    this.#earlyBytes += bytes;
  }

  #applyEarly(): void {
    for (;;) {
      const next = this.#early.get(this.#log.nextSeq);
      if (!next) break;
      this.#take(next);
    }
    if (this.#early.size === 0) return;
    for (const event of [...this.#early.values()]) if (event.seq < this.#log.nextSeq) this.#drop(event);
  }

  #take(event: SequencedEvent): void {
    this.#drop(event);
    this.#apply(event);
  }

  #drop(event: SequencedEvent): void {
    this.#early.delete(event.seq);
    if (event.type === "output") this.#earlyBytes -= event.chunk.length;
  }

  #apply(event: SequencedEvent): void {
    switch (event.type) {
      case "output":
        this.#append(event);
        return;
      case "exited": {
        const { exitCode, signal, reason, sandboxDenied } = event;
        this.#log.exited({ exitCode, signal, reason, sandboxDenied });
        return;
      }
      case "closed":
        this.#log.closed();
        return;
    }
  }

  #append({ seq, stream, chunk }: OutputChunk): void {
    // A log gives no number to nothing; the sequence must not slip for it.
    if (chunk.length === 0) this.#log.skip(seq, 0);
    else this.#log.append(stream, chunk);
    this.#source.added(chunk.length);
  }
}

/** One answer to a read, and what is known about it. */
interface Answer {
  result: ReadResult;
  /** How it ended, when it did and the log does not know yet. */
  exit: ExitStatus | null;
  /** Nothing was left out behind the last chunk. */
  isWhole: boolean;
  round: number;
}

function isClosed(result: ReadResult): boolean {
  return result.closed && result.failure === null;
}

/** In a whole answer: is there a number behind `seq` that no chunk and not the end accounts for? */
function isExitBehind(result: ReadResult, seq: number): boolean {
  const chunks = result.chunks.filter((chunk) => chunk.seq > seq).length;
  return result.nextSeq - 1 - seq > chunks + (isClosed(result) ? 1 : 0);
}
