import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { userMessage } from "../../../base/error-message.ts";
import { omitUndefined } from "../../../base/omit-undefined.ts";
import { printableText } from "../../../base/text/printable-text.ts";
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
import { ERROR_CLASSES } from "../../../protocol/console/console-job-schemas.ts";
import { type Command, defineCommand, type PartialValues, printHelp, UsageError } from "../../command.ts";
import {
  checkBatch,
  checkBudget,
  type FanoutRunOptions,
  parseOutput,
  parseRunOptions,
  RUN_FLAGS,
} from "../../options/agent/fanout-options.ts";
import { JOBS_HELP, JOBS_PAGES } from "../../options/agent/jobs-help.ts";
import { OUTPUT_OPTIONS, parseOutputPath } from "../../options/agent/output-path.ts";
import { parseChoice, subcommandError } from "../../options/parse-options.ts";
import { pickFlags } from "../../options/pick-flags.ts";
import { splitOptionsAndCommand } from "../../options/split-command.ts";
import type { Candidate, CompletedWords } from "../../support/candidates.ts";
import {
  coordinatorOptions,
  exportOptions,
  jobOutput,
  openJobStore,
  withFanoutResources,
} from "../../support/fanout-setup.ts";
import { runInterruptible } from "../../support/interruptible-run.ts";

/** Options of all subcommands. A subcommand accepts those of its help page. */
const OPTIONS = {
  ...RUN_FLAGS,
  item: { type: "string", multiple: true },
  class: { type: "string", multiple: true },
  "no-run": { type: "boolean" },
  model: { type: "string" },
  ...OUTPUT_OPTIONS,
  errors: { type: "boolean" },
  "older-than": { type: "string" },
} as const;

type Verb = keyof typeof JOBS_PAGES;

/** Subcommands that take no job. */
const VERBS_WITHOUT_JOB: ReadonlySet<Verb> = new Set(["list", "prune"]);

const verbs = Object.keys(JOBS_PAGES).filter(isVerb);
const subcommands = new Map(
  verbs.map((verb) => [
    verb,
    defineCommand(`jobs ${verb}`, JOBS_PAGES[verb], {
      options: pickFlags(OPTIONS, JOBS_PAGES[verb]),
      complete: VERBS_WITHOUT_JOB.has(verb) ? undefined : jobCandidates,
      run: (values, positionals) => runVerb(verb, values, positionals),
    }),
  ]),
);

export const command: Command = {
  name: "jobs",
  help: JOBS_HELP,
  options: {},
  subcommands: Object.fromEntries(Array.from(subcommands, ([verb, subcommand]) => [verb, async () => subcommand])),

  async run(argv) {
    // Options may precede the subcommand.
    const help = { help: { type: "boolean", short: "h" } } as const;
    const { ownArgs, command: words } = splitOptionsAndCommand(argv, { ...OPTIONS, ...help });
    const [verb, ...rest] = words;
    if (verb === undefined && (argv.includes("--help") || argv.includes("-h"))) return printHelp("jobs", JOBS_HELP);
    const subcommand = verb !== undefined && isVerb(verb) ? subcommands.get(verb) : undefined;
    if (!subcommand) throw subcommandError(verb, verbs);
    return subcommand.run([...ownArgs, ...rest]);
  },
};

function isVerb(name: string): name is Verb {
  return Object.hasOwn(JOBS_PAGES, name);
}

/** Returns the jobs of the database or the jobs directory, newest first. */
async function jobCandidates({ values, positionals }: CompletedWords): Promise<Candidate[]> {
  const run = parseRunOptions(values);
  if (positionals.length > 0) return [];
  if (run.databaseUrl === undefined && !existsSync(jobsDirectory(process.env, process.cwd()))) return [];
  await using store = await openJobStore(run, { waits: false });
  return (await store.list()).map((job) => ({
    word: job.id.slice(0, 8),
    description: `${job.status}: ${job.task.instruction}`,
  }));
}

async function runVerb(verb: Verb, values: PartialValues<typeof OPTIONS>, positionals: string[]): Promise<number> {
  const [idOrPrefix] = positionals;
  const unexpected = positionals[VERBS_WITHOUT_JOB.has(verb) ? 0 : 1];
  if (unexpected !== undefined) throw new UsageError(`unexpected argument \`${unexpected}\``);
  const run = parseRunOptions(values);
  const request: Request = {
    run,
    items: values.item,
    classes: values.class?.flatMap((name) => parseChoice("class", name, ERROR_CLASSES) ?? []),
    skipRun: values["no-run"] ?? false,
    model: values.model,
    output:
      verb === "report"
        ? parseOutputPath(values, [".html", ".htm"])
        : values.errors
          ? parseOutputPath(values, [".csv"])
          : parseOutput(values, run.json && WAITING_VERBS.has(verb)),
    errors: values.errors ?? false,
  };
  await using store = await openJobStore(request.run, { waits: WAITING_VERBS.has(verb) });
  if (verb === "list") return await list(store, request);
  if (verb === "prune") return await prune(store, values["older-than"]);
  if (idOrPrefix === undefined) throw new UsageError(`missing JOB; use \`procwire jobs ${verb} JOB\``);
  if (verb === "rm") return await remove(store, idOrPrefix);
  const opened = await store.open(idOrPrefix);
  if (!opened) throw unknownJob(idOrPrefix);
  await using ledger = opened;
  return await VERBS[verb](ledger, request, store);
}

interface Request {
  run: FanoutRunOptions;
  items: string[] | undefined;
  classes: ErrorClass[] | undefined;
  skipRun: boolean;
  model: string | undefined;
  output: string | undefined;
  errors: boolean;
}

const VERBS: Readonly<
  Record<
    Exclude<Verb, "list" | "prune" | "rm">,
    (ledger: JobLedger, request: Request, store: JobStore) => Promise<number>
  >
> = {
  show,
  watch,
  cancel,
  resume,
  retry,
  export: exportJob,
  report,
};

/** Width of a table if stdout is not a terminal. */
const DEFAULT_COLUMNS = 120;

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
      unreadable.push(`cannot read job ${job.id.slice(0, 8)}: ${userMessage(error)}`);
    }
  }
  if (run.json) {
    for (const listed of summaries) {
      const none = { failures: [], failuresByClass: [], usageByClass: [], batches: [] };
      print(JSON.stringify(fullSummaryFields({ ...listed, ...none })));
    }
  } else print(jobTable(summaries, Date.now(), process.stdout.columns || DEFAULT_COLUMNS));
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
    if (end.type === "aborted") return 130;
    if (end.type === "jobInterrupted") {
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
