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
    /** The worker joined a job, or left it after finishing `rows` rows. */
    joined?(job: JobRecord): void;
    left?(job: JobRecord, rows: number): void;
  };
}

/** Interval between two looks for jobs to join. */
const LOOK_EVERY_MS = 1_000;

/**
 * Works on the rows of all running jobs in a shared store, oldest first, until told to stop. It starts no job and ends
 * one only because of its rows' outcomes; interrupting the worker only releases its rows.
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

/** A job that was stopped and resumed may have other settings, so it is joined again. */
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

/** Works on rows as long as there are any; notifies the listener only when there were some. */
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
  // Interrupting one worker does not stop the others.
  if (end.type === "stopped" && end.reason === INTERRUPTED) return;
  // A fault of this machine (its key, its quota, its route to the API) does not concern the others.
  if (end.type === "stopped" && end.status === "paused" && (await ledger.job()).status === "running") {
    throw new Error(`this worker cannot go on: ${end.reason}`);
  }
  // Only the coordinator knows whether more rows follow those read so far.
  if (end.type === "finished" && (await ledger.job()).isReading) return;
  await setFinalStatus(ledger, end);
}
