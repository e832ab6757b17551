import { makeProcessPrivate } from "../../host/native-support.ts";
import { runMainWithTransport } from "../../host/run-main.ts";
import { writeStandardLine } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, defineParsedCommand } from "../command.ts";
import { SERVE_FLAGS, SERVE_HELP } from "../options/serve-option-table.ts";
import { parseServeOptions } from "../options/serve-options.ts";
import { forceExit } from "../support/forced-exit.ts";

/** Printed if a user starts the stdio server at a terminal. Programs start it with pipes. */
const STDIO_HINT =
  "procwire serve: waiting for JSON-RPC messages on stdin, which is this terminal; Ctrl-D ends the server.\n" +
  "`procwire start` serves on ws://127.0.0.1:7070, `procwire serve --listen URL` on another address.";

export const command: Command = defineParsedCommand("serve", SERVE_HELP, {
  options: SERVE_FLAGS,
  parse: parseServeOptions,

  async run({ transport, ...rest }) {
    makeProcessPrivate();
    if (transport.type === "stdio" && process.stdin.isTTY) writeStandardLine(2, STDIO_HINT);
    try {
      await runMainWithTransport(transport, rest);
    } catch (error) {
      forceExit(1);
      throw error;
    }
    return forceExit(0);
  },
});
