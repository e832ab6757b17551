import { openModelApi } from "../../agent/agent-config.ts";
import { messageOf } from "../../base/error-message.ts";
import { visibleText } from "../../base/printable-text.ts";
import type { JobStore } from "../../fanout/ledger/job-ledger.ts";
import { jobsHome } from "../../fanout/ledger/jobs-directory.ts";
import type { ExportOptions } from "../../fanout/output/export-results.ts";
import type { JobListener } from "../../fanout/output/job-listener.ts";
import { JsonJobOutput } from "../../fanout/output/jsonl-job-listener.ts";
import { HumanJobOutput } from "../../fanout/output/terminal-job-listener.ts";
import { rowProcessPrefix } from "../../fanout/row/row-process-prefix.ts";
import type { CoordinatorOptions } from "../../fanout/run/coordinator.ts";
import { createRowCaller, type RowResources } from "../../fanout/run/row-resources.ts";
import type { RunOptions } from "../options/fanout-options.ts";
import { openHostPool } from "../options/host-options.ts";

/** How long the API, the ledger or all hosts may be away. */
const DEFAULT_OUTAGE_PATIENCE_SECONDS = 600;

/** What running rows takes, put together from the command line; closed when the work is done. */
export async function withRowResources<T>(
  options: RunOptions,
  signal: AbortSignal,
  work: (resources: RowResources) => Promise<T>,
): Promise<T> {
  const { idleTimeoutSeconds, outagePatienceSeconds } = options;
  const api = openModelApi(process.env, {
    kind: options.api,
    headers: options.headers,
    idleTimeoutMs: idleTimeoutSeconds === undefined ? undefined : idleTimeoutSeconds * 1000,
  });
  const outagePatienceMs = (outagePatienceSeconds ?? DEFAULT_OUTAGE_PATIENCE_SECONDS) * 1000;
  await using hosts = await openHostPool({
    ...options.hosts,
    outagePatienceMs,
    signal,
    onTrouble: (message) => tellTrouble("hosts")(new Error(message)),
  });
  try {
    return await work({
      ...createRowCaller(api, {
        width: options.concurrency,
        requestsPerMinute: options.requestsPerMinute,
        tokensPerMinute: options.tokensPerMinute,
        outagePatienceMs,
      }),
      concurrency: options.concurrency,
      openTools: async (job, rowIndex, rowSignal) =>
        job.task.tools === "exec" ? hosts.openTools(rowSignal, rowProcessPrefix(job.id, rowIndex)) : null,
      signal,
    });
  } finally {
    api.close();
  }
}

export function coordinatorOptions(
  options: RunOptions,
  resources: RowResources,
  store: JobStore,
  model: string,
): CoordinatorOptions {
  return {
    ...resources,
    store,
    jobsHome: jobsHome(process.env, process.cwd()),
    export: exportOptions(options, model),
    budget: { tokens: options.budgetTokens, usd: options.budgetUsd },
    prices: options.prices,
    failFast: options.failFast,
    listener: jobOutput(options.json),
  };
}

export function exportOptions({ export: given, prices }: RunOptions, model: string): ExportOptions {
  const { costs, ...rest } = given;
  return { ...rest, costs: costs ? { price: prices.priceOf(model) } : undefined };
}

export function jobOutput(json: boolean): JobListener {
  return json ? new JsonJobOutput(process.stdout) : new HumanJobOutput(process.stderr);
}

/**
 * Jobs of this machine, or of a database that several machines share. `waits`: the command is worth waiting for although the
 * database is away already; others wait when --outage-patience is given.
 */
export async function openJobStore(
  options: Pick<RunOptions, "databaseUrl" | "heartbeatSeconds" | "outagePatienceSeconds">,
  { waits, signal }: { waits: boolean; signal?: AbortSignal | undefined },
): Promise<JobStore> {
  const outagePatienceMs = (options.outagePatienceSeconds ?? DEFAULT_OUTAGE_PATIENCE_SECONDS) * 1000;
  if (options.databaseUrl !== undefined) {
    const { PostgresStore } = await import("../../fanout/ledger/postgres/postgres-store.ts");
    return PostgresStore.open({
      databaseUrl: options.databaseUrl,
      heartbeatSeconds: options.heartbeatSeconds,
      outagePatienceMs,
      waitToOpen: waits || options.outagePatienceSeconds !== undefined,
      signal,
      onError: tellTrouble("database"),
    });
  }
  const { SqliteStore } = await import("../../fanout/ledger/sqlite/sqlite-store.ts");
  return new SqliteStore(jobsHome(process.env, process.cwd()), {
    outagePatienceMs,
    signal,
    onError: tellTrouble("ledger"),
  });
}

/** Reports trouble that the command goes on after. */
export function tellTrouble(where: string): (error: unknown) => void {
  return (error) => {
    const message = messageOf(error);
    process.stderr.write(`${where}: ${visibleText(message)}\n`);
  };
}
