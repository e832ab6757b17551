import { runWorker } from "../../fanout/run/worker.ts";
import { parseRunOptions, RUN_FLAGS, requiredDatabaseUrl } from "../options/fanout-options.ts";
import { parseOptions } from "../options/parse-options.ts";
import { openJobStore, withFanoutResources } from "../support/fanout-setup.ts";
import { runInterruptible } from "../support/interruptible-run.ts";

const HELP = `Usage: procwire fanout worker [--database-url URL] [options]

Execute rows of the jobs in a database, together with other workers, until SIGTERM or SIGINT. Start a worker on as many
hosts as needed; each needs OPENAI_BASE_URL and OPENAI_API_KEY. If a worker dies, other workers execute its rows within
about half a minute.

      --database-url URL    the database that \`procwire fanout INPUT --database-url URL\` uses, or
      --database-url-file PATH  a file with it, which no list of processes shows; else PROCWIRE_DATABASE_URL, DATABASE_URL
      --concurrency N       concurrent rows of this worker (default: 16)
      --api responses|chat|anthropic  how the API is spoken to (default: by the base URL)
      --rpm N, --tpm N      maximum requests and tokens per minute of this worker
      --exit-when-idle      exit when no job is running
      --heartbeat SECONDS   reassign rows of a worker that is silent for SECONDS (default: 20, minimum: 10)
      --outage-timeout SECONDS  give up after SECONDS without API or database (default: 600)
      --connect URL         run the agents' commands on that server; may be repeated
      --token-file PATH     the token the servers ask for; or PROCWIRE_TOKEN in the environment
      --tls-ca FILE, --insecure-plain-token, --wait SECONDS  as of \`procwire run\`
      --inherit-env NAME    pass a variable on to commands although it looks like a secret; may be repeated
      --verbose             say which variables were left out as secrets
      --cwd DIR, --sandbox none|read-only|workspace-write  for their commands
`;

export async function runFanoutWorkerCommand(argv: string[]): Promise<number> {
  const { values } = parseOptions({
    args: argv,
    options: { ...RUN_FLAGS, "exit-when-idle": { type: "boolean" } },
  });
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const given = parseRunOptions(values);
  const databaseUrl = requiredDatabaseUrl(given);
  const options = { ...given, databaseUrl };
  return runInterruptible((signal) =>
    withFanoutResources(options, signal, async (resources) => {
      await using store = await openJobStore(options, { waits: true, signal });
      process.stderr.write("worker ready\n");
      await runWorker({
        ...resources,
        store,
        exitWhenIdle: values["exit-when-idle"] ?? false,
        listener: {
          joined: (job) => process.stderr.write(`works on job ${job.id.slice(0, 8)}\n`),
          left: (job, rows) => process.stderr.write(`${rows} rows of job ${job.id.slice(0, 8)} done here\n`),
        },
      });
      return signal.aborted ? 130 : 0;
    }),
  );
}
