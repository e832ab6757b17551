import { constants } from "node:os";
import { userMessage } from "../../base/error-message.ts";
import { printableLine, printableText } from "../../base/text/printable-text.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, singleArgument } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { DEFAULT_DETACH_KEY, parseDetachKey } from "../options/detach-key.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { findProcess } from "../support/find-process.ts";
import { forceExit } from "../support/forced-exit.ts";
import { runAttached } from "../terminal/attached-terminal.ts";
import { localTerminalSize } from "../terminal/raw-terminal.ts";
import { TAKEOVER_KEY } from "../terminal/viewer-keys.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] ID"],
  details: `Draws the current screen, then sends keys and the terminal size to the process. The previous driver becomes a
    viewer. A viewer takes over with ${TAKEOVER_KEY.name}. If its terminal is smaller than that of the process, the
    arrow keys scroll. Exits with the exit code of the process.`,
  options: {
    Terminal: [
      ["--view", "attach as viewer: show output, send no input"],
      [
        "--detach-key KEY",
        `key that detaches, ctrl-X or none; the process keeps running (default: ${DEFAULT_DETACH_KEY})`,
      ],
    ],
  },
  examples: [
    ["procwire attach k3v7q2m9", "drive a process by its handle"],
    ["procwire attach --view k3v7", "watch it; an unambiguous prefix is enough"],
    ["procwire attach --detach-key ctrl-a --connect ssh://build-host k3v7", "on another host, with another detach key"],
  ],
};

/** Exit code if no server is reachable or the connection is lost; the same as for `procwire run`. */
const NO_SERVER = 125;

export const command: Command = defineServerCommand("attach", HELP, {
  ids: { includesExited: false },
  options: { view: { type: "boolean" }, "detach-key": { type: "string" } },

  async run(values, positionals) {
    const id = singleArgument(positionals, "ID");
    const detachKey = parseDetachKey(values["detach-key"] ?? DEFAULT_DETACH_KEY);
    await using client = await openClient(values);
    const { handle, tty, running } = await findProcess(client, id);
    const size = localTerminalSize() ?? undefined;
    // Without a local terminal, and for a process that has ended, the retained output says more than the screen.
    const screen = tty && running && size !== undefined;
    const child = await client.attach(handle, { role: values.view ? "viewer" : "driver", size, screen });
    try {
      const end = await runAttached(child, { tty, detachKey });
      switch (end.type) {
        case "exited":
          return forceExit(end.status.exitCode);
        case "detached":
          await child.detach();
          standardStream(2).write(`\r\n[detached from ${printableLine(handle)}]\r\n`);
          return forceExit(0);
        case "signaled":
          await child.detach();
          return forceExit(128 + constants.signals[end.signal]);
      }
    } catch (error) {
      standardStream(2).write(`procwire attach: ${printableText(userMessage(error))}\n`);
      return forceExit(NO_SERVER);
    }
  },
});
