import { DEFAULT_MODEL } from "../../../agent/agent-config.ts";
import { PRICES_AS_OF } from "../../../fanout/cost/price-table.ts";
import { DEFAULT_CONCURRENCY } from "../../../fanout/job.ts";
import { DEFAULT_MAX_ATTEMPTS, DEFAULT_ROW_TIMEOUT_SECONDS } from "../../../fanout/job-settings.ts";
import type { HelpPage, HelpRow } from "../../help/help-page.ts";
import { ENVIRONMENT_ROWS } from "../environment-options.ts";
import { NETWORK_ROWS } from "../network-options.ts";

const JSON_ROW: HelpRow = ["--json", "print events as JSON lines"];
export const PRICES_ROW: HelpRow = [
  "--prices FILE",
  `JSON file with model prices (default: PROCWIRE_PRICES, then prices as of ${PRICES_AS_OF})`,
];
const OUTAGE_ROW: HelpRow = [
  "--outage-timeout SECONDS",
  "pause the job after SECONDS without API or database (default: 600)",
];
const API_ROW: HelpRow = [
  "--api KIND",
  "responses, chat or anthropic (ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY) (default: derived from OPENAI_BASE_URL)",
];
const CONCURRENCY_ROW: HelpRow = ["--concurrency N", `concurrent rows (default: ${DEFAULT_CONCURRENCY})`];
const RATE_ROWS: readonly HelpRow[] = [
  ["--rpm N", "maximum requests per minute"],
  ["--tpm N", "maximum tokens per minute"],
];

const DATABASE_FILE_ROW: HelpRow = [
  "--database-url-file PATH",
  "file with the database URL, which keeps it out of the process list",
];
export const DATABASE_ROWS: readonly HelpRow[] = [
  ["--database-url URL", "Postgres database of the jobs (default: PROCWIRE_DATABASE_URL)"],
  DATABASE_FILE_ROW,
];

/** Rows of commands that require a database. */
const REQUIRED_DATABASE_ROWS: readonly HelpRow[] = [
  ["--database-url URL", "Postgres database of the jobs (default: PROCWIRE_DATABASE_URL, then DATABASE_URL)"],
  DATABASE_FILE_ROW,
];

const HEARTBEAT_ROW: HelpRow = [
  "--heartbeat SECONDS",
  "reassign rows of a worker that is silent for SECONDS (default: 20, minimum: 10)",
];

export const MKDIR_ROW: HelpRow = ["--mkdir", "create the directory of --output if it is missing"];

/** Options of result files. */
export const RESULT_ROWS: readonly HelpRow[] = [
  ["--explode", "write each result field to its own column"],
  ["--costs", "add columns for the usage and cost of each row"],
  ["--escape-formulas", "escape cells that spreadsheets would run as formulas"],
];

const AGENT_COMMAND_ROWS: readonly HelpRow[] = [
  ["--tools none|exec", "tools in addition to reporting (default: none; exec with --connect)"],
  ["--cwd DIR", "working directory"],
  ["--sandbox MODE", "none, read-only or workspace-write (default: none)"],
  ...NETWORK_ROWS,
  ["--network-column NAME", "column with words of --network, separated by spaces, that narrow the network of its row"],
  ...ENVIRONMENT_ROWS,
];

/** Options of commands that run rows. */
export const RUN_ROWS: HelpPage["options"] = {
  Run: [
    CONCURRENCY_ROW,
    ["--row-timeout SECONDS", `maximum time of one attempt (default: ${DEFAULT_ROW_TIMEOUT_SECONDS})`],
    [
      "--max-attempts N",
      `maximum attempts per row; connection failures do not count (default: ${DEFAULT_MAX_ATTEMPTS})`,
    ],
    ["--fail-fast N|N%", "stop after N failed rows, or N percent"],
    ...RATE_ROWS,
    ["--budget TOKENS", "pause the job before it uses more tokens, including its workers"],
    ["--budget-usd DOLLARS", "pause the job before it costs more, including its workers"],
    ["--no-reuse", "do not reuse answers of other jobs in this directory or database"],
    JSON_ROW,
  ],
  "Model API": [
    API_ROW,
    ['--header "NAME: VALUE"', "header of every request; repeatable"],
    ["--service-tier NAME", "service tier of the provider, for example flex or priority"],
    ["--fallback-model NAME", "model for rows that the model refuses or fails in all attempts"],
    PRICES_ROW,
    ["--idle-timeout SECONDS", "retry a call after SECONDS of silence within an answer (default: 300)"],
    OUTAGE_ROW,
    ["--batch", "use the Batch API of the provider; conflicts with --tools exec and --votes"],
  ],
  "Commands of the agents": AGENT_COMMAND_ROWS,
  Database: [...DATABASE_ROWS, HEARTBEAT_ROW],
};

export const CONNECT_NOTE =
  "--connect is repeatable: rows are distributed over the servers. PROCWIRE_CONNECT requires --tools exec.";
export const ROW_EXIT_CODES =
  "0 every row completed, 1 some rows failed or are pending, 130 interrupted, 2 bad arguments";

export const FANOUT_HELP: HelpPage = {
  usage: ["INPUT --instruction TEXT [OPTIONS]", "worker|migrate [OPTIONS]"],
  details: `INPUT is a table (CSV, TSV, JSON lines, a JSON array; \`-\` is stdin). The agents call a model API
    (OPENAI_BASE_URL, OPENAI_API_KEY). {column} in the instruction is the value of the row; {{ and }} are braces. Every
    finished row is stored immediately; running the same command again resumes the job. See docs/fanout.md.`,
  options: {
    Input: [
      ["--format KIND", "csv, tsv, jsonl or json (default: derived from the file name)"],
      ["--delimiter CHAR", "character between the fields of the input"],
      ["--encoding NAME", "text encoding of the input (default: utf-8)"],
      ["--id-column NAME", "column with the ids of the rows (default: row numbers)"],
      ["--image-column NAME", "column with URLs or paths of images or PDFs; repeatable"],
      ["--keep-going", "skip unreadable rows and report their number, instead of rejecting the table"],
      ["--sample N", "run only the first N rows"],
      ["--random", "run N random rows as a separate job; requires --sample"],
      ["--seed TEXT", "seed of the random rows; requires --random (default: hash of the table)"],
    ],
    Task: [
      ["--instruction TEXT", "task of each agent"],
      ["--instruction-file FILE", "file with the instruction"],
      ["--model NAME", `model (default: ${DEFAULT_MODEL})`],
      ["--reasoning-effort LEVEL", "reasoning effort of the model"],
      ["--temperature N", "sampling temperature"],
      ["--max-output-tokens N", "maximum tokens of an answer"],
      ["--extra-body JSON|@FILE", "fields that are added to every request and override those of procwire"],
      ["--schema FILE", "JSON Schema of the results; a result that violates it gets one repair turn"],
      ["--votes N", "run N agents per row and use the most frequent answer"],
    ],
    Output: [
      ["--output FILE", "results file, .csv, .tsv or .jsonl, or - for stdout (default: next to the input)"],
      MKDIR_ROW,
      ...RESULT_ROWS,
      ["--dry-run", "print the first prompts and the estimated cost, without calling the model"],
      ["--fresh", "start a new job instead of resuming the existing one"],
    ],
    ...RUN_ROWS,
  },
  connection: true,
  notes: CONNECT_NOTE,
  examples: [
    [
      "procwire fanout cities.csv --output out.csv \\\n--instruction 'Which country is {name} in?'",
      "one agent per row; run it again to resume",
    ],
    [
      "procwire fanout cities.csv --instruction-file task.txt --dry-run --sample 5",
      "show the first prompts and the estimated cost",
    ],
    [
      "procwire fanout repos.jsonl --instruction-file task.txt --schema result.json \\\n--tools exec --connect ssh://build-host --concurrency 32",
      "agents that run commands on another host",
    ],
  ],
  exitCodes: ROW_EXIT_CODES,
};

export const WORKER_HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Works together with other workers, until SIGTERM or SIGINT. Start a worker on as many hosts as needed; each needs
    OPENAI_BASE_URL and OPENAI_API_KEY. If a worker dies, other workers execute its rows within about half a minute.`,
  options: {
    Worker: [CONCURRENCY_ROW, ["--exit-when-idle", "exit when no job is running"]],
    "Model API": [
      API_ROW,
      ['--header "NAME: VALUE"', "header of every request; repeatable"],
      ...RATE_ROWS,
      PRICES_ROW,
      ["--idle-timeout SECONDS", "retry a call after SECONDS of silence within an answer (default: 300)"],
      ["--outage-timeout SECONDS", "exit after SECONDS without API or database (default: 600)"],
    ],
    "Commands of the agents": AGENT_COMMAND_ROWS,
    Database: [...REQUIRED_DATABASE_ROWS, HEARTBEAT_ROW],
  },
  connection: true,
  notes: "--connect is repeatable: rows are distributed over the servers.",
  examples: [
    ["procwire fanout worker --database-url postgres://db/jobs", "execute rows until SIGTERM"],
    ["procwire fanout worker --database-url-file url --concurrency 64 --rpm 500", "with limits of this worker"],
    [
      "procwire fanout worker --exit-when-idle --connect ssh://build-host",
      "commands of the agents run on another host",
    ],
  ],
};

export const MIGRATE_HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Requires the right to create schemas. Coordinators and workers only read and write rows; --grant-to grants these
    rights to a role.`,
  options: {
    Database: [
      ...REQUIRED_DATABASE_ROWS,
      ["--grant-to ROLE", "let ROLE start jobs and execute rows"],
      ["--outage-timeout SECONDS", "wait SECONDS for an unreachable database (default: 0)"],
    ],
  },
  examples: [
    ["procwire fanout migrate --database-url postgres://admin@db/jobs", "create the tables"],
    ["procwire fanout migrate --database-url-file admin-url --grant-to agents", "let the role agents use them"],
    ["procwire fanout migrate --outage-timeout 60", "wait until the database starts"],
  ],
};
