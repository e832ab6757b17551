import { runMainWithTransport } from "../../host/run-main.ts";
import { type Command, defineParsedCommand } from "../command.ts";
import { serveHelp } from "../options/serve-option-table.ts";
import { parseServeOptions } from "../options/serve-options.ts";
import { forceExit } from "../support/forced-exit.ts";

export const command: Command = defineParsedCommand({
  help: serveHelp,
  parse: parseServeOptions,

  async run({ transport, ...rest }) {
    try {
      await runMainWithTransport(transport, rest);
    } catch (error) {
      forceExit(1);
      throw error;
    }
    return forceExit(0);
  },
});
