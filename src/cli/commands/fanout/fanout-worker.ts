import { DEFAULT_CONCURRENCY } from "../../../fanout/job.ts";
import { runWorker } from "../../../fanout/run/worker.ts";
import { type Command, defineCommand } from "../../command.ts";
import { SERVER_HELP } from "../../options/connect-options.ts";
import { parseRunOptions, RUN_FLAGS, requiredDatabaseUrl } from "../../options/fanout-options.ts";
import { openJobStore, withFanoutResources } from "../../support/fanout-setup.ts";
import { runInterruptible } from "../../support/interruptible-run.ts";

const HELP = `Usage: procwire fanout worker [OPTIONS]

Execute rows of the jobs in a database, together with other workers, until SIGTERM or SIGINT. Start a worker on as many
hosts as needed; each needs OPENAI_BASE_URL and OPENAI_API_KEY. If a worker dies, other workers execute its rows within
about half a minute.

Worker:
  --database-url URL        the database of the jobs (default: PROCWIRE_DATABASE_URL, then DATABASE_URL)
  --database-url-file PATH  file with the database URL, which keeps it out of the process list
  --concurrency N           concurrent rows of this worker (default: ${DEFAULT_CONCURRENCY})
  --api KIND                responses, chat or anthropic (default: derived from the base URL)
  --rpm N                   maximum requests per minute of this worker
  --tpm N                   maximum tokens per minute of this worker
  --exit-when-idle          exit when no job is running
  --heartbeat SECONDS       reassign rows of a worker that is silent for SECONDS (default: 20, minimum: 10)
  --outage-timeout SECONDS  exit after SECONDS without API or database (default: 600)

Commands of the agents:
  --cwd DIR                 working directory
  --sandbox MODE            none, read-only or workspace-write (default: none)
  --inherit-env NAME        pass on a variable that looks like a secret; repeatable
  --verbose                 print the names of variables that were removed as secrets

${SERVER_HELP}`;

export const command: Command = defineCommand({
  help: HELP,
  options: { ...RUN_FLAGS, "exit-when-idle": { type: "boolean" } },
  takesArguments: false,

  async run(values) {
    const runOptions = parseRunOptions(values);
    const options = { ...runOptions, databaseUrl: requiredDatabaseUrl(runOptions) };
    return runInterruptible((signal) =>
      withFanoutResources(options, signal, async (resources) => {
        await using store = await openJobStore(options, { waits: true, signal });
        process.stderr.write("worker ready\n");
        await runWorker({
          ...resources,
          store,
          exitWhenIdle: values["exit-when-idle"] ?? false,
          listener: {
            joined: (job) => process.stderr.write(`working on job ${job.id.slice(0, 8)}\n`),
            left: (job, rows) => process.stderr.write(`${rows} rows of job ${job.id.slice(0, 8)} done here\n`),
          },
        });
        return signal.aborted ? 130 : 0;
      }),
    );
  },
});
