import { runWorker } from "../../../fanout/run/worker.ts";
import { type Command, defineCommand } from "../../command.ts";
import { WORKER_HELP } from "../../options/agent/fanout-help.ts";
import { parseRunOptions, RUN_FLAGS, requiredDatabaseUrl } from "../../options/agent/fanout-options.ts";
import { pickFlags } from "../../options/pick-flags.ts";
import { openJobStore, withFanoutResources } from "../../support/fanout-setup.ts";
import { runInterruptible } from "../../support/interruptible-run.ts";

export const command: Command = defineCommand("fanout worker", WORKER_HELP, {
  options: { ...pickFlags(RUN_FLAGS, WORKER_HELP), "exit-when-idle": { type: "boolean" } },
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
