import path from "node:path";
import { parseArgs } from "node:util";
import { CANCELLED_BY_USER, type ErrorClass, type JobSettings } from "../fanout/job.ts";
import type { JobLedger, JobStore } from "../fanout/ledger/job-ledger.ts";
import { ERROR_CLASSES } from "../fanout/ledger/record-codec.ts";
import type { PriceTable } from "../fanout/money/price-table.ts";
import { exportCsv, exportErrors, isSameFile } from "../fanout/output/export.ts";
import { type ItemDetails, itemFields, itemReport } from "../fanout/output/item-report.ts";
import { exitCodeOf } from "../fanout/output/job-listener.ts";
import { jobReport, jobTable } from "../fanout/output/job-report.ts";
import { fullSummaryFields, summarize } from "../fanout/output/summary.ts";
import { watchJob } from "../fanout/output/watch-job.ts";
import { compileTask } from "../fanout/row/compiled-task.ts";
import { rowInstructions, rowMessage } from "../fanout/row/row-prompt.ts";
import { coordinateJob } from "../fanout/run/coordinator.ts";
import { visibleText } from "../protocol/visible-text.ts";
import { type Command, UsageError } from "./command.ts";
import { checkBudget, parseRunOptions, RUN_FLAGS, RUN_HELP, type RunOptions } from "./fanout-options.ts";
import { coordinatorOptions, jobOutput, openJobStore, withRowResources } from "./fanout-setup.ts";
import { runToExit } from "./run-to-exit.ts";

const HELP = `Usage: procwire jobs list
       procwire jobs show JOB [--item ID]
       procwire jobs watch JOB
       procwire jobs cancel JOB
       procwire jobs resume JOB [options]
       procwire jobs retry JOB [--class CLASS]... [--item ID]... [--mark-only] [options]
       procwire jobs export JOB [--output FILE] [--errors] [--explode] [--escape-formulas]

Looks at fan-out jobs and changes them. JOB is an id or the beginning of one. Jobs are those of this folder
(.procwire/jobs, or $PROCWIRE_HOME/jobs), or of a database.

list     all jobs, newest first
show     one job: its task, how far it is, why rows failed; or one of its rows with its prompt and all that was said
watch    follows a job that another process runs, to its end
cancel   stops a job; what is finished stays, the rest stays pending
resume   goes on with the rows that are left
retry    asks failed rows again, all of them or those of a class, and rows that are still pending; with --item only the
         rows that are named; the rows behind a sample are left alone; classes are ${ERROR_CLASSES.join(", ")}
export   writes the results, or the failures, of any job at any time

For all: --json, --database-url URL or --database-url-file PATH or PROCWIRE_DATABASE_URL. For resume and retry also:
${RUN_HELP}`;

export const command: Command = {
  name: "jobs",
  summary: "list, show, retry, cancel, export or watch fan-out jobs",

  async run(argv) {
    const { values, positionals } = parseArgs({
      args: argv,
      allowPositionals: true,
      options: {
        ...RUN_FLAGS,
        item: { type: "string", multiple: true },
        class: { type: "string", multiple: true },
        "mark-only": { type: "boolean" },
        output: { type: "string" },
        errors: { type: "boolean" },
      },
    });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    const [verb, idOrPrefix, ...rest] = positionals;
    if (verb === undefined)
      throw new UsageError("say what to do: list, show, watch, cancel, resume, retry or export");
    if (rest.length > 0) throw new UsageError(`unexpected \`${rest[0]}\``);
    const request: Request = {
      run: parseRunOptions(values),
      items: values.item,
      classes: values.class?.map(parseClass),
      markOnly: values["mark-only"] ?? false,
      output: values.output,
      errors: values.errors ?? false,
    };
    await using store = await openJobStore(request.run);
    if (verb === "list") return await list(store, request);
    const act = Object.hasOwn(VERBS, verb) ? VERBS[verb] : undefined;
    if (!act)
      throw new UsageError(
        `unknown \`${verb}\`; expected list, show, watch, cancel, resume, retry or export`,
      );
    if (idOrPrefix === undefined) throw new UsageError(`which job? \`procwire jobs ${verb} JOB\``);
    const opened = await store.open(idOrPrefix);
    if (!opened) throw new Error(`there is no job \`${idOrPrefix}\`; \`procwire jobs list\` shows them`);
    await using ledger = opened;
    return await act(ledger, request, store);
  },
};

interface Request {
  run: RunOptions;
  items: string[] | undefined;
  classes: ErrorClass[] | undefined;
  markOnly: boolean;
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
};

async function list(store: JobStore, { run }: Request): Promise<number> {
  const summaries = [];
  for (const job of await store.list()) {
    const opened = await store.open(job.id);
    if (!opened) continue;
    await using ledger = opened;
    summaries.push({ job, counts: await ledger.counts(), price: run.prices.priceOf(job.task.model) });
  }
  if (run.json) {
    for (const listed of summaries) {
      const none = { failures: [], failuresByClass: [], usageByClass: [] };
      print(JSON.stringify(fullSummaryFields({ ...listed, ...none })));
    }
  } else print(jobTable(summaries, Date.now()));
  return 0;
}

async function show(ledger: JobLedger, { run, items }: Request): Promise<number> {
  for (const itemId of items ?? []) {
    const details = await itemDetails(ledger, itemId, run.prices);
    print(run.json ? JSON.stringify(itemFields(details)) : itemReport(details));
  }
  if (items === undefined) {
    const summary = await summarize(ledger, run.prices);
    print(run.json ? JSON.stringify(fullSummaryFields(summary)) : jobReport(summary));
  }
  return 0;
}

async function itemDetails(ledger: JobLedger, itemId: string, prices: PriceTable): Promise<ItemDetails> {
  const item = await ledger.item(itemId);
  if (!item) throw new Error(`job ${ledger.jobId.slice(0, 8)} has no item \`${itemId}\``);
  const job = await ledger.job();
  const { template } = await compileTask(job.task);
  const prompt = {
    instructions: rowInstructions(job.task.schema),
    message: rowMessage(job, item, template.render(item.row)),
  };
  return { item, attempts: await ledger.attempts(itemId), prompt, price: prices.priceOf(job.task.model) };
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
  const rows = await ledger.retryFailed({
    ...(request.classes ? { errorClasses: request.classes } : {}),
    ...(request.items ? { itemIds: request.items } : {}),
  });
  if (rows > 0) {
    const reason = `${rows} failed rows are to be asked again`;
    await ledger.setStatus("paused", ["completed", "completed_with_errors", "failed", "cancelled"], reason);
  }
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
  { run }: Request,
  store: JobStore,
  wanted: Pick<JobSettings, "rowLimit" | "onlyItems">,
): Promise<number> {
  const { task, settings, outputPath } = await ledger.job();
  checkBudget(run, task.model);
  return runToExit((signal) =>
    withRowResources(run, signal, async (resources) => {
      const end = await coordinateJob(coordinatorOptions(run, resources, store), {
        jobId: ledger.jobId,
        task: await compileTask(task),
        settings: {
          maxAttempts: run.maxAttempts ?? settings.maxAttempts,
          rowTimeoutMs: run.rowTimeoutMs ?? settings.rowTimeoutMs,
          ...wanted,
          reuse: settings.reuse !== false && run.reuse,
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
  const file = path.resolve(request.output ?? (request.errors ? "errors.csv" : job.outputPath));
  if (await isSameFile(file, job.inputPath)) {
    throw new Error(`the output ${file} is the input; it would be overwritten`);
  }
  const rows = request.errors
    ? await exportErrors(ledger, job, file)
    : await exportCsv(ledger, job, file, request.run.export);
  process.stderr.write(`${rows} rows written to ${file}\n`);
  return 0;
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
