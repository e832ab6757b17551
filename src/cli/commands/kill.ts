import { type Command, UsageError } from "../command.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";

/** Time between SIGTERM and SIGKILL. */
const GRACE_MS = 5000;

const HELP = `Usage: procwire kill [OPTIONS] ID...

Terminate process trees of a server: SIGTERM, then SIGKILL after ${GRACE_MS / 1000} s. With --signal, send only that signal.

Options:
  -s, --signal NAME  signal to send instead, for example SIGUSR1 or TERM
`;

export const command: Command = defineServerCommand({
  help: HELP,
  notes: HANDLE_HELP,
  options: { signal: { type: "string", short: "s" } },

  async run(values, positionals) {
    if (positionals.length === 0) throw new UsageError("give at least one ID");
    const signal = values.signal?.toUpperCase();
    await using client = await openClient(values);
    // Find all processes before the first kill, so that a mistyped ID kills nothing.
    const found = await Promise.all(positionals.map((id) => findProcess(client, id)));
    const request = signal === undefined ? { mode: { type: "graceful", timeoutMs: GRACE_MS } as const } : { signal };
    const results = await Promise.all(found.map(({ handle }) => client.kill(handle, request)));
    const exited = found.filter((_, index) => results[index]?.running === false);
    for (const { handle } of exited) process.stderr.write(`procwire kill: ${handle} has already exited\n`);
    return exited.length === 0 ? 0 : 1;
  },
});
