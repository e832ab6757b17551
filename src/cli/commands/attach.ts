import { constants } from "node:os";
import { messageOf } from "../../base/error-message.ts";
import { visibleText } from "../../base/printable-text.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, commandOf, onlyWord } from "../command.ts";
import { leave } from "../leave.ts";
import { CONNECT_OPTIONS, connectTo, neededServerUrl } from "../options/connect-options.ts";
import { DEFAULT_DETACH_KEY, parseDetachKey } from "../options/detach-key.ts";
import { findProcess, PROCESS_HELP } from "../support/find-process.ts";
import { showAttached } from "../terminal/attached-terminal.ts";
import { terminalSize } from "../terminal/raw-terminal.ts";

const HELP = `Usage: procwire attach [options] ID

Shows a process of a server on this terminal, from the oldest output that is retained, and passes keys and the window size
on to it: it is driven from here, and whoever drove it before watches from then on. Its exit code is this program's.

  --view             only watch
  --detach-key KEY   leaves and lets the process go on: ctrl-X or none; default ${DEFAULT_DETACH_KEY}
${PROCESS_HELP}`;

/** As of \`procwire run\`: there is no server, or it was lost. */
const NO_SERVER = 125;

export const command: Command = commandOf({
  name: "attach",
  summary: "show and drive a process of a server on this terminal",
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    view: { type: "boolean" },
    "detach-key": { type: "string" },
  },

  async run(values, positionals) {
    const id = onlyWord(positionals, "ID");
    const detachKey = parseDetachKey(values["detach-key"] ?? DEFAULT_DETACH_KEY);
    await using client = await connectTo(neededServerUrl(values.connect), values);
    const { handle, tty } = await findProcess(client, id);
    const size = terminalSize() ?? undefined;
    const child = await client.attach(handle, { role: values.view ? "viewer" : "driver", size });
    try {
      const end = await showAttached(child, { tty, detachKey });
      switch (end.type) {
        case "exited":
          return leave(end.status.exitCode);
        case "detached":
          await child.detach();
          standardStream(2).write(`\r\n[detached from ${handle}]\r\n`);
          return leave(0);
        case "asked":
          await child.detach();
          return leave(128 + constants.signals[end.signal]);
      }
    } catch (error) {
      standardStream(2).write(`procwire attach: ${visibleText(messageOf(error))}\n`);
      return leave(NO_SERVER);
    }
  },
});
