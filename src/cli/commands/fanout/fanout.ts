import path from "node:path";
import { prepareInput } from "../../../fanout/input/table-input.ts";
import { jobsDirectory } from "../../../fanout/ledger/jobs-directory.ts";
import { exitCodeOf } from "../../../fanout/output/job-listener.ts";
import { startOrResumeJob } from "../../../fanout/run/start-job.ts";
import { type Command, defineParsedCommand } from "../../command.ts";
import { FANOUT_HELP } from "../../options/agent/fanout-help.ts";
import { FANOUT_FLAGS, type FanoutCommandOptions, parseFanoutOptions } from "../../options/agent/fanout-options.ts";
import { coordinatorOptions, openJobStore, withFanoutResources } from "../../support/fanout-setup.ts";
import { runInterruptible } from "../../support/interruptible-run.ts";

const job: Command = defineParsedCommand("fanout", FANOUT_HELP, {
  options: FANOUT_FLAGS,
  parse: parseFanoutOptions,
  run: (options) => runInterruptible((signal) => run(options, signal)),
});

const subcommands = {
  worker: async () => (await import("./fanout-worker.ts")).command,
  migrate: async () => (await import("./fanout-migrate.ts")).command,
};

export const command: Command = {
  ...job,
  subcommands,
  async run(argv) {
    const [subcommand, ...rest] = argv;
    if (subcommand === "worker" || subcommand === "migrate") return (await subcommands[subcommand]()).run(rest);
    return job.run(argv);
  },
};

async function run(options: FanoutCommandOptions, signal: AbortSignal): Promise<number> {
  const cwd = process.cwd();
  await using input = await prepareInput({
    input: options.input,
    cwd,
    stdin: process.stdin,
    format: options.format,
    parseOptions: options.parseOptions,
    spoolDirectory: jobsDirectory(process.env, cwd),
  });
  if (options.dryRun) {
    const { showDryRun } = await import("../../support/fanout-dry-run.ts");
    return await showDryRun(options, input);
  }
  return await withFanoutResources(options, signal, async (resources) => {
    await using store = await openJobStore(options, { waits: true, signal });
    const end = await startOrResumeJob({
      ...coordinatorOptions(options, resources, store, options.task.model),
      input,
      task: options.task,
      settings: options.settings,
      outputPath: options.output ?? ((jobId) => defaultOutput(options.input, jobId)),
      fresh: options.fresh,
    });
    return exitCodeOf(end);
  });
}

/** Returns the default output path: next to the input, or the working directory for stdin. */
function defaultOutput(input: string, jobId: string): string {
  const { dir, name } = path.parse(input === "-" ? "stdin" : path.resolve(input));
  return path.resolve(dir, `${name}.agent-job-${jobId.slice(0, 8)}.csv`);
}
