import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import { omitUndefined } from "../../base/omit-undefined.ts";
import { parseProcessFailure } from "../../exec/compat.ts";
import type { ExecEvent, ExitStatus, Gap, OutputChunk, ReadResult } from "../../exec/exec-process.ts";
import type { EventLog } from "../../exec/log/event-log.ts";

/** An event with its sequence number. */
export type SequencedEvent = Extract<ExecEvent, { seq: number }>;

/** Maximum buffered out-of-order bytes. More than a server retains, so that missing output can be read meanwhile. */
const MAX_OUT_OF_ORDER_BYTES = 4 * 1024 * 1024;
const MAX_OUT_OF_ORDER_EVENTS = 50_000;
/**
 * Page size of the first read; it doubles up to `MAX_PAGE_BYTES`. On a connection that breaks repeatedly a small page
 * still arrives. On a good one the last page is as much as a server usually retains.
 */
export const FIRST_PAGE_BYTES = 64 * 1024;
const MAX_PAGE_BYTES = 1024 * 1024;
/** Delay after a read that returned no missing event; it doubles. Only a faulty server causes such a read. */
const FIRST_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 10_000;

export interface SequencerSource {
  /** Calls `process/read` without waiting; survives lost connections. */
  read(params: { afterSeq: number; maxBytes?: number }): Promise<ReadResult>;
  /** Returns the exit status of a process that is only known to have exited. */
  exitStatus(result: ReadResult): Promise<ExitStatus>;
  /** Called after this many bytes were appended to the log. */
  onAppended(bytes: number): void;
}

/**
 * Appends events from the wire to a log in the order of their sequence numbers: none twice, none missing, none out of
 * order. It reads events that were not notified, and records a gap for output that is no longer retained.
 */
export class Sequencer {
  readonly #log: EventLog;
  readonly #source: SequencerSource;
  readonly #clock: Clock;
  readonly #outOfOrder = new Map<number, SequencedEvent>();
  #outOfOrderBytes = 0;
  /** Highest sequence number known to exist. */
  #knownSeq = 0;
  /** True from `catchUp` until a read returns the last sequence number: any number of events may be missing. */
  #isCatchingUp = false;
  /** Number of calls to `catchUp`. */
  #round = 0;
  #filling: Promise<void> | null = null;

  constructor(log: EventLog, source: SequencerSource, clock: Clock = systemClock) {
    this.#log = log;
    this.#source = source;
    this.#clock = clock;
  }

  onEvent(event: SequencedEvent): void {
    const expected = this.#log.nextSeq;
    if (event.seq < expected) return;
    if (event.seq === expected) {
      this.#apply(event);
      if (this.#outOfOrder.size > 0) this.#applyBuffered();
      return;
    }
    this.#knownSeq = Math.max(this.#knownSeq, event.seq);
    this.#buffer(event);
  }

  /** Records output that the server no longer retains. Output that has already arrived stays. */
  onGap({ fromSeq, toSeq, bytes }: Gap): void {
    const expected = this.#log.nextSeq;
    if (toSeq < expected) return;
    if (fromSeq > expected) {
      // Events before the gap are missing too; reading them reports the gap as well.
      this.#knownSeq = Math.max(this.#knownSeq, toSeq);
      return;
    }
    this.#log.addGap(toSeq, fromSeq === expected ? bytes : null);
    this.#applyBuffered();
  }

  /** True if an event is known to be missing. */
  get isBehind(): boolean {
    return (this.#isCatchingUp || this.#log.nextSeq <= this.#knownSeq) && !this.#isClosed;
  }

  /** Reads events that may be missing; resolves when none is missing. Rejects as `read` does. */
  catchUp(): Promise<void> {
    this.#round++;
    this.#isCatchingUp = true;
    return this.fill();
  }

  /** Reads events that are known to be missing. */
  fill(): Promise<void> {
    this.#filling ??= this.#fillAll().finally(() => {
      this.#filling = null;
    });
    return this.#filling;
  }

  get #isClosed(): boolean {
    return this.#log.isClosed || this.#log.failure !== null;
  }

  async #fillAll(): Promise<void> {
    let pageBytes = FIRST_PAGE_BYTES;
    let backoffMs = FIRST_BACKOFF_MS;
    for (let round = this.#round; this.isBehind; round = this.#round) {
      const afterSeq = this.#log.nextSeq - 1;
      const page = await this.#source.read({ afterSeq, maxBytes: pageBytes });
      pageBytes = round === this.#round ? Math.min(pageBytes * 2, MAX_PAGE_BYTES) : FIRST_PAGE_BYTES;
      const isAmbiguous = this.#isAmbiguous(page);
      const { result, gaps } = isAmbiguous ? await this.#readAll(afterSeq) : { result: page, gaps: [] };
      const exit = result.exited && !this.#log.exit ? await this.#source.exitStatus(result) : null;
      if (this.#isClosed) return;
      const isWhole = isAmbiguous || page.chunks.length === 0;
      this.#merge({ result, exit, isWhole, gaps, round, gapBytes: this.#gapBytes(result, afterSeq) });
      this.#applyBuffered();
      if (this.#log.nextSeq - 1 > afterSeq) backoffMs = FIRST_BACKOFF_MS;
      else if (this.isBehind && round === this.#round) {
        await sleep(this.#clock, backoffMs);
        backoffMs = Math.min(backoffMs * 2, MAX_BACKOFF_MS);
      }
    }
  }

  /**
   * Reports whether evicted output or the exit is missing before the first chunk. A page does not show which; a
   * full read does.
   */
  #isAmbiguous(page: ReadResult): boolean {
    const first = page.chunks[0];
    return page.exited && !this.#log.exit && first !== undefined && first.seq > this.#log.nextSeq;
  }

  /** Reads everything, also after gaps, at which a single read stops. */
  async #readAll(afterSeq: number): Promise<{ result: ReadResult; gaps: Gap[] }> {
    let result = await this.#source.read({ afterSeq });
    const gaps: Gap[] = [];
    for (;;) {
      const next = await this.#source.read({ afterSeq: result.nextSeq - 1 });
      // A faulty server may report the same gap forever.
      if (!next.gap || next.nextSeq <= result.nextSeq) return { result, gaps };
      gaps.push(next.gap);
      const chunks = [...result.chunks, ...next.chunks];
      result = omitUndefined<ReadResult>({ ...next, chunks, gap: result.gap });
    }
  }

  #merge(page: ReadPage): void {
    const { result, isWhole } = page;
    const log = this.#log;
    for (const chunk of result.chunks) {
      if (chunk.seq < log.nextSeq) continue;
      this.#accountBefore(chunk.seq, page);
      this.#append(chunk);
    }
    if (!isWhole) return;
    const endSeq = isClosed(result) ? result.nextSeq - 1 : result.nextSeq;
    this.#accountBefore(endSeq, page);
    if (isClosed(result) && log.nextSeq === endSeq) log.closed();
    if (result.failure !== null) log.fail(parseProcessFailure(result.failure));
    // A page from before the last `catchUp` does not show events missed since.
    if (page.round !== this.#round || !this.#isCatchingUp) return;
    this.#isCatchingUp = false;
    this.#knownSeq = Math.max(result.nextSeq - 1, ...this.#outOfOrder.keys());
  }

  /**
   * Accounts for the sequence numbers before `untilSeq` that are not among the chunks: buffered events, the exit, and
   * evicted output. Output is evicted from the front, so a number missing after a chunk is the exit.
   */
  #accountBefore(untilSeq: number, page: ReadPage): void {
    const log = this.#log;
    while (log.nextSeq < untilSeq) {
      const buffered = this.#outOfOrder.get(log.nextSeq);
      if (buffered) {
        this.#take(buffered);
        continue;
      }
      const lastMissing = this.#nextBufferedSeq(untilSeq) - 1;
      const { exit } = page;
      if (exit && !log.exit && !this.#hasBufferedExit && this.#includesExit(lastMissing, page)) {
        if (lastMissing > log.nextSeq) this.#recordGap(lastMissing - 1, page);
        log.exited(exit);
      } else {
        this.#recordGap(lastMissing, page);
      }
    }
  }

  /** Returns the lowest buffered number from the log's next one on and below `untilSeq`; `untilSeq` if there is none. */
  #nextBufferedSeq(untilSeq: number): number {
    let lowest = untilSeq;
    for (const seq of this.#outOfOrder.keys()) if (seq >= this.#log.nextSeq && seq < lowest) lowest = seq;
    return lowest;
  }

  /** Records a gap up to `toSeq`. The byte count of a page's gap is used once, for its first part. */
  #recordGap(toSeq: number, page: ReadPage): void {
    const fromSeq = this.#log.nextSeq;
    const isUnknown = page.gaps.some((gap) => gap.fromSeq <= toSeq && gap.toSeq >= fromSeq);
    this.#log.addGap(toSeq, isUnknown ? null : page.gapBytes);
    if (!isUnknown && page.gapBytes !== null) page.gapBytes = 0;
  }

  /** Returns the bytes of the page's gap without output that arrived meanwhile or is buffered; null if unknown. */
  #gapBytes({ gap }: ReadResult, afterSeq: number): number | null {
    if (!gap || gap.bytes === null) return null;
    const log = this.#log;
    let bytes = gap.bytes - (log.offsetAt(Math.min(gap.toSeq, log.nextSeq - 1)) - log.offsetAt(afterSeq));
    for (const event of this.#outOfOrder.values())
      if (event.type === "output" && event.seq <= gap.toSeq) bytes -= event.chunk.length;
    return bytes;
  }

  /**
   * Reports whether the exit is among the missing numbers up to `lastMissing`; it is then the last of them. A page
   * with numbers missing before its first chunk is read again as a whole, so in a page they are after a chunk.
   */
  #includesExit(lastMissing: number, page: ReadPage): boolean {
    return !page.isWhole || !this.#isExitAfter(lastMissing, page);
  }

  /** Reports whether a whole page has an unaccounted number after `seq`. */
  #isExitAfter(seq: number, { result, gaps }: ReadPage): boolean {
    const known: Pick<Gap, "fromSeq" | "toSeq">[] = [...gaps];
    for (const fromSeq of this.#outOfOrder.keys()) known.push({ fromSeq, toSeq: fromSeq });
    for (const { seq: fromSeq } of result.chunks) known.push({ fromSeq, toSeq: fromSeq });
    if (isClosed(result)) known.push({ fromSeq: result.nextSeq - 1, toSeq: result.nextSeq - 1 });
    // Ranges instead of single numbers, because the server chooses the numbers.
    let unaccounted = seq + 1;
    for (const { fromSeq, toSeq } of known.toSorted((a, b) => a.fromSeq - b.fromSeq)) {
      if (fromSeq > unaccounted) break;
      unaccounted = Math.max(unaccounted, toSeq + 1);
    }
    return unaccounted < result.nextSeq;
  }

  get #hasBufferedExit(): boolean {
    for (const event of this.#outOfOrder.values()) if (event.type === "exited") return true;
    return false;
  }

  #buffer(event: SequencedEvent): void {
    if (this.#outOfOrder.has(event.seq)) return;
    const bytes = event.type === "output" ? event.chunk.length : 0;
    // An event that does not fit is read again later.
    if (this.#outOfOrderBytes + bytes > MAX_OUT_OF_ORDER_BYTES || this.#outOfOrder.size >= MAX_OUT_OF_ORDER_EVENTS)
      return;
    this.#outOfOrder.set(event.seq, event);
    this.#outOfOrderBytes += bytes;
  }

  #applyBuffered(): void {
    for (;;) {
      const next = this.#outOfOrder.get(this.#log.nextSeq);
      if (!next) break;
      this.#take(next);
    }
    if (this.#outOfOrder.size === 0) return;
    for (const event of [...this.#outOfOrder.values()]) if (event.seq < this.#log.nextSeq) this.#drop(event);
  }

  #take(event: SequencedEvent): void {
    this.#drop(event);
    this.#apply(event);
  }

  #drop(event: SequencedEvent): void {
    this.#outOfOrder.delete(event.seq);
    if (event.type === "output") this.#outOfOrderBytes -= event.chunk.length;
  }

  #apply(event: SequencedEvent): void {
    switch (event.type) {
      case "output":
        this.#append(event);
        return;
      case "exited": {
        const { exitCode, signal, reason, limit, sandboxDenied } = event;
        this.#log.exited(omitUndefined<ExitStatus>({ exitCode, signal, reason, limit, sandboxDenied }));
        return;
      }
      case "closed":
        this.#log.closed();
        return;
    }
  }

  #append({ seq, stream, chunk }: OutputChunk): void {
    // A log assigns no sequence number to an empty chunk; a gap of 0 bytes keeps the numbers aligned.
    if (chunk.length === 0) this.#log.addGap(seq, 0);
    else this.#log.append(stream, chunk);
    this.#source.onAppended(chunk.length);
  }
}

/** One read result and its context. */
interface ReadPage {
  result: ReadResult;
  /** Exit status, if the process exited and the log does not have it yet. */
  exit: ExitStatus | null;
  /** True if no event after the last chunk was left out. */
  isWhole: boolean;
  /** Gaps after the first chunk. */
  gaps: readonly Gap[];
  round: number;
  /** Bytes of the page's gap that are not recorded yet; null if the server does not report them. */
  gapBytes: number | null;
}

function isClosed(result: ReadResult): boolean {
  return result.closed && result.failure === null;
}
