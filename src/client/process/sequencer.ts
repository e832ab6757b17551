import { defined } from "../../base/omit-undefined.ts";
import type { ExecEvent, ExitStatus, Gap, OutputChunk, ReadResult } from "../../exec/exec-process.ts";
import type { EventLog } from "../../exec/log/event-log.ts";

/** An event with its place in the process's one sequence. */
export type SequencedEvent = Extract<ExecEvent, { seq: number }>;

/** What waits behind a missing event. More than a server retains, so that what is missing can be read meanwhile. */
const MAX_EARLY_BYTES = 4 * 1024 * 1024;
const MAX_EARLY_EVENTS = 50_000;
/**
 * Catching up is done in pages that begin small and double: on a connection that breaks again and again a small page
 * still gets through, on a good one the last is as much as a server usually retains in all.
 */
export const FIRST_PAGE_BYTES = 64 * 1024;
const MAX_PAGE_BYTES = 1024 * 1024;

export interface SequencerSource {
  /** `process/read` without waiting; survives lost connections. */
  read(params: { afterSeq: number; maxBytes?: number }): Promise<ReadResult>;
  /** How the process ended, when all that is known is that it did. */
  exitStatus(result: ReadResult): Promise<ExitStatus>;
  /** This many bytes were added to the log. */
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

  /** The server says that this output is no longer there. The part that has arrived before stays. */
  offerGap({ fromSeq, toSeq, bytes }: Gap): void {
    const expected = this.#log.nextSeq;
    if (toSeq < expected) return;
    if (fromSeq > expected) {
      // Something before it is missing too: reading that tells of the gap as well.
      this.#knownSeq = Math.max(this.#knownSeq, toSeq);
      return;
    }
    this.#log.skip(toSeq, fromSeq === expected ? bytes : null);
    this.#applyEarly();
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
    let pageBytes = FIRST_PAGE_BYTES;
    for (let round = this.#round; this.isBehind; round = this.#round) {
      const afterSeq = this.#log.nextSeq - 1;
      const page = await this.#source.read({ afterSeq, maxBytes: pageBytes });
      pageBytes = round === this.#round ? Math.min(pageBytes * 2, MAX_PAGE_BYTES) : FIRST_PAGE_BYTES;
      const isAmbiguous = this.#isAmbiguous(page);
      const { result, holes } = isAmbiguous ? await this.#readAll(afterSeq) : { result: page, holes: [] };
      const exit = result.exited && !this.#log.exit ? await this.#source.exitStatus(result) : null;
      if (this.#isOver) return;
      const isWhole = isAmbiguous || page.chunks.length === 0;
      this.#merge({ result, exit, isWhole, holes, round, gapBytes: this.#gapBytes(result, afterSeq) });
      this.#applyEarly();
    }
  }

  /** Something is missing before the first chunk: evicted output, or the exit. A page cannot tell, all of it can. */
  #isAmbiguous(page: ReadResult): boolean {
    const first = page.chunks[0];
    return page.exited && !this.#log.exit && first !== undefined && first.seq > this.#log.nextSeq;
  }

  /** A read stops before a hole: what is behind it is read too. */
  async #readAll(afterSeq: number): Promise<{ result: ReadResult; holes: Gap[] }> {
    let result = await this.#source.read({ afterSeq });
    const holes: Gap[] = [];
    for (;;) {
      const next = await this.#source.read({ afterSeq: result.nextSeq - 1 });
      if (!next.gap) return { result, holes };
      holes.push(next.gap);
      const chunks = [...result.chunks, ...next.chunks];
      result = defined<ReadResult>({ ...next, chunks, gap: result.gap });
    }
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
      const { exit } = answer;
      if (exit && !log.exit && !this.#hasEarlyExit && this.#includesExit(lastMissing, answer)) {
        if (lastMissing > log.nextSeq) this.#skip(lastMissing - 1, answer);
        log.exited(exit);
      } else {
        this.#skip(lastMissing, answer);
      }
    }
  }

  /** How many bytes an answer's gap has is told once, at the first of the holes it makes. */
  #skip(toSeq: number, answer: Answer): void {
    const fromSeq = this.#log.nextSeq;
    const isUnknown = answer.holes.some((hole) => hole.fromSeq <= toSeq && hole.toSeq >= fromSeq);
    this.#log.skip(toSeq, isUnknown ? null : answer.gapBytes);
    if (!isUnknown && answer.gapBytes !== null) answer.gapBytes = 0;
  }

  /** The bytes of an answer's gap, without those that came while it was under way, or came early; null if it tells none. */
  #gapBytes({ gap }: ReadResult, afterSeq: number): number | null {
    if (!gap || gap.bytes === null) return null;
    const log = this.#log;
    let bytes = gap.bytes - (log.offsetAt(Math.min(gap.toSeq, log.nextSeq - 1)) - log.offsetAt(afterSeq));
    for (const event of this.#early.values())
      if (event.type === "output" && event.seq <= gap.toSeq) bytes -= event.chunk.length;
    return bytes;
  }

  /**
   * Is the exit among the missing numbers up to `lastMissing`? If so, it is taken to be the last of them. A page with
   * numbers missing at its front was asked for again as a whole, so what is missing in a page is behind a chunk.
   */
  #includesExit(lastMissing: number, answer: Answer): boolean {
    return !answer.isWhole || !this.#isExitBehind(lastMissing, answer);
  }

  /** In a whole answer: is there a number behind `seq` that nothing known accounts for? */
  #isExitBehind(seq: number, { result, holes }: Answer): boolean {
    const known = new Set(this.#early.keys());
    for (const { fromSeq, toSeq } of holes) for (let hole = fromSeq; hole <= toSeq; hole++) known.add(hole);
    for (const chunk of result.chunks) known.add(chunk.seq);
    if (isClosed(result)) known.add(result.nextSeq - 1);
    for (let behind = seq + 1; behind < result.nextSeq; behind++) if (!known.has(behind)) return true;
    return false;
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
        const { exitCode, signal, reason, limit, sandboxDenied } = event;
        this.#log.exited(defined<ExitStatus>({ exitCode, signal, reason, limit, sandboxDenied }));
        return;
      }
      case "closed":
        this.#log.closed();
        return;
    }
  }

  #append({ seq, stream, chunk }: OutputChunk): void {
    // A log gives no seq to an empty chunk; the sequence must not slip for it.
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
  /** What is missing behind the first chunk and is not the exit. */
  holes: readonly Gap[];
  round: number;
  /** Of the answer's gap, not yet told; null when the server does not say. */
  gapBytes: number | null;
}

function isClosed(result: ReadResult): boolean {
  return result.closed && result.failure === null;
}
