import { type Clock, systemClock } from "../../async/clock.ts";
import { Watch, type WatchReceiver } from "../../async/watch.ts";
import { freeBuffer, freeCopiedBuffer } from "../../base/free-buffer.ts";
import type { ExecServerError } from "../../protocol/exec-server-error.ts";
import type {
  EventsOptions,
  ExecEvent,
  ExitStatus,
  Gap,
  OutputChunk,
  OutputStream,
  ReadParams,
  ReadResult,
} from "../exec-process.ts";
import { EvictedModes } from "../terminal/evicted-modes.ts";
import { Backpressure } from "./backpressure.ts";
import { ChunkStore } from "./chunk-store.ts";
import { type CursorOptions, EventCursor } from "./event-cursor.ts";
import type { HeadTailBuffer } from "./head-tail-buffer.ts";
import { MIN_PINNED_BYTES, type RetentionBudget } from "./retention-budget.ts";
import { MIN_SNAPSHOT_BYTES, SnapshotBuffers } from "./snapshot-buffers.ts";

export interface EventLogLimits {
  /** Output retained for cursors. Also the bytes that a lossless cursor may pin before the process is paused. */
  retainedBytes: number;
  retainedChunks: number;
  /** Bytes of each stream retained for snapshots, at each end. */
  headBytes: number;
  tailBytes: number;
}

/** Limits of the reference server (1 MiB, 50,000 chunks), and half a MiB at each end for snapshots. */
export const DEFAULT_EVENT_LOG_LIMITS: EventLogLimits = {
  retainedBytes: 1024 * 1024,
  retainedChunks: 50_000,
  headBytes: 512 * 1024,
  tailBytes: 512 * 1024,
};

/** Minimum piece size: smaller chunks are never split, however small the retention is. */
const SMALLEST_PIECE_BYTES = 4096;

export interface EventLogOptions {
  limits?: Partial<EventLogLimits> | undefined;
  /** Shared by all logs of a server, so that many processes together stay bounded. */
  budget?: RetentionBudget | undefined;
  /** Shared budget of the snapshot buffers. */
  snapshotBudget?: RetentionBudget | undefined;
  clock?: Clock | undefined;
  /** The log owns the chunks that it receives, and frees their memory on eviction. Readers that keep a chunk prevent it. */
  ownsChunks?: boolean | undefined;
  /** The log copies another log and must keep its sequence numbers: chunks are stored unsplit, however large. */
  isReplica?: boolean | undefined;
}

export interface ReadWaitOptions {
  /** An abort ends the wait, without an error. */
  disconnected?: AbortSignal | undefined;
  /** Called before a wait. Returns the function that is called after it. */
  acquireWait?: (() => () => void) | undefined;
  /** Awaited with the approximate size of the result before it is read. */
  reserve?: ((bytes: number) => Promise<void>) | undefined;
}

/**
 * Ordered, bounded log of one process: one sequence from 1 for output, `exited` and `closed`, without holes.
 *
 * The log evicts the oldest chunks first. A lossless cursor pins output that it has not consumed. When it pins a
 * whole retention, `onBackpressure(true)` asks the producer to pause, and `onBackpressure(false)` to resume.
 */
export class EventLog {
  /** Called with `true` to pause reading the process output, `false` to resume. Set by the producer. */
  onBackpressure: (paused: boolean) => void = () => undefined;

  readonly #limits: EventLogLimits;
  readonly #clock: Clock;
  readonly #isReplica: boolean;
  readonly #ownsChunks: boolean;
  readonly #budget: RetentionBudget | undefined;
  readonly #chunks = new ChunkStore();
  readonly #snapshots: SnapshotBuffers;
  /** Lossless cursors; checked with each chunk. */
  readonly #cursors = new Set<EventCursor>();
  readonly #lossyCursors = new Set<EventCursor>();
  readonly #wake = new Watch(0);
  readonly #listeners = new Set<() => void>();
  readonly #backpressure: Backpressure;
  readonly #evictedModes = new EvictedModes();
  /** Memory of the chunks that is charged to the budget. */
  #chargedBytes = 0;
  #nextSeq = 1;
  #exit: (ExitStatus & { seq: number }) | null = null;
  #closedSeq: number | null = null;
  #failure: ExecServerError | null = null;
  #isDisposed = false;
  readonly #startedAtMs: number;
  #lastEventAtMs: number;

  constructor(options: EventLogOptions = {}) {
    const limits = { ...DEFAULT_EVENT_LOG_LIMITS, ...options.limits };
    const { headBytes, tailBytes, retainedBytes } = limits;
    // A small retention implies small snapshots.
    const half = Math.max(retainedBytes, MIN_SNAPSHOT_BYTES) / 2;
    this.#limits = {
      ...limits,
      headBytes: options.limits?.headBytes ?? Math.min(headBytes, half),
      tailBytes: options.limits?.tailBytes ?? Math.min(tailBytes, half),
    };
    this.#clock = options.clock ?? systemClock;
    this.#isReplica = options.isReplica ?? false;
    this.#ownsChunks = options.ownsChunks ?? false;
    this.#budget = options.budget;
    this.#backpressure = new Backpressure(this.#limits, options.budget, (paused) => this.onBackpressure(paused));
    this.#startedAtMs = this.#clock.monotonic();
    this.#lastEventAtMs = this.#startedAtMs;
    this.#budget?.join(this);
    this.#snapshots = new SnapshotBuffers({
      limits: this.#limits,
      budget: options.snapshotBudget,
      isClosed: () => this.isClosed,
      onDropped: (chunk, seq) => {
        // The store still has chunks that it has not evicted, and frees them itself.
        const isFree = chunk.length === 0;
        if (this.#ownsChunks && !isFree && this.#chunks.hasReleased(seq)) freeBuffer(chunk);
      },
    });
  }

  // ---- producer

  /** Returns "copied" if the log holds no reference to the memory of the chunk. */
  append(stream: OutputStream, chunk: Uint8Array): "referenced" | "copied" {
    if (chunk.length === 0 || this.#closedSeq !== null || this.#failure !== null || this.#isDisposed) return "copied";
    // The log evicts whole chunks, so it splits a chunk that is large relative to the retention.
    const pieceBytes = this.#isReplica
      ? chunk.length
      : Math.floor(Math.max(this.#limits.retainedBytes / 4, SMALLEST_PIECE_BYTES));
    const nowMs = this.#clock.monotonic();
    const isWhole = chunk.length <= pieceBytes;
    for (let at = 0; at < chunk.length; at += pieceBytes) {
      // A copy: a view would retain the whole chunk for as long as one of its pieces is retained.
      const piece = isWhole ? chunk : new Uint8Array(chunk.subarray(at, at + pieceBytes));
      const seq = this.#nextSeq++;
      this.#chunks.push({ seq, stream, chunk: piece }, nowMs);
      this.#snapshots.get(stream).push(piece, seq);
    }
    this.#snapshots.count();
    this.rebalance();
    this.#changed(nowMs);
    return isWhole ? "referenced" : "copied";
  }

  /**
   * Marks the sequence numbers up to `toSeq` as output that will never arrive; every consumer receives a gap. `bytes`
   * is null if the size is unknown. Only the log of a remote process has such gaps.
   */
  addGap(toSeq: number, bytes: number | null): void {
    if (toSeq < this.#nextSeq || this.#closedSeq !== null || this.#failure !== null || this.#isDisposed) return;
    this.#chunks.pushGap({ fromSeq: this.#nextSeq, toSeq, bytes }, this.#clock.monotonic());
    this.#nextSeq = toSeq + 1;
    this.evictTo();
    this.#changed();
  }

  exited(status: ExitStatus): void {
    if (this.#exit || this.#closedSeq !== null || this.#failure !== null) return;
    this.#exit = { ...status, seq: this.#nextSeq++ };
    this.#changed();
  }

  closed(): void {
    if (this.#closedSeq !== null || this.#failure !== null) return;
    this.#closedSeq = this.#nextSeq++;
    this.#changed();
  }

  /**
   * Marks the process as failed: it can no longer be tracked. Retained output stays readable; the log accepts no
   * more.
   */
  fail(error: ExecServerError): void {
    if (this.#closedSeq !== null || this.#failure !== null) return;
    this.#failure = error;
    this.#changed();
  }

  /** Frees all retained output and accepts no more; called when the process is forgotten. */
  dispose(): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    const free = this.#chunks.clear();
    this.#budget?.shrink(this.#chargedBytes);
    this.#chargedBytes = 0;
    this.#budget?.leave(this);
    for (const cursor of [...this.#cursors, ...this.#lossyCursors]) cursor.close();
    this.#snapshots.dispose();
    for (const chunk of free) this.#free(chunk);
  }

  // ---- state

  get nextSeq(): number {
    return this.#nextSeq;
  }

  get exit(): (ExitStatus & { seq: number }) | null {
    return this.#exit;
  }

  get isClosed(): boolean {
    return this.#closedSeq !== null;
  }

  get failure(): ExecServerError | null {
    return this.#failure;
  }

  /** True while a slow lossless cursor makes the producer pause. */
  get isPaused(): boolean {
    return this.#backpressure.isPaused;
  }

  get totalBytes(): number {
    return this.#chunks.totalBytes;
  }

  get retainedBytes(): number {
    return this.#chunks.retainedBytes;
  }

  /** Memory of the retained output, as charged to the budget. */
  get chargedBytes(): number {
    return this.#chargedBytes;
  }

  get lastEventAtMs(): number {
    return this.#lastEventAtMs;
  }

  headTail(stream: OutputStream): HeadTailBuffer {
    return this.#snapshots.get(stream);
  }

  // ---- consumers

  /** Returns the retained output after `afterSeq` as a `process/read` result. */
  read(params: ReadParams = {}): ReadResult {
    const afterSeq = params.afterSeq ?? 0;
    const { maxBytes } = params;
    const entries = this.#chunks.after(afterSeq, maxBytes);
    const { chunks, gap, entryGap } = this.#upToGap(afterSeq, entries);
    // A page that contains only gaps continues at the end of the log.
    const last = maxBytes === undefined || chunks.length === 0 ? undefined : entries.at(-1);
    const result: ReadResult = {
      chunks,
      nextSeq: entryGap?.fromSeq ?? (last ? last.seq + 1 : this.#nextSeq),
      exited: this.#exit !== null,
      exitCode: this.#exit?.exitCode ?? null,
      closed: this.isClosed || this.#failure !== null,
      failure: this.#failure?.message ?? null,
      sandboxDenied: this.#exit?.sandboxDenied ?? false,
    };
    if (gap) result.gap = gap;
    if (!params.times) return result;
    const times = chunks.map(({ seq }) => this.#chunks.timeOf(seq) - this.#startedAtMs);
    return { ...result, times, ageMs: this.ageMs };
  }

  /** Milliseconds since the start of the process, on the same scale as `times`. */
  get ageMs(): number {
    return this.#clock.monotonic() - this.#startedAtMs;
  }

  /** Like `read`, but waits up to `waitMs` for a new event. Rejects if the signal in `params` aborts. */
  async readWaiting(params: ReadParams, options: ReadWaitOptions = {}): Promise<ReadResult> {
    const { afterSeq = 0, waitMs = 0, maxBytes = Number.POSITIVE_INFINITY, signal = options.disconnected } = params;
    if (waitMs > 0 && !this.#hasNewEvents(afterSeq)) {
      const release = options.acquireWait?.();
      await this.nextChange({ timeoutMs: waitMs, signal }).finally(release);
    }
    if (options.reserve) await options.reserve(Math.min(this.#chunks.retainedBytesAfter(afterSeq), maxBytes));
    params.signal?.throwIfAborted();
    return this.read(params);
  }

  /** Resolves at the next event, after `timeoutMs`, or on abort. Never rejects. */
  nextChange(options: { timeoutMs?: number | undefined; signal?: AbortSignal | undefined } = {}): Promise<void> {
    const { timeoutMs, signal } = options;
    if (signal?.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const done = () => {
        stop();
        timer?.cancel();
        signal?.removeEventListener("abort", done);
        resolve();
      };
      const stop = this.listen(done);
      const timer = timeoutMs === undefined ? null : this.#clock.after(timeoutMs, done, { keepAlive: false });
      signal?.addEventListener("abort", done);
    });
  }

  /** Calls `listener` synchronously after each event. Returns a function that removes it. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.#wake.subscribe();
  }

  cursor(options: CursorOptions = {}): EventCursor {
    const registry = options.lossless ? this.#cursors : this.#lossyCursors;
    const cursor = new EventCursor(this, registry, options);
    registry.add(cursor);
    return cursor;
  }

  async *events(options: EventsOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    const cursor = this.cursor({ afterSeq: options.afterSeq ?? 0, lossless: options.lossless ?? false });
    try {
      while (!cursor.ended) {
        options.signal?.throwIfAborted();
        const event = cursor.next();
        if (event) yield event;
        else if (!cursor.ended) await this.nextChange({ signal: options.signal });
      }
    } finally {
      cursor.close();
    }
  }

  // ---- cursors and budget

  /** Returns the event after `seq`, or null if there is none yet. If the reader `borrows` it, its output is valid briefly. */
  eventAfter(seq: number, borrows = false): ExecEvent | null {
    const gap = this.#gapAfter(seq);
    const exit = this.#exit;
    if (gap) {
      // An `exited` event inside evicted output is still delivered in order.
      if (!exit || exit.seq <= seq || exit.seq > gap.toSeq) return { type: "gap", ...gap };
      if (exit.seq === seq + 1) return { type: "exited", ...exit };
      const toSeq = exit.seq - 1;
      return {
        type: "gap",
        fromSeq: gap.fromSeq,
        toSeq,
        bytes: this.#chunks.evictedBytesThrough(seq, toSeq),
      };
    }
    const chunk = this.#chunks.firstAfter(seq, borrows);
    if (exit && exit.seq > seq && !(chunk && chunk.seq < exit.seq)) return { type: "exited", ...exit };
    if (chunk) {
      const entryGap = this.#chunks.gapAt(chunk);
      // Copies member by member: on this hot path a spread is measurably slower.
      if (!entryGap) return { type: "output", seq: chunk.seq, stream: chunk.stream, chunk: chunk.chunk };
      return { type: "gap", ...entryGap, fromSeq: Math.max(entryGap.fromSeq, seq + 1) };
    }
    if (this.#closedSeq !== null && this.#closedSeq > seq) return { type: "closed", seq: this.#closedSeq };
    return null;
  }

  /** Returns output that sets the terminal modes of the evicted output; it belongs before the retained output. */
  evictedModes(): Uint8Array {
    return this.#evictedModes.toOutput();
  }

  /** Returns the bytes of output up to and including `seq`, as far as the log remembers. */
  offsetAt(seq: number): number {
    return this.#chunks.offsetAt(seq);
  }

  /** Evicts and pauses or resumes again, because a lossless cursor moved or was closed, or the budget changed. */
  rebalance(): void {
    this.evictTo();
    this.#updatePressure();
  }

  get #retention(): number {
    const { retainedBytes } = this.#limits;
    return this.#budget?.isTight ? Math.min(retainedBytes, MIN_PINNED_BYTES) : retainedBytes;
  }

  /** Evicts the oldest unpinned output until at most `maxBytes` remain. */
  evictTo(maxBytes = this.#retention): void {
    const chunks = this.#chunks;
    let pinnedAfter: number | null = null;
    while (chunks.retainedBytes > maxBytes || chunks.count > this.#limits.retainedChunks) {
      const oldest = chunks.first();
      pinnedAfter ??= this.#pinnedAfterSeq();
      if (!oldest || oldest.seq > pinnedAfter) break;
      if (oldest.stream === "pty") this.#evictedModes.add(oldest.chunk);
      const free = chunks.evictFirst();
      if (free) this.#free(free);
    }
    this.#charge();
  }

  /** Adjusts the charge to the memory of the chunks. */
  #charge(): void {
    if (!this.#budget || this.#isDisposed) return;
    const addedBytes = this.#chunks.memoryBytes - this.#chargedBytes;
    this.#chargedBytes += addedBytes;
    if (addedBytes > 0) this.#budget.grow(addedBytes);
    else if (addedBytes < 0) this.#budget.shrink(-addedBytes);
  }

  /** Frees an evicted chunk at once: the garbage collector would let tens of MiB accumulate. */
  #free(chunk: Uint8Array): void {
    if (this.#ownsChunks && !this.#snapshots.refersTo(chunk)) freeCopiedBuffer(chunk);
  }

  #updatePressure(): void {
    const { totalBytes, retainedBytes, count: retainedChunks } = this.#chunks;
    const lastSeq = this.#nextSeq - 1;
    this.#backpressure.update({ cursors: this.#cursors, totalBytes, lastSeq, retainedBytes, retainedChunks });
  }

  #pinnedAfterSeq(): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const cursor of this.#cursors) lowest = Math.min(lowest, cursor.seq);
    return lowest;
  }

  #gapAfter(seq: number): Gap | null {
    const evictedThrough = this.#chunks.evictedThroughSeq;
    if (seq >= evictedThrough) return null;
    return {
      fromSeq: seq + 1,
      toSeq: evictedThrough,
      bytes: this.#chunks.evictedBytesThrough(seq, evictedThrough),
    };
  }

  /** Cuts a read before the first gap after output; a gap directly after `afterSeq` becomes the gap of the read. */
  #upToGap(afterSeq: number, entries: OutputChunk[]): { chunks: OutputChunk[]; gap: Gap | null; entryGap: Gap | null } {
    let gap = this.#gapAfter(afterSeq);
    const chunks: OutputChunk[] = [];
    for (const entry of entries) {
      const entryGap = this.#chunks.gapAt(entry);
      if (!entryGap) {
        chunks.push(entry);
      } else if (chunks.length > 0) {
        return { chunks, gap, entryGap };
      } else {
        const fromSeq = gap?.fromSeq ?? Math.max(entryGap.fromSeq, afterSeq + 1);
        gap = { fromSeq, toSeq: entryGap.toSeq, bytes: addSizes(gap ? gap.bytes : 0, entryGap.bytes) };
      }
    }
    return { chunks, gap, entryGap: null };
  }

  #hasNewEvents(afterSeq: number): boolean {
    if (this.isClosed || this.#failure !== null) return true;
    if (this.#exit && afterSeq < this.#nextSeq - 1) return true;
    return this.#chunks.firstAfter(afterSeq) !== null;
  }

  #changed(nowMs = this.#clock.monotonic()): void {
    this.#lastEventAtMs = nowMs;
    this.#wake.set(this.#nextSeq);
    for (const listener of this.#listeners) listener();
  }
}

/** Adds two sizes; null is unknown and makes the sum unknown. */
function addSizes(first: number | null, second: number | null): number | null {
  return first === null || second === null ? null : first + second;
}
