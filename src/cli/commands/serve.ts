import { runMainWithTransport } from "../../host/run-main.ts";
import { type Command, parsedCommand } from "../command.ts";
import { leave } from "../leave.ts";
import { serveHelp } from "../options/serve-option-table.ts";
import { parseServeOptions } from "../options/serve-options.ts";

export const command: Command = parsedCommand({
  name: "serve",
  summary: "serve processes over stdio, WebSocket or a unix socket",
  help: serveHelp,
  parse: parseServeOptions,

  async run({ transport, ...rest }) {
    try {
      await runMainWithTransport(transport, rest);
    } catch (error) {
      leave(1);
      throw error;
    }
    return leave(0);
  },
});
