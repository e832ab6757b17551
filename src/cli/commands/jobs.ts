import { rm } from "node:fs/promises";
import path from "node:path";
import { messageOf } from "../../base/error-message.ts";
import { visibleText } from "../../base/printable-text.ts";
import { CANCELLED_BY_USER, type ErrorClass, hasEnded, type JobSettings } from "../../fanout/job.ts";
import type { JobLedger, JobStore } from "../../fanout/ledger/job-ledger.ts";
import { jobsHome } from "../../fanout/ledger/jobs-directory.ts";
import { askAgain } from "../../fanout/ledger/retry-failed.ts";
import { exportErrors, exportResults, isSameFile } from "../../fanout/output/export-results.ts";
import { itemFields, itemReport } from "../../fanout/output/item-report.ts";
import { exitCodeOf } from "../../fanout/output/job-listener.ts";
import { jobReport, jobTable } from "../../fanout/output/job-report.ts";
import { fullSummaryFields, summarize } from "../../fanout/output/job-summary.ts";
import { watchJob } from "../../fanout/output/watch-job.ts";
import { STDOUT } from "../../fanout/output/write-table.ts";
import { compileTask } from "../../fanout/row/compiled-task.ts";
import { coordinateJob } from "../../fanout/run/coordinator.ts";
import { readItemDetails } from "../../fanout/view/item-details.ts";
import { ERROR_CLASSES } from "../../protocol/console-job-schemas.ts";
import { type Command, UsageError } from "../command.ts";
import { RUN_HELP } from "../options/fanout-help.ts";
import {
  checkBatch,
  checkBudget,
  parseRunOptions,
  RUN_FLAGS,
  type RunOptions,
} from "../options/fanout-options.ts";
import { parseOptions } from "../options/parse-options.ts";
import {
  coordinatorOptions,
  exportOptions,
  jobOutput,
  openJobStore,
  withRowResources,
} from "../support/fanout-setup.ts";
import { runToExit } from "../support/interruptible-run.ts";

const HELP = `Usage: procwire jobs list
       procwire jobs show JOB [--item ID]
       procwire jobs watch JOB
       procwire jobs cancel JOB
       procwire jobs resume JOB [--model NAME] [options]
       procwire jobs retry JOB [--class CLASS]... [--item ID]... [--mark-only] [--model NAME] [options]
       procwire jobs export JOB [--output FILE] [--errors] [--explode] [--costs] [--escape-formulas]
       procwire jobs report JOB [--output FILE]
       procwire jobs rm JOB
       procwire jobs prune [--older-than DAYS]

Looks at fan-out jobs and changes them. JOB is an id or the beginning of one. Jobs are those of this folder
(.procwire/jobs, or $PROCWIRE_HOME/jobs), or of a database.

list     all jobs, newest first
show     one job: its task, how far it is, why rows failed; or one of its rows with its prompt and all that was said
watch    follows a job that another process runs, to its end
cancel   stops a job; what is finished stays, the rest stays pending
resume   goes on with the rows that are left
retry    asks failed rows again, all of them or those of a class, and rows that are still pending; with --item only the
         rows that are named; the rows behind a sample are left alone; --model asks another model from now on; the
         classes are ${ERROR_CLASSES.join(", ")}
export   writes the results, or the failures, of any job at any time
report   writes one HTML page about the job that needs nothing else: its rows, failures by class, cost, filters
rm       forgets a job and its answers, also one whose ledger cannot be read; not the results that were written
prune    forgets the jobs that ended more than DAYS (default 30) ago, and what processes that died have left

For all: --json, --database-url URL or --database-url-file PATH or PROCWIRE_DATABASE_URL, and --outage-patience SECONDS to
wait for a database that is away; watch, resume and retry wait without it. For resume and retry also:
${RUN_HELP}`;

export const command: Command = {
  name: "jobs",
  summary: "list, show, retry, cancel, export, report, watch or remove fan-out jobs",

  async run(argv) {
    const { values, positionals } = parseOptions({
      args: argv,
      allowPositionals: true,
      options: {
        ...RUN_FLAGS,
        item: { type: "string", multiple: true },
        class: { type: "string", multiple: true },
        "mark-only": { type: "boolean" },
        model: { type: "string" },
        output: { type: "string" },
        errors: { type: "boolean" },
        "older-than": { type: "string" },
      },
    });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    const [verb, idOrPrefix, ...rest] = positionals;
    if (verb === undefined) throw new UsageError(`say what to do: ${VERB_NAMES}`);
    if (rest.length > 0) throw new UsageError(`unexpected \`${rest[0]}\``);
    const request: Request = {
      run: parseRunOptions(values),
      items: values.item,
      classes: values.class?.map(parseClass),
      markOnly: values["mark-only"] ?? false,
      model: values.model,
      output: values.output,
      errors: values.errors ?? false,
    };
    await using store = await openJobStore(request.run, { waits: WAITING_VERBS.has(verb) });
    if (verb === "list") return await list(store, request);
    if (verb === "prune") return await prune(store, values["older-than"]);
    if (verb === "rm" && idOrPrefix !== undefined) return await remove(store, idOrPrefix);
    const act = Object.hasOwn(VERBS, verb) ? VERBS[verb] : undefined;
    if (!act && verb !== "rm") throw new UsageError(`unknown \`${verb}\`; expected ${VERB_NAMES}`);
    if (idOrPrefix === undefined || !act) throw new UsageError(`which job? \`procwire jobs ${verb} JOB\``);
    const opened = await store.open(idOrPrefix);
    if (!opened) throw noJob(idOrPrefix);
    await using ledger = opened;
    return await act(ledger, request, store);
  },
};

interface Request {
  run: RunOptions;
  items: string[] | undefined;
  classes: ErrorClass[] | undefined;
  markOnly: boolean;
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

/** Somebody has left these running for long; what the others tell is wanted now. */
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
      // A damaged page may lie anywhere in it.
      unreadable.push(`job ${job.id.slice(0, 8)} cannot be read: ${messageOf(error)}`);
    }
  }
  if (run.json) {
    for (const listed of summaries) {
      const none = { failures: [], failuresByClass: [], usageByClass: [], batches: [] };
      print(JSON.stringify(fullSummaryFields({ ...listed, ...none })));
    }
  } else print(jobTable(summaries, Date.now()));
  for (const reason of unreadable) process.stderr.write(`${visibleText(reason)}\n`);
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
  return runToExit(async (signal) => {
    const listener = jobOutput(run.json);
    const end = await watchJob(ledger, listener, signal);
    if (end.type === "interrupted") return 130;
    if (end.type === "abandoned") {
      throw new Error(
        `no process works on job ${ledger.jobId.slice(0, 8)}; \`procwire jobs resume ${ledger.jobId.slice(0, 8)}\` goes on with it`,
      );
    }
    const summary = await summarize(ledger, run.prices);
    print(
      run.json
        ? JSON.stringify({ type: "job.completed", ...fullSummaryFields(summary) })
        : jobReport(summary),
    );
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
  const rows = await askAgain(ledger, { errorClasses: request.classes, itemIds: request.items });
  if (!request.run.json) process.stderr.write(`${rows} failed rows are pending again\n`);
  if (request.markOnly) return 0;
  // A job that was asked for a sample only stays with it: these rows were asked for, not the rest of the table.
  const { settings } = await ledger.job();
  return work(ledger, request, store, { rowLimit: settings.rowLimit, onlyItems: request.items });
}

function resume(ledger: JobLedger, request: Request, store: JobStore): Promise<number> {
  return work(ledger, request, store, { rowLimit: null });
}

async function work(
  ledger: JobLedger,
  { run, model }: Request,
  store: JobStore,
  wanted: Pick<JobSettings, "rowLimit" | "onlyItems">,
): Promise<number> {
  const { task, settings, outputPath } = await ledger.job();
  checkBudget(run, task.model);
  checkBatch(run, task);
  return runToExit((signal) =>
    withRowResources(run, signal, async (resources) => {
      const end = await coordinateJob(coordinatorOptions(run, resources, store, task.model), {
        jobId: ledger.jobId,
        task: await compileTask(task),
        settings: {
          maxAttempts: run.maxAttempts ?? settings.maxAttempts,
          rowTimeoutMs: run.rowTimeoutMs ?? settings.rowTimeoutMs,
          ...wanted,
          reuse: settings.reuse !== false && run.reuse,
          batch: run.batch || settings.batch,
          model: model ?? settings.model,
          fallbackModel: run.fallbackModel ?? settings.fallbackModel,
          serviceTier: run.serviceTier ?? settings.serviceTier,
        },
        outputPath,
        resumed: true,
      });
      return exitCodeOf(end);
    }),
  );
}

async function exportJob(ledger: JobLedger, request: Request): Promise<number> {
  const job = await ledger.job();
  const named = request.output ?? (request.errors ? "errors.csv" : job.outputPath);
  const file = named === STDOUT ? named : path.resolve(named);
  if (file !== STDOUT && (await isSameFile(file, job.inputPath))) {
    throw new Error(`the output ${file} is the input; it would be overwritten`);
  }
  const rows = request.errors
    ? await exportErrors(ledger, job, file)
    : await exportResults(ledger, job, file, exportOptions(request.run, job.task.model));
  process.stderr.write(`${rows} rows written to ${file}\n`);
  return 0;
}

async function report(ledger: JobLedger, { run, output }: Request): Promise<number> {
  const { writeHtmlReport } = await import("../../fanout/output/html-report.ts");
  const summary = await summarize(ledger, run.prices);
  const file = path.resolve(output ?? `${summary.job.name}.html`);
  const rows = await writeHtmlReport(ledger, summary, file);
  process.stderr.write(`a page with ${rows} rows written to ${file}\n`);
  return 0;
}

async function remove(store: JobStore, idOrPrefix: string): Promise<number> {
  const id = await store.remove(idOrPrefix);
  if (id === null) throw noJob(idOrPrefix);
  await removeFolder(id);
  process.stderr.write(`job ${id.slice(0, 8)} is forgotten\n`);
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
    await removeFolder(job.id);
    jobs++;
  }
  const leftovers = await store.removeLeftovers();
  process.stderr.write(`${jobs} jobs are forgotten, ${leftovers} leftovers removed\n`);
  return 0;
}

/** A month is longer than most people remember why they asked. */
const DEFAULT_PRUNE_DAYS = 30;

/** What lies beside the ledger, wherever that is kept. */
function removeFolder(jobId: string): Promise<void> {
  return rm(path.join(jobsHome(process.env, process.cwd()), jobId), { recursive: true, force: true });
}

function noJob(idOrPrefix: string): Error {
  return new Error(`there is no job \`${idOrPrefix}\`; \`procwire jobs list\` shows them`);
}

function parseClass(value: string): ErrorClass {
  const known = ERROR_CLASSES.find((candidate) => candidate === value);
  if (known === undefined)
    throw new UsageError(`unknown --class \`${value}\`; expected ${ERROR_CLASSES.join(", ")}`);
  return known;
}

function print(text: string): void {
  // Cells and errors come from outside; a file or a program gets them as they are.
  process.stdout.write(`${process.stdout.isTTY ? visibleText(text) : text}\n`);
}
