import { DEFAULT_MODEL } from "../../agent/agent-config.ts";
import { PRICES_AS_OF } from "../../fanout/cost/price-table.ts";
import { DEFAULT_CONCURRENCY } from "../../fanout/job.ts";
import { DEFAULT_MAX_ATTEMPTS, DEFAULT_ROW_TIMEOUT_SECONDS } from "../../fanout/job-settings.ts";

export const FANOUT_HELP = `Usage: procwire fanout INPUT --instruction TEXT --output OUT.csv [options]
       procwire fanout worker --database-url URL [options]
       procwire fanout migrate --database-url URL [--grant-to ROLE]

Runs one agent per row of a table (CSV, TSV, JSON lines, a JSON array; \`-\` is stdin) against a model's API (OPENAI_BASE_URL,
OPENAI_API_KEY). {column} in the instruction is the row's value; {{ and }} are braces. Every finished row is stored
immediately; running the same command again resumes the job.

      --instruction TEXT       what to do with each row, or
      --instruction-file FILE  the same from a file
      --output FILE            results file, .csv, .tsv or .jsonl (default: next to the input);
                               \`-\` is stdout
      --model NAME             the model (default ${DEFAULT_MODEL});  --reasoning-effort LEVEL
      --id-column NAME         a column that names the rows (default: row numbers)
      --schema FILE            a JSON Schema every result has to fit; one repair turn
      --format csv|tsv|jsonl|json  of the input (default: by its name)
      --delimiter CHAR         between the fields of the input;  --encoding NAME  of its text (default utf-8)
      --keep-going             skip unreadable rows and report their number, instead of rejecting the table
      --explode                write each result field to its own column
      --costs                  add columns for the usage and cost of each row
      --escape-formulas        keep spreadsheets from running cells as formulas
      --sample N               run only the first N rows; with --random, N random rows, as a separate job. The selection is
                               repeatable: the seed is the hash of the table, or --seed TEXT
      --dry-run                show the first prompts, count rows and tokens, ask nothing
      --fresh                  start over although the job is known
`;

/** Shared by everything that runs rows. */
export const RUN_HELP = `      --concurrency N          rows at a time (default ${DEFAULT_CONCURRENCY})
      --row-timeout SECONDS    for one attempt at a row (default ${DEFAULT_ROW_TIMEOUT_SECONDS})
      --max-attempts N         attempts at a row (default ${DEFAULT_MAX_ATTEMPTS}); faults of the connection cost none
      --api responses|chat|anthropic  how the API is spoken to (default: by OPENAI_BASE_URL); anthropic takes
                               ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
      --header "NAME: VALUE"   sent with every request; may be repeated
      --service-tier NAME      e.g. flex or priority, as the provider calls it
      --fallback-model NAME    ask it about rows that the model refuses, or fails in all its attempts
      --rpm N, --tpm N         requests and tokens a minute at most
      --budget TOKENS          pause before the job uses more, with all its workers
      --budget-usd DOLLARS     pause before the job costs more, with all its workers
      --prices FILE            what models cost, as JSON, over the package's prices (as of ${PRICES_AS_OF}); or PROCWIRE_PRICES
      --fail-fast N|N%         stop after N failed rows, or N percent
      --tools none|exec        tools of the agents in addition to reporting (default: none)
      --connect URL            run their commands on that server, see \`procwire run --help\`; repeat it to spread rows over
                               several. With --tools exec also PROCWIRE_CONNECT in the environment
      --token-file PATH        the token the servers ask for; or PROCWIRE_TOKEN in the environment
      --tls-ca FILE, --insecure-plain-token, --wait SECONDS  as of \`procwire run\`
      --cwd DIR, --sandbox none|read-only|workspace-write  for their commands
      --inherit-env NAME       pass a variable on to their commands although it looks like a secret; may be repeated
      --verbose                say which variables were left out as secrets
      --database-url URL       keep the job in Postgres, so that \`procwire fanout worker\` on other machines joins in
      --database-url-file PATH the same from a file, which no list of processes shows; or PROCWIRE_DATABASE_URL
      --outage-timeout SECONDS  pause the job after SECONDS without API or database (default: 600)
      --idle-timeout SECONDS   retry a call after SECONDS of silence within an answer (default: 300)
      --batch                  submit rows to the provider's Batch API, for half the price and within a day; single calls
                               complete the rows that a batch leaves open (no tools, no votes)
      --no-reuse               do not reuse answers of other jobs in this directory or database
      --json                   print events as JSON lines
`;

export const FANOUT_EXIT_HELP = `
Exit codes: 0 every row completed, 1 some failed or are left, 130 interrupted, 2 bad arguments.
`;
