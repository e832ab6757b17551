import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import { INTERRUPTED, type JobRecord } from "../job.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { JobListener } from "../output/job-listener.ts";
import { compileTask } from "../row/compiled-task.ts";
import type { RowAgent } from "../row/row-outcome.ts";
import { setFinalStatus } from "./coordinator.ts";
import { type RowResources, rowAgentFor } from "./row-resources.ts";
import { scheduleRows } from "./scheduler.ts";

export interface WorkerOptions extends RowResources {
  store: JobStore;
  /** Leave when there is no job left that runs. */
  exitWhenIdle: boolean;
  listener?: Pick<JobListener, "retrying"> & {
    /** Joined a job, or left it with so many rows done here. */
    joined?(job: JobRecord): void;
    left?(job: JobRecord, rows: number): void;
  };
}

/** Between two looks for jobs to join. */
const LOOK_EVERY_MS = 1_000;

/**
 * Works on the rows of whatever jobs run in a shared store, oldest first, until told to stop. It starts no job and ends
 * none but by what the rows themselves say; breaking it off only gives its rows back.
 */
export async function runWorker(options: WorkerOptions): Promise<void> {
  const { store, signal, clock = systemClock } = options;
  const joined = new Map<string, Membership>();
  try {
    while (!signal.aborted) {
      const running = (await store.list()).filter((job) => job.status === "running").reverse();
      for (const job of running) {
        if (signal.aborted) break;
        const membership = await member(options, joined, job);
        if (membership) await work(options, membership, clock);
      }
      if (options.exitWhenIdle && running.length === 0) return;
      await sleep(clock, LOOK_EVERY_MS, signal).catch(() => undefined);
    }
  } finally {
    for (const { ledger } of joined.values()) await ledger[Symbol.asyncDispose]();
  }
}

interface Membership {
  job: JobRecord;
  ledger: JobLedger;
  rowAgent: RowAgent;
}

/** A job that was stopped and gone on with may have other settings: it is joined anew. */
async function member(
  options: WorkerOptions,
  joined: Map<string, Membership>,
  job: JobRecord,
): Promise<Membership | null> {
  const known = joined.get(job.id);
  if (known?.job.updatedAtMs === job.updatedAtMs) return known;
  await known?.ledger[Symbol.asyncDispose]();
  const membership = await join(options, job);
  if (membership) joined.set(job.id, membership);
  else joined.delete(job.id);
  return membership;
}

async function join(options: WorkerOptions, job: JobRecord): Promise<Membership | null> {
  const ledger = await options.store.open(job.id);
  if (!ledger) return null;
  await ledger.beginRun({ join: true });
  return { job, ledger, rowAgent: rowAgentFor(options, ledger, job, await compileTask(job.task)) };
}

/** Takes rows as long as there are any; tells of it only when there were some. */
async function work(
  options: WorkerOptions,
  { job, ledger, rowAgent }: Membership,
  clock: Clock,
): Promise<void> {
  const { listener = {}, signal } = options;
  let rows = 0;
  let told = false;
  const end = await scheduleRows({
    job: await ledger.job(),
    ledger,
    rowAgent: (claim, rowSignal) => {
      if (!told) listener.joined?.(job);
      told = true;
      return rowAgent(claim, rowSignal);
    },
    limiter: options.limiter,
    concurrency: options.concurrency,
    clock,
    signal,
    leaveWhenIdle: true,
    onSettled: () => {
      rows++;
    },
    onRetry: (retry) => listener.retrying?.(retry),
  });
  if (told) listener.left?.(job, rows);
  // A worker that is told to end does not stop the others.
  if (end.type === "stopped" && end.reason === INTERRUPTED) return;
  // What keeps this machine from working (its key, its quota, its way to the API) says nothing about the others.
  if (end.type === "stopped" && end.status === "paused" && (await ledger.job()).status === "running") {
    throw new Error(`this worker cannot go on: ${end.reason}`);
  }
  // The coordinator alone knows what follows the rows that were read so far.
  if (end.type === "finished" && (await ledger.job()).isReading) return;
  await setFinalStatus(ledger, end);
}
