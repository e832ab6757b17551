import { openModelApi } from "../../agent/agent-config.ts";
import { userMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import type { Row } from "../../fanout/job.ts";
import { DEFAULT_OUTAGE_TIMEOUT_MS } from "../../fanout/job-settings.ts";
import type { JobStore } from "../../fanout/ledger/job-ledger.ts";
import { jobsDirectory } from "../../fanout/ledger/jobs-directory.ts";
import type { ExportOptions } from "../../fanout/output/export-results.ts";
import type { JobListener } from "../../fanout/output/job-listener.ts";
import { JsonlJobListener } from "../../fanout/output/jsonl-job-listener.ts";
import { TerminalJobListener } from "../../fanout/output/terminal-job-listener.ts";
import { rowProcessPrefix } from "../../fanout/row/row-process-prefix.ts";
import type { CoordinatorOptions } from "../../fanout/run/coordinator.ts";
import { createRowCaller, type RowResources } from "../../fanout/run/row-resources.ts";
import { type NetworkWords, parseNetworkWords } from "../../tools/network/network-rules.ts";
import type { FanoutRunOptions } from "../options/agent/fanout-options.ts";
import { openHostPool } from "../options/host-options.ts";

/** Opens the resources that rows need, calls `work` and closes them. */
export async function withFanoutResources<T>(
  options: FanoutRunOptions,
  signal: AbortSignal,
  work: (resources: RowResources) => Promise<T>,
): Promise<T> {
  const { idleTimeoutSeconds } = options;
  const api = openModelApi(process.env, {
    kind: options.api,
    headers: options.headers,
    idleTimeoutMs: idleTimeoutSeconds === undefined ? undefined : idleTimeoutSeconds * 1000,
  });
  const outageTimeoutMs = readOutageTimeoutMs(options);
  await using hosts = await openHostPool({
    ...options.hosts,
    outageTimeoutMs,
    signal,
    onWarning: (message) => warnTo("hosts")(new Error(message)),
  });
  try {
    return await work({
      ...createRowCaller(api, {
        width: options.concurrency,
        requestsPerMinute: options.requestsPerMinute,
        tokensPerMinute: options.tokensPerMinute,
        outageTimeoutMs,
      }),
      concurrency: options.concurrency,
      openTools: async (job, { rowIndex, row }, rowSignal) => {
        if (job.task.tools !== "exec") return null;
        const words = rowNetworkWords(row, options.networkColumn);
        return hosts.openTools(rowSignal, rowProcessPrefix(job.id, rowIndex), words);
      },
      signal,
    });
  } finally {
    api.close();
  }
}

/** Returns the words that narrow the network of a row, or null if its cell is empty. */
function rowNetworkWords(row: Row, column: string | undefined): NetworkWords | null {
  if (column === undefined) return null;
  const cell = row[column];
  if (cell === undefined) throw new Error(`--network-column \`${column}\`: the table has no such column`);
  const words = String(cell)
    .split(/\s+/)
    .filter((word) => word !== "");
  return parseNetworkWords(words, `column \`${column}\``);
}

export function coordinatorOptions(
  options: FanoutRunOptions,
  resources: RowResources,
  store: JobStore,
  model: string,
): CoordinatorOptions {
  return {
    ...resources,
    store,
    jobsHome: jobsDirectory(process.env, process.cwd()),
    export: exportOptions(options, model),
    budget: { tokens: options.budgetTokens, usd: options.budgetUsd },
    prices: options.prices,
    failFast: options.failFast,
    listener: jobOutput(options.json),
  };
}

export function exportOptions({ export: given, prices }: FanoutRunOptions, model: string): ExportOptions {
  const { costs, ...rest } = given;
  return { ...rest, costs: costs ? { price: prices.priceOf(model) } : undefined };
}

export function jobOutput(json: boolean): JobListener {
  return json ? new JsonlJobListener(process.stdout) : new TerminalJobListener(process.stderr);
}

/**
 * Opens the jobs of this host, or of a database that several hosts share. With `waits` or `--outage-timeout` it waits for a
 * database that is unreachable at the start; otherwise it rejects at once.
 */
export async function openJobStore(
  options: Pick<FanoutRunOptions, "databaseUrl" | "heartbeatSeconds" | "outageTimeoutSeconds">,
  { waits, signal }: { waits: boolean; signal?: AbortSignal | undefined },
): Promise<JobStore> {
  const outageTimeoutMs = readOutageTimeoutMs(options);
  if (options.databaseUrl !== undefined) {
    const { PostgresStore } = await import("../../fanout/ledger/postgres/postgres-store.ts");
    return PostgresStore.open({
      databaseUrl: options.databaseUrl,
      heartbeatSeconds: options.heartbeatSeconds,
      outageTimeoutMs,
      waitToOpen: waits || options.outageTimeoutSeconds !== undefined,
      signal,
      onError: warnTo("database"),
    });
  }
  const { SqliteStore } = await import("../../fanout/ledger/sqlite/sqlite-store.ts");
  return new SqliteStore(jobsDirectory(process.env, process.cwd()), {
    outageTimeoutMs,
    signal,
    onError: warnTo("ledger"),
  });
}

function readOutageTimeoutMs({ outageTimeoutSeconds }: Pick<FanoutRunOptions, "outageTimeoutSeconds">): number {
  return outageTimeoutSeconds === undefined ? DEFAULT_OUTAGE_TIMEOUT_MS : outageTimeoutSeconds * 1000;
}

/** Returns a callback that prints warnings and does not stop the command. */
export function warnTo(where: string): (error: unknown) => void {
  return (error) => {
    const message = userMessage(error);
    process.stderr.write(`${where}: ${printableText(message)}\n`);
  };
}
