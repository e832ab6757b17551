import { rm } from "node:fs/promises";
import { ModelError } from "../../agent/api/model-error.ts";
import { markOf } from "../../agent/batch/anthropic-batches.ts";
import type { BatchApi, BatchState } from "../../agent/batch/batch-api.ts";
import { type Clock, sleep } from "../../async/clock.ts";
import { hasEnded, type ItemRecord, type JobRecord } from "../job.ts";
import type { BatchPart } from "../ledger/batch-ledger.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { commonPrompt } from "../row/row-request.ts";
import { type BatchVerdict, judgeBatchAnswer } from "./batch-answer.ts";
import { type BatchTask, batchLine, batchRequest, rowOfLine, writeBatchFile } from "./batch-file.ts";

export interface BatchRunOptions {
  job: JobRecord;
  ledger: JobLedger;
  task: CompiledTask;
  api: BatchApi;
  /** Folder for the file of a part while it is uploaded. */
  folder: string;
  clock: Clock;
  /** Aborted when the run ends, for any reason; batches continue at the provider. */
  signal: AbortSignal;
  limits?: PartLimits | undefined;
  /** How many more rows the budget allows besides those at the provider; absent: any number. */
  affordableRows?: ((rowsOut: number) => Promise<number>) | undefined;
  /** How long the API may be unavailable before the job pauses. */
  outagePatienceMs: number;
  newId?: () => string;
  onSettled(item: ItemRecord): void;
  onTrouble?: ((message: string) => void) | undefined;
  /** Called when no row can be submitted for now. */
  pause(reason: string): Promise<void>;
}

export interface PartLimits {
  rows: number;
  bytes: number;
  /** The most parts at the provider at once. */
  parts: number;
}

/** Below the limits of providers (50,000 requests, 200 MB), so that a part uploads quickly and a failure costs little. */
const PART_LIMITS: PartLimits = { rows: 20_000, bytes: 100_000_000, parts: 8 };

/** Poll interval for open batches. Most take minutes to hours, those of a few rows seconds. */
const FIRST_LOOK_MS = 500;
const LONGEST_LOOK_MS = 30_000;
/** Rows settled concurrently while answers are read. */
const SETTLE_LANES = 8;
/** Rows read per page while a part is assembled. */
const PAGE_ROWS = 500;

/** Error codes of a provider that has no capacity for a batch now. */
const NO_ROOM = /token_limit|rate_limit|quota_exceeded|too_many/;

/**
 * Submits the rows of a job as batches to the provider and reads their answers. Each step is recorded after it was made, and
 * looked up at the provider before it is repeated: a file by its name, a batch by its tag.
 */
export class BatchRun {
  #options: BatchRunOptions;
  #given: BatchTask;
  #limits: PartLimits;
  #lookMs = FIRST_LOOK_MS;
  #awaySinceMs: number | null = null;
  #asked: string | null = null;
  /** Parts that this process made and has not tried to submit yet. */
  #untried = new Set<string>();
  #out = { parts: 0, rows: 0, answered: 0 };

  constructor(options: BatchRunOptions) {
    this.#options = options;
    this.#given = { job: options.job, task: options.task, common: commonPrompt(options.job) };
    this.#limits = options.limits ?? PART_LIMITS;
  }

  /** What is at the provider now; null: nothing. */
  get out(): { parts: number; rows: number; answered: number } | null {
    return this.#out.parts === 0 ? null : this.#out;
  }

  /** Resolves when no row is in a part and none is left to put into one. */
  async run(): Promise<void> {
    const { ledger, signal, clock } = this.#options;
    if (!(await ledger.batches.lead())) return;
    while (!signal.aborted) {
      const isDone = await this.#step();
      if (isDone) return;
      await sleep(clock, this.#lookMs, signal).catch(() => undefined);
      this.#lookMs = Math.min(LONGEST_LOOK_MS, this.#lookMs * 1.5);
    }
    await this.#cancelIfAsked();
  }

  /** One round over all parts. It waits for an API that is unavailable; an API that refuses pauses the job. */
  async #step(): Promise<boolean> {
    const { clock, signal, outagePatienceMs, onTrouble, pause } = this.#options;
    try {
      for (const part of await this.#openParts()) await this.#advance(part);
      const isWaiting = await this.#handIn();
      this.#awaySinceMs = null;
      return !isWaiting && (await this.#openParts()).length === 0;
    } catch (error) {
      if (signal.aborted || !(error instanceof ModelError)) throw error;
      const now = clock.monotonic();
      this.#awaySinceMs ??= now;
      if (error.retryable && now - this.#awaySinceMs < outagePatienceMs) {
        onTrouble?.(`${error.message}; waiting until the API takes batches`);
        return false;
      }
      await pause(refusalText(error));
      return true;
    }
  }

  async #openParts(): Promise<BatchPart[]> {
    const open = (await this.#options.ledger.batches.parts()).filter((part) => part.state !== "done");
    const sum = (field: "rows" | "answered") => open.reduce((total, part) => total + part[field], 0);
    this.#out = { parts: open.length, rows: sum("rows"), answered: sum("answered") };
    return open;
  }

  /** Makes parts of fresh rows up to the limits; returns whether rows are left for later. */
  async #handIn(): Promise<boolean> {
    const { job, ledger } = this.#options;
    if (job.settings.batch !== true) return false;
    const { batches } = ledger;
    for (;;) {
      const fresh = await batches.fresh(-1, 1);
      const [first] = fresh;
      // While the table is still being read, more rows may follow.
      if (!first) return (await ledger.job()).isReading;
      if (!(await this.#oneIsAnswered(first))) return true;
      const open = await this.#openParts();
      const rowsOut = this.#out.rows;
      if (open.length >= this.#limits.parts) return true;
      const affordable = (await this.#options.affordableRows?.(rowsOut)) ?? Number.POSITIVE_INFINITY;
      if (affordable < 1) {
        // The rows at the provider may turn out cheaper than estimated.
        if (open.length > 0) return true;
        for (const item of await batches.fresh(-1, 1)) await batches.askSingly(item.rowIndex);
        return true;
      }
      const part = await this.#assign(Math.min(this.#limits.rows, affordable));
      if (part) await this.#advance(part);
    }
  }

  /**
   * A fault that all rows share (a wrong model, an unsupported parameter, a wrong key) is detected by one single call, not
   * by a whole part. That call also measures what a row costs.
   */
  async #oneIsAnswered(first: ItemRecord): Promise<boolean> {
    const { ledger } = this.#options;
    if (this.#asked === null) {
      this.#asked = first.itemId;
      await ledger.batches.askSingly(first.rowIndex);
    }
    const item = await ledger.item(this.#asked);
    return item?.status === "completed" || item?.status === "failed";
  }

  async #assign(mostRows: number): Promise<BatchPart | null> {
    const { ledger, api, newId = () => crypto.randomUUID() } = this.#options;
    const rowIndexes: number[] = [];
    let bytes = 0;
    for (let after = -1; rowIndexes.length < mostRows; ) {
      const page = await ledger.batches.fresh(after, Math.min(PAGE_ROWS, mostRows - rowIndexes.length));
      for (const item of page) {
        bytes += Buffer.byteLength((await batchLine(api, this.#given, item)) ?? "");
        if (bytes > this.#limits.bytes && rowIndexes.length > 0) break;
        rowIndexes.push(item.rowIndex);
      }
      const last = page.at(-1);
      if (!last || rowIndexes.at(-1) !== last.rowIndex) break;
      after = last.rowIndex;
    }
    const id = newId();
    await ledger.batches.assign(id, rowIndexes);
    this.#untried.add(id);
    return (await ledger.batches.parts()).find((part) => part.id === id) ?? null;
  }

  /** Advances a part as many steps as are possible now. */
  async #advance(part: BatchPart): Promise<void> {
    const { api, ledger, signal } = this.#options;
    let { state, fileId, batchId } = part;
    if (state === "assigned") {
      const sought = { name: fileName(part), sinceMs: part.createdAtMs, rows: part.rows };
      const isNew = this.#untried.delete(part.id);
      fileId = (await api.findFile({ ...sought, isNew }, signal)) ?? (await this.#upload(part));
      await ledger.batches.update(part.id, { state: "uploaded", fileId });
      state = "uploaded";
    }
    if (state === "uploaded") {
      const found = await api.find(tagOf(part), part.createdAtMs, signal);
      const batch = found ?? (await api.create(fileId ?? "", tagOf(part), signal));
      batchId = batch.id;
      await ledger.batches.update(part.id, { state: "created", batchId });
      this.#lookMs = FIRST_LOOK_MS;
    }
    const batch = await api.get(batchId ?? "", signal);
    if (batch.done !== part.answered) {
      await ledger.batches.update(part.id, { answered: batch.done });
      this.#lookMs = FIRST_LOOK_MS;
    }
    if (batch.status === "waiting") return;
    if (batch.status === "failed" && NO_ROOM.test(batch.error?.code ?? ""))
      return this.#handInAgain(part, batch);
    await this.#take(part, batch);
  }

  async #upload(part: BatchPart): Promise<string> {
    const { api, ledger, folder, signal } = this.#options;
    const rows = ledger.batches.rows(part.id);
    const file = await writeBatchFile(folder, fileName(part), api, this.#given, rows);
    try {
      return await api.upload(fileName(part), file, signal);
    } finally {
      await rm(file, { force: true });
    }
  }

  /** Submits the same file under another tag at the next poll: by then an earlier batch may have ended. */
  async #handInAgain(part: BatchPart, { error }: BatchState): Promise<void> {
    this.#lookMs = Math.max(this.#lookMs, FIRST_LOOK_MS * 2 ** Math.min(part.tries, 6));
    const why = error?.message ?? null;
    const change = { state: "uploaded", batchId: null, tries: part.tries + 1, error: why } as const;
    await this.#options.ledger.batches.update(part.id, change);
  }

  /** Reads the answers of a batch that has ended. Rows settled before are no longer in the part. */
  async #take(part: BatchPart, batch: BatchState): Promise<void> {
    const { api, ledger, signal, pause } = this.#options;
    const lanes = new Set<Promise<void>>();
    // Reading an answer needs only the tools of its request, and those are the same for all rows of a job.
    const [any] = await firstOf(ledger.batches.rows(part.id));
    if (any) {
      const request = await batchRequest({ ...this.#given, job: withoutImages(this.#given.job) }, any);
      for await (const { id, mark, answer } of api.answers(batch, request, signal)) {
        const rowIndex = rowOfLine(id);
        if (rowIndex === null || (mark !== undefined && mark !== markOf(fileName(part)))) continue;
        const lane: Promise<void> = this.#settle(part.id, rowIndex, answer).finally(() => lanes.delete(lane));
        lane.catch(() => undefined);
        lanes.add(lane);
        if (lanes.size >= SETTLE_LANES) await Promise.race(lanes);
      }
    }
    await Promise.all(lanes);
    const error = batch.status === "completed" ? null : endText(batch);
    await ledger.batches.finish(part.id, error);
    if (batch.status === "cancelled" && !part.cancelAsked) {
      await pause(`${error}; a run from now on asks the rows that it left by single calls`);
    }
  }

  async #settle(
    partId: string,
    rowIndex: number,
    answer: Parameters<typeof judgeBatchAnswer>[0],
  ): Promise<void> {
    const { job, ledger, task, onSettled } = this.#options;
    const item = await ledger.batches.row(partId, rowIndex);
    if (!item) return;
    const given = { id: job.id, common: this.#given.common, check: task.check };
    const verdict: BatchVerdict = await judgeBatchAnswer(answer, item, given);
    if (verdict.type === "report") {
      const settled = await ledger.batches.complete(partId, rowIndex, verdict.report);
      if (settled) onSettled(settled);
    } else if (verdict.type === "unusable") {
      await ledger.batches.giveBack(partId, rowIndex, verdict.failure);
    } else await ledger.batches.release(partId, rowIndex, verdict.usage);
  }

  /** A cancelled job needs no more answers, and requests that the provider has not begun then cost nothing. */
  async #cancelIfAsked(): Promise<void> {
    const { ledger, api, onTrouble } = this.#options;
    const { status } = await ledger.job();
    if (!hasEnded(status)) return;
    const deadline = AbortSignal.timeout(CANCEL_WITHIN_MS);
    for (const part of await this.#openParts()) {
      if (part.batchId === null || part.cancelAsked) continue;
      try {
        await ledger.batches.update(part.id, { cancelAsked: true });
        await api.cancel(part.batchId, deadline);
      } catch (error) {
        onTrouble?.(`batch ${part.batchId} could not be cancelled: ${String(error)}`);
      }
    }
  }
}

/** A longer wait for the provider's answer to a cancellation is not worth it: nothing depends on that answer. */
const CANCEL_WITHIN_MS = 10_000;

function fileName(part: BatchPart): string {
  return `procwire-${part.id}.jsonl`;
}

/** A part that is submitted again is a new batch, with a new tag. */
function tagOf(part: BatchPart): string {
  return part.tries === 1 ? part.id : `${part.id}.${part.tries}`;
}

/** Reading answers does not need the images again. */
function withoutImages(job: JobRecord): JobRecord {
  return { ...job, task: { ...job.task, imageColumns: [] } };
}

function endText(batch: BatchState): string {
  const why = batch.error ? `: ${batch.error.message}` : "";
  return `batch ${batch.id} ${batch.status === "cancelled" ? "was cancelled at the provider" : `has ${batch.status}`}${why}`;
}

function refusalText(error: ModelError): string {
  const advice = error.status === 404 || error.status === 405 ? "; run it again without --batch" : "";
  return `the API takes no batches: ${error.message}${advice}`;
}

async function firstOf<T>(values: AsyncIterable<T>): Promise<T[]> {
  for await (const value of values) return [value];
  return [];
}
