import { type Clock, sleep, systemClock } from "../../async/clock.ts";
import type { JobRecord } from "../job.ts";
import type { JobLedger, JobStore } from "../ledger/job-ledger.ts";
import type { JobListener } from "../output/job-listener.ts";
import { compileTask } from "../row/compiled-task.ts";
import type { RowAgent } from "../row/row-outcome.ts";
import { setFinalStatus } from "./coordinator.ts";
import { type RowResources, rowAgentFor } from "./row-resources.ts";
import { scheduleRows } from "./scheduler.ts";

export interface WorkerOptions extends RowResources {
  store: JobStore;
  /** Whether to exit when no job is running. */
  exitWhenIdle: boolean;
  listener?: Pick<JobListener, "retrying"> & {
    /** Called when the worker joins a job, and when it leaves after finishing `rows` rows. */
    joined?(job: JobRecord): void;
    left?(job: JobRecord, rows: number): void;
  };
}

/** Poll interval for jobs to join. */
const POLL_INTERVAL_MS = 1_000;

/**
 * Executes rows of all running jobs in a shared store, oldest job first, until the signal aborts. A worker starts no
 * job and ends one only because of the outcomes of its rows. Interrupting a worker only releases its rows.
 */
export async function runWorker(options: WorkerOptions): Promise<void> {
  const { store, signal, clock = systemClock } = options;
  const joined = new Map<string, JoinedJob>();
  try {
    while (!signal.aborted) {
      const running = (await store.list()).filter((job) => job.status === "running").reverse();
      for (const job of running) {
        if (signal.aborted) break;
        const membership = await findOrJoin(options, joined, job);
        if (membership) await work(options, membership, clock);
      }
      if (options.exitWhenIdle && running.length === 0) return;
      await sleep(clock, POLL_INTERVAL_MS, signal).catch(() => undefined);
    }
  } finally {
    for (const { ledger } of joined.values()) await ledger[Symbol.asyncDispose]();
  }
}

interface JoinedJob {
  job: JobRecord;
  ledger: JobLedger;
  rowAgent: RowAgent;
}

/** Returns the joined job. A job that was resumed is opened again, because its settings may differ. */
async function findOrJoin(
  options: WorkerOptions,
  joined: Map<string, JoinedJob>,
  job: JobRecord,
): Promise<JoinedJob | null> {
  const known = joined.get(job.id);
  if (known?.job.updatedAtMs === job.updatedAtMs) return known;
  await known?.ledger[Symbol.asyncDispose]();
  const membership = await join(options, job);
  if (membership) joined.set(job.id, membership);
  else joined.delete(job.id);
  return membership;
}

async function join(options: WorkerOptions, job: JobRecord): Promise<JoinedJob | null> {
  const ledger = await options.store.open(job.id);
  if (!ledger) return null;
  await ledger.acquireRun({ join: true });
  return { job, ledger, rowAgent: rowAgentFor(options, ledger, job, await compileTask(job.task)) };
}

/** Executes rows while there are any. Notifies the listener only if there were some. */
async function work(options: WorkerOptions, { job, ledger, rowAgent }: JoinedJob, clock: Clock): Promise<void> {
  const { listener = {} } = options;
  let rows = 0;
  let hasJoined = false;
  const end = await scheduleRows({
    ...options,
    job: await ledger.job(),
    ledger,
    rowAgent: (lease, rowSignal) => {
      if (!hasJoined) listener.joined?.(job);
      hasJoined = true;
      return rowAgent(lease, rowSignal);
    },
    clock,
    exitWhenIdle: true,
    onFinished: () => {
      rows++;
    },
    onRetry: (retry) => listener.retrying?.(retry),
  });
  if (hasJoined) listener.left?.(job, rows);
  // Interrupting one worker does not stop the others.
  if (end.type === "stopped" && end.cause === "interrupted") return;
  // A fault of this host (its key, quota or route to the API) does not affect other workers.
  if (end.type === "stopped" && end.status === "paused" && (await ledger.job()).status === "running") {
    throw new Error(`this worker cannot continue: ${end.reason}`);
  }
  // Only the coordinator knows whether more rows follow those read so far.
  if (end.type === "finished" && (await ledger.job()).isReading) return;
  await setFinalStatus(ledger, end);
}
