import type { Clock } from "../../async/clock.ts";
import { systemClock } from "../../async/clock.ts";
import type { WatchReceiver } from "../../async/watch.ts";
import { Watch } from "../../async/watch.ts";
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
import { Backpressure } from "./backpressure.ts";
import { ChunkStore } from "./chunk-store.ts";
import { type CursorOptions, EventCursor } from "./event-cursor.ts";
import type { HeadTailBuffer } from "./head-tail-buffer.ts";
import { LEAST_HELD_BYTES, type RetentionBudget } from "./retention-budget.ts";
import { LEAST_SNAPSHOT_BYTES, SnapshotBuffers } from "./snapshot-buffers.ts";

export interface EventLogLimits {
  /** Output kept for cursors; also how much a holding cursor may leave untaken before the process is paused. */
  retainedBytes: number;
  retainedChunks: number;
  /** Kept for snapshots, per stream, at each end. */
  headBytes: number;
  tailBytes: number;
}

/** The numbers of the current protocol's reference server (1 MiB, 50,000 chunks), and half a MiB at each end for snapshots. */
export const DEFAULT_EVENT_LOG_LIMITS: EventLogLimits = {
  retainedBytes: 1024 * 1024,
  retainedChunks: 50_000,
  headBytes: 512 * 1024,
  tailBytes: 512 * 1024,
};

/** A chunk up to this size is never kept in pieces, however small the retention is. */
const SMALLEST_PIECE_BYTES = 4096;

export interface EventLogOptions {
  limits?: Partial<EventLogLimits> | undefined;
  /** Shared by all logs of a server, so that many processes together stay bounded too. */
  budget?: RetentionBudget | undefined;
  /** The same for what is kept for snapshots. */
  snapshotBudget?: RetentionBudget | undefined;
  clock?: Clock | undefined;
  /** It repeats another log, whose numbers must stay: chunks are kept as they come, however large. */
  isFollower?: boolean | undefined;
}

/**
 * Everything a process has told: one sequence from 1 shared by output, exited and closed, without holes.
 *
 * Bounded: the oldest chunks go first. A cursor that holds keeps what it has not taken; when that is a whole retention,
 * `onPressure(true)` asks the producer to pause, and `onPressure(false)` to go on.
 */
export class EventLog {
  /** Set by whoever produces: pause or resume reading from the process. */
  onPressure: (paused: boolean) => void = () => undefined;

  readonly #limits: EventLogLimits;
  readonly #clock: Clock;
  readonly #isFollower: boolean;
  readonly #budget: RetentionBudget | undefined;
  readonly #chunks = new ChunkStore();
  readonly #snapshots: SnapshotBuffers;
  /** The cursors that hold; checked with each chunk. */
  readonly #cursors = new Set<EventCursor>();
  readonly #watching = new Set<EventCursor>();
  readonly #wake = new Watch(0);
  readonly #listeners = new Set<() => void>();
  readonly #backpressure: Backpressure;
  #nextSeq = 1;
  #exit: (ExitStatus & { seq: number }) | null = null;
  #closedSeq: number | null = null;
  #failure: string | null = null;
  #disposed = false;
  readonly #beganAtMs: number;
  #lastEventAtMs: number;

  constructor(options: EventLogOptions = {}) {
    const limits = { ...DEFAULT_EVENT_LOG_LIMITS, ...options.limits };
    const { headBytes, tailBytes, retainedBytes } = limits;
    // A small retention means small snapshots too.
    const half = Math.max(retainedBytes, LEAST_SNAPSHOT_BYTES) / 2;
    this.#limits = {
      ...limits,
      headBytes: options.limits?.headBytes ?? Math.min(headBytes, half),
      tailBytes: options.limits?.tailBytes ?? Math.min(tailBytes, half),
    };
    this.#clock = options.clock ?? systemClock;
    this.#isFollower = options.isFollower ?? false;
    this.#budget = options.budget;
    this.#backpressure = new Backpressure(this.#limits, options.budget, (paused) => this.onPressure(paused));
    this.#beganAtMs = this.#clock.monotonic();
    this.#lastEventAtMs = this.#beganAtMs;
    this.#budget?.join(this);
    this.#snapshots = new SnapshotBuffers({
      limits: this.#limits,
      budget: options.snapshotBudget,
      isClosed: () => this.isClosed,
    });
  }

  // ---- the producer's side

  /** "copied" when nothing here looks at the chunk's own memory any more. */
  append(stream: OutputStream, chunk: Uint8Array): "kept" | "copied" {
    if (chunk.length === 0 || this.#closedSeq !== null || this.#failure !== null || this.#disposed)
      return "copied";
    // Chunks are evicted whole: one that is large beside the retention is kept in pieces, so that not all of it goes.
    const pieceBytes = this.#isFollower
      ? chunk.length
      : Math.floor(Math.max(this.#limits.retainedBytes / 4, SMALLEST_PIECE_BYTES));
    const nowMs = this.#clock.monotonic();
    const isWhole = chunk.length <= pieceBytes;
    for (let at = 0; at < chunk.length; at += pieceBytes) {
      // A copy, because a view would keep the whole chunk for as long as one of its pieces is here.
      const piece = isWhole ? chunk : new Uint8Array(chunk.subarray(at, at + pieceBytes));
      this.#chunks.push({ seq: this.#nextSeq++, stream, chunk: piece }, nowMs);
      this.#snapshots.of(stream).push(piece);
    }
    this.#snapshots.count();
    this.#budget?.grow(chunk.length);
    this.#evict();
    this.#updatePressure();
    this.#changed(nowMs);
    return isWhole ? "kept" : "copied";
  }

  /**
   * The numbers up to `toSeq` were used for output that never came here and never will: told to every consumer as a
   * gap, `bytes` being null where nobody knows how much it was. Only a log that follows a process from afar has such holes.
   */
  skip(toSeq: number, bytes: number | null): void {
    if (toSeq < this.#nextSeq || this.#closedSeq !== null || this.#failure !== null || this.#disposed) return;
    this.#chunks.pushHole({ fromSeq: this.#nextSeq, toSeq, bytes }, this.#clock.monotonic());
    this.#nextSeq = toSeq + 1;
    this.#evict();
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

  /** The process can no longer be followed. What is retained can still be read; nothing more is taken. */
  fail(message: string): void {
    if (this.#closedSeq !== null || this.#failure !== null) return;
    this.#failure = message;
    this.#changed();
  }

  /** Gives all retained output back and keeps no more; called when the process is forgotten. */
  dispose(): void {
    if (this.#disposed) return;
    this.#disposed = true;
    const freedBytes = this.#chunks.clear();
    this.#budget?.shrink(freedBytes);
    this.#budget?.leave(this);
    for (const cursor of [...this.#cursors, ...this.#watching]) cursor.close();
    this.#snapshots.dispose();
  }

  // ---- what is known now

  get nextSeq(): number {
    return this.#nextSeq;
  }

  get exit(): (ExitStatus & { seq: number }) | null {
    return this.#exit;
  }

  get isClosed(): boolean {
    return this.#closedSeq !== null;
  }

  get failure(): string | null {
    return this.#failure;
  }

  /** The producer was asked to pause: a reader that must not miss anything is slow. */
  get isHeld(): boolean {
    return this.#backpressure.isPaused;
  }

  get totalBytes(): number {
    return this.#chunks.totalBytes;
  }

  get retainedBytes(): number {
    return this.#chunks.retainedBytes;
  }

  get lastEventAtMs(): number {
    return this.#lastEventAtMs;
  }

  headTail(stream: OutputStream): HeadTailBuffer {
    return this.#snapshots.of(stream);
  }

  // ---- the consumers' side

  /** What is retained after the cursor, as `process/read` answers it. */
  read(params: ReadParams = {}): ReadResult {
    const afterSeq = params.afterSeq ?? 0;
    const { maxBytes } = params;
    const entries = this.#chunks.after(afterSeq, maxBytes);
    const { chunks, gap, hole } = this.#upToHole(afterSeq, entries);
    // A page of holes alone has nothing behind it.
    const last = maxBytes === undefined || chunks.length === 0 ? undefined : entries.at(-1);
    const result: ReadResult = {
      chunks,
      nextSeq: hole?.fromSeq ?? (last ? last.seq + 1 : this.#nextSeq),
      exited: this.#exit !== null,
      exitCode: this.#exit?.exitCode ?? null,
      closed: this.isClosed || this.#failure !== null,
      failure: this.#failure,
      sandboxDenied: this.#exit?.sandboxDenied ?? false,
    };
    if (gap) result.gap = gap;
    if (!params.times) return result;
    const times = chunks.map(({ seq }) => this.#chunks.timeOf(seq) - this.#beganAtMs);
    return { ...result, times, ageMs: this.ageMs };
  }

  /** Milliseconds since the process began, as `times` count them. */
  get ageMs(): number {
    return this.#clock.monotonic() - this.#beganAtMs;
  }

  /**
   * Like `read`, but waits up to `waitMs` when there is nothing to tell yet. Rejects when the reader's own signal aborts;
   * a reader that is gone only ends the wait.
   */
  async readWaiting(params: ReadParams, gone?: AbortSignal): Promise<ReadResult> {
    const { afterSeq = 0, waitMs = 0, signal = gone } = params;
    params.signal?.throwIfAborted();
    if (waitMs > 0 && !this.#hasNews(afterSeq)) await this.nextChange({ timeoutMs: waitMs, signal });
    params.signal?.throwIfAborted();
    return this.read(params);
  }

  /** Resolves at the next event, or after `timeoutMs`, or when aborted. Never rejects. */
  nextChange(
    options: { timeoutMs?: number | undefined; signal?: AbortSignal | undefined } = {},
  ): Promise<void> {
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
      signal?.addEventListener("abort", done, { once: true });
    });
  }

  /** Calls back synchronously after each event. Returns how to stop. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  subscribeWake(): WatchReceiver<number> {
    return this.#wake.subscribe();
  }

  cursor(options: CursorOptions = {}): EventCursor {
    const registry = options.holding ? this.#cursors : this.#watching;
    const cursor = new EventCursor(this, registry, options);
    registry.add(cursor);
    return cursor;
  }

  async *events(options: EventsOptions = {}): AsyncGenerator<ExecEvent, void, undefined> {
    const cursor = this.cursor({ afterSeq: options.afterSeq ?? 0, holding: options.lossless ?? false });
    try {
      for (;;) {
        options.signal?.throwIfAborted();
        const event = cursor.next();
        if (event) {
          yield event;
          if (event.type === "closed" || event.type === "failed") return;
        } else if (cursor.ended) {
          return;
        } else {
          await this.nextChange(options.signal ? { signal: options.signal } : {});
        }
      }
    } finally {
      cursor.close();
    }
  }

  // ---- for cursors and the budget

  /** The event a consumer that has seen everything up to `seq` must see next. */
  eventAfter(seq: number): ExecEvent | null {
    const gap = this.#gapAfter(seq);
    const exit = this.#exit;
    if (gap) {
      // An exit among evicted output is still told at its place.
      if (!exit || exit.seq <= seq || exit.seq > gap.toSeq) return { type: "gap", ...gap };
      if (exit.seq === seq + 1) return { type: "exited", ...exit };
      const toSeq = exit.seq - 1;
      return { type: "gap", fromSeq: gap.fromSeq, toSeq, bytes: this.#chunks.goneBytes(seq, toSeq) };
    }
    const chunk = this.#chunks.firstAfter(seq);
    if (exit && exit.seq > seq && !(chunk && chunk.seq < exit.seq)) return { type: "exited", ...exit };
    if (chunk) {
      const hole = this.#chunks.holeAt(chunk);
      // Member by member: the hot path, where copying an object by its keys is felt.
      if (!hole) return { type: "output", seq: chunk.seq, stream: chunk.stream, chunk: chunk.chunk };
      return { type: "gap", ...hole, fromSeq: Math.max(hole.fromSeq, seq + 1) };
    }
    if (this.#closedSeq !== null && this.#closedSeq > seq) return { type: "closed", seq: this.#closedSeq };
    return null;
  }

  /** Bytes of output told up to and including `seq`, as far as the log remembers. */
  offsetAt(seq: number): number {
    return this.#chunks.offsetAt(seq);
  }

  /** Called by cursors that moved, or began or ceased to hold. */
  cursorMoved(): void {
    this.#evict();
    this.#updatePressure();
  }

  /** Lets go of the oldest output until at most `bytes` remain, as far as no cursor holds it. */
  evictTo(bytes: number): void {
    this.#evict(bytes);
  }

  roomChanged(): void {
    this.cursorMoved();
  }

  get #retention(): number {
    const { retainedBytes } = this.#limits;
    return this.#budget?.isTight ? Math.min(retainedBytes, LEAST_HELD_BYTES) : retainedBytes;
  }

  #evict(maxBytes = this.#retention): void {
    const chunks = this.#chunks;
    if (chunks.retainedBytes <= maxBytes && chunks.count <= this.#limits.retainedChunks) return;
    const heldAfter = this.#heldAfterSeq();
    let freed = 0;
    while (chunks.retainedBytes > maxBytes || chunks.count > this.#limits.retainedChunks) {
      const oldest = chunks.first();
      if (!oldest || oldest.seq > heldAfter) break;
      freed += chunks.evictFirst();
    }
    if (freed > 0) this.#budget?.shrink(freed);
  }

  #updatePressure(): void {
    const { totalBytes, retainedBytes, count: retainedChunks } = this.#chunks;
    const lastSeq = this.#nextSeq - 1;
    this.#backpressure.update({ cursors: this.#cursors, totalBytes, lastSeq, retainedBytes, retainedChunks });
  }

  #heldAfterSeq(): number {
    let lowest = Number.POSITIVE_INFINITY;
    for (const cursor of this.#cursors) if (cursor.holding && cursor.seq < lowest) lowest = cursor.seq;
    return lowest;
  }

  #gapAfter(seq: number): Gap | null {
    const evictedThrough = this.#chunks.evictedThroughSeq;
    if (seq >= evictedThrough) return null;
    return { fromSeq: seq + 1, toSeq: evictedThrough, bytes: this.#chunks.goneBytes(seq, evictedThrough) };
  }

  /** A read stops before a hole; a hole right after the cursor is its gap. */
  #upToHole(
    afterSeq: number,
    entries: OutputChunk[],
  ): { chunks: OutputChunk[]; gap: Gap | null; hole: Gap | null } {
    let gap = this.#gapAfter(afterSeq);
    if (!this.#chunks.hasHoles) return { chunks: entries, gap, hole: null };
    const chunks: OutputChunk[] = [];
    for (const entry of entries) {
      const hole = this.#chunks.holeAt(entry);
      if (!hole) {
        chunks.push(entry);
      } else if (chunks.length > 0) {
        return { chunks, gap, hole };
      } else {
        const fromSeq = gap?.fromSeq ?? Math.max(hole.fromSeq, afterSeq + 1);
        gap = { fromSeq, toSeq: hole.toSeq, bytes: sum(gap ? gap.bytes : 0, hole.bytes) };
      }
    }
    return { chunks, gap, hole: null };
  }

  #hasNews(afterSeq: number): boolean {
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

/** Something and something unknown is unknown. */
function sum(one: number | null, other: number | null): number | null {
  return one === null || other === null ? null : one + other;
}
