import { constants } from "node:os";
import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import { type Command, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { selectProcess } from "../support/find-process.ts";

/** Time between SIGTERM and SIGKILL. */
const GRACE_MS = 5000;

const HELP: HelpPage = {
  usage: ["[OPTIONS] ID..."],
  details: `Ends process trees: SIGTERM, then SIGKILL after ${GRACE_MS / 1000} s. With --signal, sends only that signal. An
    unknown ID is reported, and the other processes are ended; the exit code is then 1.`,
  options: { Signal: [["-s, --signal NAME", "signal to send instead, for example SIGUSR1, TERM or 9"]] },
  examples: [
    ["procwire kill k3v7q2m9", "end a process and its descendants"],
    ["procwire kill api k3v7", "end several processes, one of them by its name"],
    ["procwire kill --signal HUP --connect ssh://build-host k3v7", "send a signal on another host"],
  ],
};

export const command: Command = defineServerCommand("kill", HELP, {
  ids: { includesExited: false, isRepeatable: true },
  options: { signal: { type: "string", short: "s" } },

  async run(values, positionals) {
    if (positionals.length === 0) throw new UsageError("give at least one ID");
    const signal = values.signal === undefined ? undefined : toSignalName(values.signal);
    await using client = await openClient(values);
    const listed = await client.list({ allSessions: true });
    const request = signal === undefined ? { mode: { type: "graceful", timeoutMs: GRACE_MS } as const } : { signal };
    const killed = new Set<string>();
    const kill = async (id: string): Promise<void> => {
      const { handle } = selectProcess(listed, id);
      if (killed.has(handle)) return;
      killed.add(handle);
      const { running } = await client.kill(handle, request);
      if (!running) throw new Error(`${id} has already exited`);
    };
    const results = await Promise.allSettled(positionals.map(kill));
    const errors = results.flatMap((result) => (result.status === "rejected" ? [result.reason] : []));
    for (const error of errors) process.stderr.write(`procwire kill: ${printableText(errorMessage(error))}\n`);
    return errors.length === 0 ? 0 : 1;
  },
});

/** Returns the name of a signal in capital letters. A number is a signal number of this host. */
function toSignalName(typed: string): string {
  const [found = ""] = Object.entries(constants.signals).find(([, number]) => number === Number(typed)) ?? [];
  const name = /^\d+$/.test(typed) ? found : typed.toUpperCase().replace(/^(?:SIG)?/, "SIG");
  if (!Object.hasOwn(constants.signals, name) && !/^SIGRT(?:MIN|MAX)(?:[+-]\d{1,2})?$/.test(name))
    throw new UsageError(`unknown --signal \`${typed}\`; expected a name such as TERM, or a number`);
  return name;
}
