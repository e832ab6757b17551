import { rm } from "node:fs/promises";
import path from "node:path";
import { errorMessage } from "../../../base/error-message.ts";
import { omitUndefined } from "../../../base/omit-undefined.ts";
import { printableText } from "../../../base/printable-text.ts";
import { CANCELLED_BY_USER, checkJobId, type ErrorClass, hasEnded } from "../../../fanout/job.ts";
import { type JobSettings, resumedJobSettings } from "../../../fanout/job-settings.ts";
import type { JobLedger, JobStore } from "../../../fanout/ledger/job-ledger.ts";
import { jobsDirectory } from "../../../fanout/ledger/jobs-directory.ts";
import { retryFailedItems } from "../../../fanout/ledger/retry-failed.ts";
import { exportErrors, exportResults, isSameFile } from "../../../fanout/output/export-results.ts";
import { itemFields, itemReport } from "../../../fanout/output/item-report.ts";
import { exitCodeOf } from "../../../fanout/output/job-listener.ts";
import { jobReport, jobTable } from "../../../fanout/output/job-report.ts";
import { fullSummaryFields, summarize } from "../../../fanout/output/job-summary.ts";
import { readStoredOutputPath } from "../../../fanout/output/stored-output-path.ts";
import { watchJob } from "../../../fanout/output/watch-job.ts";
import { openOutput, STDOUT } from "../../../fanout/output/write-table.ts";
import { compileTask } from "../../../fanout/row/compiled-task.ts";
import { coordinateJob } from "../../../fanout/run/coordinator.ts";
import { readItemDetails } from "../../../fanout/view/item-details.ts";
import { OutputFile } from "../../../files/output-file.ts";
import { ERROR_CLASSES } from "../../../protocol/console-job-schemas.ts";
import { type Command, defineCommand, UsageError } from "../../command.ts";
import { RUN_HELP } from "../../options/fanout-help.ts";
import {
  checkBatch,
  checkBudget,
  type FanoutRunOptions,
  parseOutput,
  parseRunOptions,
  RUN_FLAGS,
} from "../../options/fanout-options.ts";
import { parseChoice } from "../../options/parse-options.ts";
import {
  coordinatorOptions,
  exportOptions,
  jobOutput,
  openJobStore,
  withFanoutResources,
} from "../../support/fanout-setup.ts";
import { runInterruptible } from "../../support/interruptible-run.ts";

const HELP = `Usage: procwire jobs list
       procwire jobs show JOB [--item ID]
       procwire jobs watch JOB
       procwire jobs cancel JOB
       procwire jobs resume JOB [--output FILE] [--model NAME] [OPTIONS]
       procwire jobs retry JOB [--class CLASS]... [--item ID]... [--no-run] [--output FILE] [--model NAME] [OPTIONS]
       procwire jobs export JOB [--output FILE] [--errors] [--explode] [--costs] [--escape-formulas]
       procwire jobs report JOB [--output FILE]
       procwire jobs rm JOB
       procwire jobs prune [--older-than DAYS]

Show and manage fan-out jobs. JOB is an id or an unambiguous prefix. Jobs are stored in .procwire/jobs of this directory
($PROCWIRE_HOME/jobs if set), or in a database.

Subcommands:
  list    print all jobs, newest first
  show    print one job: task, progress, failures; with --item one row with its prompt and transcript
  watch   follow a running job until it ends
  cancel  stop a job; finished rows stay finished, the others stay pending
  resume  execute the pending rows
  retry   execute failed and pending rows again; rows outside of a sample stay pending
  export  write the results, or the failures, of a job
  report  write one self-contained HTML page: rows, failures by class, cost, filters
  rm      delete a job and its answers, also if its ledger is unreadable; result files stay
  prune   delete jobs that ended more than DAYS ago (default: 30), and files of crashed processes

Selection:
  --class CLASS  retry only failures of this class; repeatable
                 (${ERROR_CLASSES.join(", ")})
  --item ID      show or retry only this row; repeatable
  --model NAME   use another model from now on
  --no-run       mark the rows as pending without executing them

--json, --database-url, --database-url-file and --outage-timeout apply to all subcommands. Only watch, resume and retry wait
for an unreachable database without --outage-timeout. The other options apply to resume and retry.

${RUN_HELP}`;

export const command: Command = defineCommand({
  help: HELP,
  options: {
    ...RUN_FLAGS,
    item: { type: "string", multiple: true },
    class: { type: "string", multiple: true },
    "no-run": { type: "boolean" },
    model: { type: "string" },
    output: { type: "string" },
    errors: { type: "boolean" },
    "older-than": { type: "string" },
  },

  async run(values, [verb, idOrPrefix, ...rest]) {
    if (verb === undefined) throw new UsageError(`give a subcommand: ${VERB_NAMES}`);
    if (rest.length > 0) throw new UsageError(`unexpected argument \`${rest[0]}\``);
    const run = parseRunOptions(values);
    const request: Request = {
      run,
      items: values.item,
      classes: values.class?.flatMap((name) => parseChoice("class", name, ERROR_CLASSES) ?? []),
      skipRun: values["no-run"] ?? false,
      model: values.model,
      output: parseOutput(values.output, run.json && WAITING_VERBS.has(verb)),
      errors: values.errors ?? false,
    };
    await using store = await openJobStore(request.run, { waits: WAITING_VERBS.has(verb) });
    if (verb === "list") return await list(store, request);
    if (verb === "prune") return await prune(store, values["older-than"]);
    if (verb === "rm" && idOrPrefix !== undefined) return await remove(store, idOrPrefix);
    const act = Object.hasOwn(VERBS, verb) ? VERBS[verb] : undefined;
    if (!act && verb !== "rm") throw new UsageError(`unknown subcommand \`${verb}\`; expected ${VERB_NAMES}`);
    if (idOrPrefix === undefined || !act) throw new UsageError(`missing JOB; use \`procwire jobs ${verb} JOB\``);
    const opened = await store.open(idOrPrefix);
    if (!opened) throw unknownJob(idOrPrefix);
    await using ledger = opened;
    return await act(ledger, request, store);
  },
});

interface Request {
  run: FanoutRunOptions;
  items: string[] | undefined;
  classes: ErrorClass[] | undefined;
  skipRun: boolean;
  model: string | undefined;
  output: string | undefined;
  errors: boolean;
}

const VERBS: Record<string, (ledger: JobLedger, request: Request, store: JobStore) => Promise<number>> = {
  show,
  watch,
  cancel,
  resume,
  retry,
  export: exportJob,
  report,
};

const VERB_NAMES = "list, show, watch, cancel, resume, retry, export, report, rm or prune";

/** Commands that run for long and wait for an unreachable database. The others fail at once. */
const WAITING_VERBS: ReadonlySet<string> = new Set(["watch", "resume", "retry"]);

async function list(store: JobStore, { run }: Request): Promise<number> {
  const summaries = [];
  const unreadable = (await store.unreadable()).map(({ reason }) => reason);
  for (const job of await store.list()) {
    try {
      const opened = await store.open(job.id);
      if (!opened) continue;
      await using ledger = opened;
      const price = run.prices.priceOf(job.task.model);
      summaries.push({ job, counts: await ledger.counts(), price });
    } catch (error) {
      // A damaged ledger can fail at any read, so all reads are inside of the `try`.
      unreadable.push(`cannot read job ${job.id.slice(0, 8)}: ${errorMessage(error)}`);
    }
  }
  if (run.json) {
    for (const listed of summaries) {
      const none = { failures: [], failuresByClass: [], usageByClass: [], batches: [] };
      print(JSON.stringify(fullSummaryFields({ ...listed, ...none })));
    }
  } else print(jobTable(summaries, Date.now()));
  for (const reason of unreadable) process.stderr.write(`${printableText(reason)}\n`);
  return 0;
}

async function show(ledger: JobLedger, { run, items }: Request): Promise<number> {
  for (const itemId of items ?? []) {
    const details = await readItemDetails(ledger, itemId, run.prices);
    if (!details) throw new Error(`job ${ledger.jobId.slice(0, 8)} has no item \`${itemId}\``);
    print(run.json ? JSON.stringify(itemFields(details)) : itemReport(details));
  }
  if (items === undefined) {
    const summary = await summarize(ledger, run.prices);
    print(run.json ? JSON.stringify(fullSummaryFields(summary)) : jobReport(summary));
  }
  return 0;
}

function watch(ledger: JobLedger, { run }: Request): Promise<number> {
  return runInterruptible(async (signal) => {
    const listener = jobOutput(run.json);
    const end = await watchJob(ledger, listener, signal);
    if (end.type === "interrupted") return 130;
    if (end.type === "abandoned") {
      throw new Error(
        `no process works on job ${ledger.jobId.slice(0, 8)}; \`procwire jobs resume ${ledger.jobId.slice(0, 8)}\` continues it`,
      );
    }
    const summary = await summarize(ledger, run.prices);
    print(run.json ? JSON.stringify({ type: "job.completed", ...fullSummaryFields(summary) }) : jobReport(summary));
    return end.job.status === "completed" ? 0 : 1;
  });
}

async function cancel(ledger: JobLedger): Promise<number> {
  const id = ledger.jobId.slice(0, 8);
  if (!(await ledger.setStatus("cancelled", ["pending", "running", "paused"], CANCELLED_BY_USER))) {
    throw new Error(`job ${id} is ${(await ledger.job()).status} and cannot be cancelled`);
  }
  print(`job ${id} is cancelled`);
  return 0;
}

async function retry(ledger: JobLedger, request: Request, store: JobStore): Promise<number> {
  const rows = await retryFailedItems(ledger, { errorClasses: request.classes, itemIds: request.items });
  if (!request.run.json) process.stderr.write(`${rows} failed rows are pending again\n`);
  if (request.skipRun) return 0;
  // A job limited to a sample stays limited: the user requested these rows, not the rest of the table.
  const { settings } = await ledger.job();
  return work(ledger, request, store, { rowLimit: settings.rowLimit, onlyItems: request.items });
}

function resume(ledger: JobLedger, request: Request, store: JobStore): Promise<number> {
  return work(ledger, request, store, { rowLimit: null });
}

async function work(
  ledger: JobLedger,
  { run, model, output }: Request,
  store: JobStore,
  wanted: Pick<JobSettings, "rowLimit" | "onlyItems">,
): Promise<number> {
  const { task, settings } = await ledger.job();
  const outputPath = output ?? (await readStoredOutputPath(ledger, jobsHome()));
  checkBudget(run, task.model);
  checkBatch(run, task);
  return runInterruptible((signal) =>
    withFanoutResources(run, signal, async (resources) => {
      const end = await coordinateJob(coordinatorOptions(run, resources, store, task.model), {
        jobId: ledger.jobId,
        task: await compileTask(task),
        settings: resumedJobSettings(settings, {
          ...run.settings,
          ...wanted,
          ...omitUndefined({ model }),
        }),
        outputPath,
        resumed: true,
      });
      return exitCodeOf(end);
    }),
  );
}

async function exportJob(ledger: JobLedger, request: Request): Promise<number> {
  const job = await ledger.job();
  const file =
    request.output ?? (request.errors ? path.resolve("errors.csv") : await readStoredOutputPath(ledger, jobsHome()));
  if (file !== STDOUT && (await isSameFile(file, job.inputPath))) {
    throw new Error(`--output ${file}: is the input file, which would be overwritten`);
  }
  await using output = await openOutput(file);
  const rows = request.errors
    ? await exportErrors(ledger, job, output)
    : await exportResults(ledger, job, output, exportOptions(request.run, job.task.model));
  process.stderr.write(`${rows} rows written to ${file}\n`);
  return 0;
}

async function report(ledger: JobLedger, { run, output }: Request): Promise<number> {
  const { writeHtmlReport } = await import("../../../fanout/output/html-report.ts");
  const summary = await summarize(ledger, run.prices);
  const file = output ?? path.resolve(`${summary.job.name}.html`);
  await using page = await OutputFile.open(file);
  const rows = await writeHtmlReport(ledger, summary, page);
  process.stderr.write(`a page with ${rows} rows written to ${file}\n`);
  return 0;
}

async function remove(store: JobStore, idOrPrefix: string): Promise<number> {
  const id = await store.remove(idOrPrefix);
  if (id === null) throw unknownJob(idOrPrefix);
  await removeJobDirectory(id);
  process.stderr.write(`job ${id.slice(0, 8)} is deleted\n`);
  return 0;
}

async function prune(store: JobStore, olderThan: string | undefined): Promise<number> {
  if (olderThan !== undefined && !/^\d+$/.test(olderThan)) {
    throw new UsageError(`invalid --older-than \`${olderThan}\`; expected a number of days`);
  }
  const days = olderThan === undefined ? DEFAULT_PRUNE_DAYS : Number(olderThan);
  const limitMs = Date.now() - days * 24 * 3_600_000;
  let jobs = 0;
  for (const job of await store.list()) {
    if (!hasEnded(job.status) || (job.completedAtMs ?? job.updatedAtMs) > limitMs) continue;
    await store.remove(job.id);
    await removeJobDirectory(job.id);
    jobs++;
  }
  const staleFiles = await store.removeStaleFiles();
  process.stderr.write(`${jobs} jobs deleted, ${staleFiles} stale files removed\n`);
  return 0;
}

/** Default age of pruned jobs, in days. Users rarely need a job after a month. */
const DEFAULT_PRUNE_DAYS = 30;

/** Removes the directory of a job. A Postgres ledger is elsewhere and stays. */
function removeJobDirectory(jobId: string): Promise<void> {
  return rm(path.join(jobsHome(), checkJobId(jobId)), { recursive: true, force: true });
}

function jobsHome(): string {
  return jobsDirectory(process.env, process.cwd());
}

function unknownJob(idOrPrefix: string): Error {
  return new Error(`unknown job \`${idOrPrefix}\`; \`procwire jobs list\` shows them`);
}

function print(text: string): void {
  // Cells and errors may contain escape sequences. A file or a pipe gets them unchanged.
  process.stdout.write(`${process.stdout.isTTY ? printableText(text) : text}\n`);
}
