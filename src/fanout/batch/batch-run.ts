import { ModelError } from "../../agent/api/model-error.ts";
import { batchTag } from "../../agent/batch/anthropic-batches.ts";
import type { BatchApi, BatchState } from "../../agent/batch/batch-api.ts";
import { type Clock, sleep } from "../../async/clock.ts";
import type { OutputDirectory } from "../../files/output-directory.ts";
import { hasEnded, type ItemRecord, type JobRecord } from "../job.ts";
import type { BatchGroup } from "../ledger/batch-ledger.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { CompiledTask } from "../row/compiled-task.ts";
import { commonPrompt } from "../row/row-request.ts";
import { classifyBatchResult } from "./batch-answer.ts";
import { type BatchTask, batchLine, batchRequest, rowOfLine, writeBatchFile } from "./batch-file.ts";

export interface BatchRunOptions {
  job: JobRecord;
  ledger: JobLedger;
  task: CompiledTask;
  api: BatchApi;
  /** Directory for the file of a batch group during its upload. */
  directory: OutputDirectory;
  clock: Clock;
  limits?: BatchGroupLimits | undefined;
  /** Returns how many more rows the budget allows in addition to those at the provider. Absent: any number. */
  affordableRows?: ((rowsAtProvider: number) => Promise<number>) | undefined;
  /** Maximum outage of the API before the job pauses. */
  outageTimeoutMs: number;
  onFinished(item: ItemRecord): void;
  onWarning?: ((message: string) => void) | undefined;
  /** Pauses the job, because the API takes no batches or a batch was cancelled at the provider. */
  pause(reason: string): Promise<void>;
}

export interface BatchGroupLimits {
  rows: number;
  bytes: number;
  /** Maximum number of batch groups at the provider. */
  groups: number;
}

/** Below the provider limits (50,000 requests, 200 MB), so that an upload is fast and a failure affects few rows. */
const DEFAULT_GROUP_LIMITS: BatchGroupLimits = { rows: 20_000, bytes: 100_000_000, groups: 8 };

/** First poll interval of open batches. Most batches take minutes to hours; batches of a few rows take seconds. */
const FIRST_POLL_INTERVAL_MS = 500;
const MAX_POLL_INTERVAL_MS = 30_000;
/** Rows finished concurrently while results are read. */
const MAX_CONCURRENT_ROWS = 8;
/** Rows per page while a batch group is assembled. */
const PAGE_ROWS = 500;

/** Error codes of a provider without capacity for another batch. */
const NO_CAPACITY = /token_limit|rate_limit|quota_exceeded|too_many/;

/**
 * Submits the rows of a job as batches and reads their results. The run records each step after it succeeds. Before it
 * repeats a step, it searches the provider for the effect: a file by name, a batch by tag.
 */
export class BatchRun {
  #options: BatchRunOptions;
  /** Aborts when the run ends for any reason; batches continue at the provider. */
  #signal = new AbortController().signal;
  #batchTask: BatchTask;
  #limits: BatchGroupLimits;
  #pollMs = FIRST_POLL_INTERVAL_MS;
  #downSinceMs: number | null = null;
  /** Item id of the row that a single call answers before the first batch. */
  #probeItemId: string | null = null;
  /** Ids of batch groups that this process created and has not submitted yet. */
  #unsubmitted = new Set<string>();
  #submitted = { groups: 0, rows: 0, answered: 0 };

  constructor(options: BatchRunOptions) {
    this.#options = options;
    this.#batchTask = { job: options.job, task: options.task, common: commonPrompt(options.job) };
    this.#limits = options.limits ?? DEFAULT_GROUP_LIMITS;
  }

  /** Rows at the provider; null if there are none. */
  get submittedRows(): { groups: number; rows: number; answered: number } | null {
    return this.#submitted.groups === 0 ? null : this.#submitted;
  }

  /**
   * Advances batches until no row is left for them, the signal aborts or the job pauses. Resolves at once if another
   * process submits the batches of this job.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { ledger, clock } = this.#options;
    this.#signal = signal;
    while (!signal.aborted) {
      if (!(await ledger.batches.acquireLeadership())) {
        this.#submitted = { groups: 0, rows: 0, answered: 0 };
        return;
      }
      if (await this.#step()) return;
      await sleep(clock, this.#pollMs, signal).catch(() => undefined);
      this.#pollMs = Math.min(MAX_POLL_INTERVAL_MS, this.#pollMs * 1.5);
    }
    await this.#cancelIfRequested();
  }

  /** Advances all batch groups once. Waits during an outage of the API; a rejection pauses the job. */
  async #step(): Promise<boolean> {
    const { clock, outageTimeoutMs, onWarning, pause } = this.#options;
    try {
      for (const group of await this.#openGroups()) await this.#advance(group);
      const isWaiting = await this.#submit();
      this.#downSinceMs = null;
      return !isWaiting && (await this.#openGroups()).length === 0;
    } catch (error) {
      if (this.#signal.aborted || !(error instanceof ModelError)) throw error;
      const now = clock.monotonic();
      this.#downSinceMs ??= now;
      if (error.retryable && now - this.#downSinceMs < outageTimeoutMs) {
        onWarning?.(`${error.message}; waiting until the API takes batches`);
        return false;
      }
      await pause(refusalText(error));
      return true;
    }
  }

  async #openGroups(): Promise<BatchGroup[]> {
    const open = (await this.#options.ledger.batches.groups()).filter((group) => group.state !== "done");
    const sum = (field: "rows" | "answered") => open.reduce((total, group) => total + group[field], 0);
    this.#submitted = { groups: open.length, rows: sum("rows"), answered: sum("answered") };
    return open;
  }

  /** Creates batch groups of new rows up to the limits. Returns whether rows are left for later. */
  async #submit(): Promise<boolean> {
    const { job, ledger } = this.#options;
    if (job.settings.batch !== true) return false;
    const { batches } = ledger;
    for (;;) {
      const [first] = await batches.newRows(-1, 1);
      // While the table is still being read, more rows may follow.
      if (!first) return (await ledger.job()).isReading;
      if (!(await this.#hasResult(first))) return true;
      const open = await this.#openGroups();
      const rowsAtProvider = this.#submitted.rows;
      if (open.length >= this.#limits.groups) return true;
      const affordable = (await this.#options.affordableRows?.(rowsAtProvider)) ?? Number.POSITIVE_INFINITY;
      if (affordable < 1) {
        // While rows are at the provider, the run waits, because they may cost less than estimated.
        if (open.length === 0) await batches.moveToSingleCalls(first.rowIndex);
        return true;
      }
      const group = await this.#assign(Math.min(this.#limits.rows, affordable));
      if (group) await this.#advance(group);
    }
  }

  /**
   * Reports whether a single call has answered the first row. That call detects faults that all rows share (wrong
   * model, unsupported parameter, wrong key) before a whole batch group fails. It also measures the usage of a row.
   */
  async #hasResult(first: ItemRecord): Promise<boolean> {
    const { ledger } = this.#options;
    if (this.#probeItemId === null) {
      this.#probeItemId = first.itemId;
      await ledger.batches.moveToSingleCalls(first.rowIndex);
    }
    const item = await ledger.item(this.#probeItemId);
    return item?.status === "completed" || item?.status === "failed";
  }

  async #assign(maxRows: number): Promise<BatchGroup | null> {
    const { ledger, api } = this.#options;
    const rowIndexes: number[] = [];
    let bytes = 0;
    for (let after = -1; rowIndexes.length < maxRows; ) {
      const page = await ledger.batches.newRows(after, Math.min(PAGE_ROWS, maxRows - rowIndexes.length));
      for (const item of page) {
        bytes += Buffer.byteLength((await batchLine(api, this.#batchTask, item)) ?? "");
        if (bytes > this.#limits.bytes && rowIndexes.length > 0) break;
        rowIndexes.push(item.rowIndex);
      }
      const last = page.at(-1);
      if (!last || rowIndexes.at(-1) !== last.rowIndex) break;
      after = last.rowIndex;
    }
    const id = crypto.randomUUID();
    await ledger.batches.assign(id, rowIndexes);
    this.#unsubmitted.add(id);
    return (await ledger.batches.groups()).find((group) => group.id === id) ?? null;
  }

  /** Advances a batch group by all steps that are possible now. */
  async #advance(group: BatchGroup): Promise<void> {
    const { api, ledger } = this.#options;
    const signal = this.#signal;
    let { state, fileId, batchId } = group;
    if (state === "assigned") {
      const expectedFile = { name: fileName(group), sinceMs: group.createdAtMs, rows: group.rows };
      const isNew = this.#unsubmitted.delete(group.id);
      const usedIds = new Set((await ledger.batches.groups()).flatMap((other) => other.fileId ?? []));
      const found = await api.findFile({ ...expectedFile, isNew, usedIds }, signal);
      fileId = found?.id ?? (await this.#upload(group));
      if (fileId === null) return ledger.batches.finish(group.id, "no row of the batch group could be read");
      await ledger.batches.update(group.id, { state: "uploaded", fileId, isAssumed: found?.isAssumed ?? false });
      state = "uploaded";
    }
    if (state === "uploaded") {
      const found = await api.find(tagOf(group), group.createdAtMs, signal);
      const batch = found ?? (await api.create(fileId ?? "", tagOf(group), signal));
      batchId = batch.id;
      await ledger.batches.update(group.id, { state: "created", batchId });
      this.#pollMs = FIRST_POLL_INTERVAL_MS;
    }
    const batch = await api.get(batchId ?? "", signal);
    if (batch.done !== group.answered) {
      await ledger.batches.update(group.id, { answered: batch.done });
      this.#pollMs = FIRST_POLL_INTERVAL_MS;
    }
    if (batch.status === "waiting") return;
    if (batch.status === "failed" && NO_CAPACITY.test(batch.error?.code ?? "")) return this.#resubmit(group, batch);
    await this.#applyResults(group, batch);
  }

  /** Uploads the file of a batch group. Returns null if all its rows are unreadable; single calls report why. */
  async #upload(group: BatchGroup): Promise<string | null> {
    const { api, ledger, directory } = this.#options;
    const rows = ledger.batches.rows(group.id);
    await using file = await writeBatchFile(directory, api, this.#batchTask, rows);
    if ((await file.handle.stat()).size === 0) return null;
    return await api.upload(fileName(group), file.path, this.#signal);
  }

  /** Submits the same file with another tag at the next poll; an earlier batch may have ended by then. */
  async #resubmit(group: BatchGroup, { error }: BatchState): Promise<void> {
    this.#pollMs = Math.max(this.#pollMs, FIRST_POLL_INTERVAL_MS * 2 ** Math.min(group.tries, 6));
    const reason = error?.message ?? null;
    const change = { state: "uploaded", batchId: null, tries: group.tries + 1, error: reason } as const;
    await this.#options.ledger.batches.update(group.id, change);
  }

  /** Searches the batch of a group again. `fileId` stays, so that the search skips the batch found first. */
  async #searchAgain({ id, tries }: BatchGroup): Promise<void> {
    this.#pollMs = FIRST_POLL_INTERVAL_MS;
    const change = { state: "assigned", batchId: null, answered: 0, tries: tries + 1 } as const;
    await this.#options.ledger.batches.update(id, change);
  }

  /** Reads the results of an ended batch. Rows that finished before are no longer in the group. */
  async #applyResults(group: BatchGroup, batch: BatchState): Promise<void> {
    const { api, ledger, pause } = this.#options;
    const tasks = new Set<Promise<void>>();
    // Decoding needs only the tools of the request, which are equal for all rows of a job. It needs no images.
    const anyRow = await readFirst(ledger.batches.rows(group.id));
    if (anyRow) {
      const { job } = this.#batchTask;
      const textJob = { ...job, task: { ...job.task, imageColumns: [] } };
      const request = await batchRequest({ ...this.#batchTask, job: textJob }, anyRow);
      for await (const { id, tag, answer } of api.readResults(batch, request, this.#signal)) {
        if (tag !== undefined && tag !== batchTag(fileName(group))) {
          // Of another client. The second mistake leaves the rows to single calls.
          if (group.tries === 1) return this.#searchAgain(group);
          break;
        }
        const rowIndex = rowOfLine(id);
        if (rowIndex === null) continue;
        const task: Promise<void> = this.#applyResult(group.id, rowIndex, answer).finally(() => tasks.delete(task));
        task.catch(() => undefined);
        tasks.add(task);
        if (tasks.size >= MAX_CONCURRENT_ROWS) await Promise.race(tasks);
      }
    }
    await Promise.all(tasks);
    const error = batch.status === "completed" ? null : endText(batch);
    await ledger.batches.finish(group.id, error);
    if (batch.status === "cancelled" && !group.cancelRequested) {
      await pause(`${error}; a run from now on asks the rows that it left by single calls`);
    }
  }

  async #applyResult(
    groupId: string,
    rowIndex: number,
    answer: Parameters<typeof classifyBatchResult>[0],
  ): Promise<void> {
    const { job, ledger, task, onFinished } = this.#options;
    const item = await ledger.batches.row(groupId, rowIndex);
    if (!item) return;
    const context = { id: job.id, common: this.#batchTask.common, check: task.check };
    const action = await classifyBatchResult(answer, item, context);
    if (action.type === "report") {
      const finished = await ledger.batches.complete(groupId, rowIndex, action.report);
      if (finished) onFinished(finished);
    } else if (action.type === "unusable") {
      await ledger.batches.requeue(groupId, rowIndex, action.failure);
    } else await ledger.batches.release(groupId, rowIndex, action.usage);
  }

  /** Cancels the batches of a cancelled job, so that requests that the provider has not begun cost nothing. */
  async #cancelIfRequested(): Promise<void> {
    const { ledger, api, onWarning } = this.#options;
    if (!hasEnded((await ledger.job()).status)) return;
    const deadline = AbortSignal.timeout(CANCEL_TIMEOUT_MS);
    for (const group of await this.#openGroups()) {
      if (group.batchId === null || group.cancelRequested) continue;
      if (group.isAssumed) {
        onWarning?.(`batch ${group.batchId} is not cancelled: it may belong to another client`);
        continue;
      }
      try {
        await ledger.batches.update(group.id, { cancelRequested: true });
        await api.cancel(group.batchId, deadline);
      } catch (error) {
        onWarning?.(`batch ${group.batchId} could not be cancelled: ${String(error)}`);
      }
    }
  }
}

/** Timeout of a cancellation; nothing depends on its response. */
const CANCEL_TIMEOUT_MS = 10_000;

function fileName(group: BatchGroup): string {
  return `procwire-${group.id}.jsonl`;
}

/** Returns the tag of the batch. A batch group that is submitted again is a new batch with a new tag. */
function tagOf(group: BatchGroup): string {
  return group.tries === 1 ? group.id : `${group.id}.${group.tries}`;
}

function endText(batch: BatchState): string {
  const reason = batch.error ? `: ${batch.error.message}` : "";
  return `batch ${batch.id} ${batch.status === "cancelled" ? "was cancelled at the provider" : `has ${batch.status}`}${reason}`;
}

function refusalText(error: ModelError): string {
  const advice = error.status === 404 || error.status === 405 ? "; run it again without --batch" : "";
  return `the API takes no batches: ${error.message}${advice}`;
}

async function readFirst<T>(values: AsyncIterable<T>): Promise<T | undefined> {
  for await (const value of values) return value;
  return undefined;
}
