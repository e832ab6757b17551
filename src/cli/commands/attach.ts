import { constants } from "node:os";
import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/printable-text.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, singleArgument } from "../command.ts";
import { DEFAULT_DETACH_KEY, parseDetachKey } from "../options/detach-key.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess, HANDLE_HELP } from "../support/find-process.ts";
import { forceExit } from "../support/forced-exit.ts";
import { runAttached } from "../terminal/attached-terminal.ts";
import { localTerminalSize } from "../terminal/raw-terminal.ts";

const HELP = `Usage: procwire attach [OPTIONS] ID

Attach this terminal to a process of a server. Shows the retained output, then sends keys and the terminal size to the
process. The previous driver becomes a viewer. Exits with the exit code of the process.

Options:
  --view            attach as viewer: show output, send no input
  --detach-key KEY  key that detaches, ctrl-X or none; the process keeps running (default: ${DEFAULT_DETACH_KEY})
`;

/** Exit code if no server is reachable or the connection is lost; the same as for `procwire run`. */
const NO_SERVER = 125;

export const command: Command = defineServerCommand({
  help: HELP,
  notes: HANDLE_HELP,
  options: { view: { type: "boolean" }, "detach-key": { type: "string" } },

  async run(values, positionals) {
    const id = singleArgument(positionals, "ID");
    const detachKey = parseDetachKey(values["detach-key"] ?? DEFAULT_DETACH_KEY);
    await using client = await openClient(values);
    const { handle, tty } = await findProcess(client, id);
    const size = localTerminalSize() ?? undefined;
    const child = await client.attach(handle, { role: values.view ? "viewer" : "driver", size });
    try {
      const end = await runAttached(child, { tty, detachKey });
      switch (end.type) {
        case "exited":
          return forceExit(end.status.exitCode);
        case "detached":
          await child.detach();
          standardStream(2).write(`\r\n[detached from ${handle}]\r\n`);
          return forceExit(0);
        case "signaled":
          await child.detach();
          return forceExit(128 + constants.signals[end.signal]);
      }
    } catch (error) {
      standardStream(2).write(`procwire attach: ${printableText(errorMessage(error))}\n`);
      return forceExit(NO_SERVER);
    }
  },
});
