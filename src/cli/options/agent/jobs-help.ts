import { ERROR_CLASSES } from "../../../protocol/console/console-job-schemas.ts";
import type { HelpPage, HelpRow } from "../../help/help-page.ts";
import {
  CONNECT_NOTE,
  DATABASE_ROWS,
  MKDIR_ROW,
  PRICES_ROW,
  RESULT_ROWS,
  ROW_EXIT_CODES,
  RUN_ROWS,
} from "./fanout-help.ts";

/** Options of all subcommands of `procwire jobs`. */
const STORE_ROWS: readonly HelpRow[] = [["--json", "print JSON lines"], PRICES_ROW, ...DATABASE_ROWS];
const STORE_OUTAGE_ROW: HelpRow = ["--outage-timeout SECONDS", "wait SECONDS for an unreachable database (default: 0)"];
const WATCH_OUTAGE_ROW: HelpRow = [
  "--outage-timeout SECONDS",
  "wait SECONDS for an unreachable database (default: 600)",
];
const JOBS_ROWS = { Jobs: [...STORE_ROWS, STORE_OUTAGE_ROW] };
const OUTPUT_ROW: HelpRow = ["--output FILE", "results file, .csv, .tsv or .jsonl, or - for stdout"];
const MODEL_ROW: HelpRow = ["--model NAME", "use another model from now on"];

export const JOBS_HELP: HelpPage = {
  usage: ["SUBCOMMAND [JOB] [OPTIONS]"],
  details: `JOB is an id or an unambiguous prefix. Jobs are stored in .procwire/jobs of this directory ($PROCWIRE_JOBS or
    $PROCWIRE_HOME/jobs if set), or in a database.`,
  options: {},
  examples: [
    ["procwire jobs list", "all jobs of this directory"],
    ["procwire jobs show 3f2a", "task, progress and failures of one job"],
    ["procwire jobs retry 3f2a", "run its failed rows again"],
  ],
};

/** Help pages of the subcommands of `procwire jobs`. Each subcommand accepts the options of its page. */
export const JOBS_PAGES = {
  list: {
    usage: ["[OPTIONS]"],
    options: JOBS_ROWS,
    examples: [
      ["procwire jobs list", "all jobs of this directory"],
      ["procwire jobs list --json", "for programs"],
      ["procwire jobs list --database-url postgres://db/jobs", "all jobs of a database"],
    ],
  },
  show: {
    usage: ["JOB [OPTIONS]"],
    details: "Prints task, progress and failures of the job; with --item, one row with its prompt and transcript.",
    options: { Selection: [["--item ID", "show only this row; repeatable"]], ...JOBS_ROWS },
    examples: [
      ["procwire jobs show 3f2a", "a job by a prefix of its id"],
      ["procwire jobs show 3f2a --item row-13", "row 13 with its transcript"],
      ["procwire jobs show 3f2a --json", "for programs"],
    ],
  },
  watch: {
    usage: ["JOB [OPTIONS]"],
    options: { Jobs: [...STORE_ROWS, WATCH_OUTAGE_ROW] },
    examples: [
      ["procwire jobs watch 3f2a", "follow a job that another process runs"],
      ["procwire jobs watch 3f2a --json", "print its events as JSON lines"],
      ["procwire jobs watch 3f2a --database-url postgres://db/jobs", "a job of a database"],
    ],
    exitCodes: "0 the job completed, 1 it failed or was cancelled, 130 interrupted",
  },
  cancel: {
    usage: ["JOB [OPTIONS]"],
    details: "Finished rows stay finished. `procwire jobs resume` continues the job.",
    options: JOBS_ROWS,
    examples: [
      ["procwire jobs cancel 3f2a", "stop a job"],
      ["procwire jobs cancel 3f2a --database-url postgres://db/jobs", "stop a job and its workers"],
      ["procwire jobs cancel 3f2a --outage-timeout 60", "wait for an unreachable database"],
    ],
  },
  resume: {
    usage: ["JOB [OPTIONS]"],
    details: "Settings that no option sets stay as they were.",
    options: { Job: [OUTPUT_ROW, MKDIR_ROW, ...RESULT_ROWS, MODEL_ROW], ...RUN_ROWS },
    connection: true,
    notes: CONNECT_NOTE,
    examples: [
      ["procwire jobs resume 3f2a", "continue with the same settings"],
      ["procwire jobs resume 3f2a --concurrency 64 --budget-usd 5", "faster, within a budget"],
      ["procwire jobs resume 3f2a --model gpt-5-mini --output rest.csv", "with another model and results file"],
    ],
    exitCodes: ROW_EXIT_CODES,
  },
  retry: {
    usage: ["JOB [OPTIONS]"],
    details: "Rows outside of a sample stay pending.",
    options: {
      Selection: [
        ["--class CLASS", `retry only failures of this class; repeatable (${ERROR_CLASSES.join(", ")})`],
        ["--item ID", "retry only this row; repeatable"],
        ["--no-run", "mark the rows as pending without executing them"],
      ],
      Job: [OUTPUT_ROW, MKDIR_ROW, ...RESULT_ROWS, MODEL_ROW],
      ...RUN_ROWS,
    },
    connection: true,
    notes: CONNECT_NOTE,
    examples: [
      ["procwire jobs retry 3f2a", "run all failed rows again"],
      ["procwire jobs retry 3f2a --class timeout --row-timeout 3600", "only rows that took too long, with more time"],
      ["procwire jobs retry 3f2a --item row-13 --model gpt-5", "one row, with another model"],
    ],
    exitCodes: ROW_EXIT_CODES,
  },
  export: {
    usage: ["JOB [OPTIONS]"],
    options: {
      Output: [
        [OUTPUT_ROW[0], `${OUTPUT_ROW[1]} (default: the file of the job; with --errors, errors.csv)`],
        MKDIR_ROW,
        ["--errors", "write the failures instead of the results"],
        ...RESULT_ROWS,
      ],
      ...JOBS_ROWS,
    },
    examples: [
      ["procwire jobs export 3f2a --output results.csv --explode", "one column per result field"],
      ["procwire jobs export 3f2a --errors --output errors.csv", "the failures"],
      ["procwire jobs export 3f2a --output - --costs", "to stdout, with the cost of each row"],
    ],
  },
  report: {
    usage: ["JOB [OPTIONS]"],
    details: "The page is self-contained: rows, failures by class, cost, filters.",
    options: { Output: [["--output FILE", "the page, .html (default: NAME.html)"], MKDIR_ROW], ...JOBS_ROWS },
    examples: [
      ["procwire jobs report 3f2a", "write the page to this directory"],
      ["procwire jobs report 3f2a --output report.html", "to a file"],
      ["procwire jobs report 3f2a --prices prices.json", "with other prices"],
    ],
  },
  rm: {
    usage: ["JOB [OPTIONS]"],
    details: "Also deletes a job whose ledger is unreadable.",
    options: JOBS_ROWS,
    examples: [
      ["procwire jobs rm 3f2a", "delete a job"],
      ["procwire jobs rm 3f2a --database-url postgres://db/jobs", "delete a job of a database"],
      ["procwire jobs rm 3f2a --database-url-file url", "with the database URL in a file"],
    ],
  },
  prune: {
    usage: ["[OPTIONS]"],
    details: "Also removes files of crashed processes.",
    options: {
      Selection: [["--older-than DAYS", "delete jobs that ended more than DAYS ago (default: 30)"]],
      ...JOBS_ROWS,
    },
    examples: [
      ["procwire jobs prune", "delete jobs that ended more than 30 days ago"],
      ["procwire jobs prune --older-than 7", "more than a week ago"],
      ["procwire jobs prune --older-than 0 --database-url postgres://db/jobs", "all ended jobs of a database"],
    ],
  },
} as const satisfies Readonly<Record<string, HelpPage>>;
