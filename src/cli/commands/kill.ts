import { type Command, defineCommand, UsageError } from "../command.ts";
import { CONNECT_OPTIONS, connectTo, requireServerUrl } from "../options/connect-options.ts";
import { findProcess, PROCESS_HELP } from "../support/find-process.ts";

/** Between TERM and KILL. */
const GRACE_MS = 5000;

const HELP = `Usage: procwire kill [options] ID...

Ends processes of a server with all they started: TERM, and KILL after ${GRACE_MS / 1000} s. With -s only that signal is sent.

  -s, --signal NAME  send this signal instead: TERM, SIGUSR1, ...
${PROCESS_HELP}`;

export const command: Command = defineCommand({
  name: "kill",
  summary: "end or signal processes of a server",
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    signal: { type: "string", short: "s" },
  },

  async run(values, positionals) {
    if (positionals.length === 0) throw new UsageError("give at least one ID");
    const signal = values.signal?.toUpperCase();
    await using client = await connectTo(requireServerUrl(values.connect), values);
    // All are looked up before one is ended: a mistyped one ends nothing.
    const found = await Promise.all(positionals.map((id) => findProcess(client, id)));
    const how =
      signal === undefined ? { mode: { type: "graceful", timeoutMs: GRACE_MS } as const } : { signal };
    const ends = await Promise.all(found.map(({ handle }) => client.kill(handle, how)));
    const over = found.filter((_, index) => ends[index]?.running === false);
    for (const { handle } of over) process.stderr.write(`procwire kill: ${handle} has ended already\n`);
    return over.length === 0 ? 0 : 1;
  },
});
