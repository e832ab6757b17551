import { DEFAULT_MODEL } from "../../agent/agent-config.ts";
import { PRICES_AS_OF } from "../../fanout/cost/price-table.ts";
import { DEFAULT_CONCURRENCY } from "../../fanout/job.ts";
import { DEFAULT_MAX_ATTEMPTS, DEFAULT_ROW_TIMEOUT_SECONDS } from "../../fanout/job-settings.ts";
import { SERVER_HELP } from "./connect-options.ts";

export const FANOUT_HELP = `Usage: procwire fanout INPUT --instruction TEXT --output OUT.csv [OPTIONS]
       procwire fanout worker [OPTIONS]
       procwire fanout migrate [OPTIONS]

Run one agent per row of a table (CSV, TSV, JSON lines, a JSON array; \`-\` is stdin) against a model API (OPENAI_BASE_URL,
OPENAI_API_KEY). {column} in the instruction is the value of the row; {{ and }} are braces. Every finished row is stored
immediately; running the same command again resumes the job. See docs/fanout.md.

Input:
  --format KIND             csv, tsv, jsonl or json (default: derived from the file name)
  --delimiter CHAR          character between the fields of the input
  --encoding NAME           text encoding of the input (default: utf-8)
  --id-column NAME          column with the ids of the rows (default: row numbers)
  --image-column NAME       column with URLs or paths of images or PDFs; repeatable
  --keep-going              skip unreadable rows and report their number, instead of rejecting the table
  --sample N                run only the first N rows
  --random                  run N random rows as a separate job; requires --sample
  --seed TEXT               seed of the random rows; requires --random (default: hash of the table)

Task:
  --instruction TEXT        task of each agent
  --instruction-file FILE   file with the instruction
  --model NAME              model (default: ${DEFAULT_MODEL})
  --reasoning-effort LEVEL  reasoning effort of the model
  --temperature N           sampling temperature
  --max-output-tokens N     maximum tokens of an answer
  --extra-body JSON|@FILE   fields that are added to every request and override those of procwire
  --schema FILE             JSON Schema of the results; a result that violates it gets one repair turn
  --votes N                 run N agents per row and use the most frequent answer

Output:
  --output FILE             results file, .csv, .tsv or .jsonl, or - for stdout (default: next to the input)
  --explode                 write each result field to its own column
  --costs                   add columns for the usage and cost of each row
  --escape-formulas         escape cells that spreadsheets would run as formulas
  --dry-run                 print the first prompts and the estimated cost, without calling the model
  --fresh                   start a new job instead of resuming the existing one
`;

/** Options of commands that run rows. */
export const RUN_HELP = `Run:
  --concurrency N           concurrent rows (default: ${DEFAULT_CONCURRENCY})
  --row-timeout SECONDS     maximum time of one attempt (default: ${DEFAULT_ROW_TIMEOUT_SECONDS})
  --max-attempts N          maximum attempts per row; connection failures do not count (default: ${DEFAULT_MAX_ATTEMPTS})
  --fail-fast N|N%          stop after N failed rows, or N percent
  --rpm N                   maximum requests per minute
  --tpm N                   maximum tokens per minute
  --budget TOKENS           pause the job before it uses more tokens, including its workers
  --budget-usd DOLLARS      pause the job before it costs more, including its workers
  --no-reuse                do not reuse answers of other jobs in this directory or database
  --json                    print events as JSON lines

Model API:
  --api KIND                responses, chat or anthropic (ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY)
                            (default: derived from OPENAI_BASE_URL)
  --header "NAME: VALUE"    header of every request; repeatable
  --service-tier NAME       service tier of the provider, for example flex or priority
  --fallback-model NAME     model for rows that the model refuses or fails in all attempts
  --prices FILE             JSON file with model prices (default: PROCWIRE_PRICES, then prices as of ${PRICES_AS_OF})
  --idle-timeout SECONDS    retry a call after SECONDS of silence within an answer (default: 300)
  --outage-timeout SECONDS  pause the job after SECONDS without API or database (default: 600)
  --batch                   use the Batch API of the provider; conflicts with --tools exec and --votes

Commands of the agents:
  --tools none|exec         tools in addition to reporting (default: none; exec with --connect)
  --cwd DIR                 working directory
  --sandbox MODE            none, read-only or workspace-write (default: none)
  --inherit-env NAME        pass on a variable that looks like a secret; repeatable
  --verbose                 print the names of variables that were removed as secrets

Database:
  --database-url URL        store the job in Postgres, so that \`procwire fanout worker\` on other hosts executes its rows
  --database-url-file PATH  file with the database URL, which keeps it out of the process list
                            (default: the URL in PROCWIRE_DATABASE_URL)

${SERVER_HELP}
--connect is repeatable: rows are distributed over the servers. PROCWIRE_CONNECT requires --tools exec.
`;

export const FANOUT_EXIT_HELP = `
Exit codes: 0 every row completed, 1 some rows failed or are pending, 130 interrupted, 2 bad arguments
`;
