import { runMainWithTransport } from "../host/run-main.ts";
import type { Command } from "./command.ts";
import { leave } from "./leave.ts";
import { parseServeOptions, serveHelp } from "./serve-options.ts";

export const command: Command = {
  name: "serve",
  summary: "serve processes over stdio, WebSocket or a unix socket",

  async run(argv) {
    const options = parseServeOptions(argv);
    if (!options) {
      process.stdout.write(serveHelp());
      return 0;
    }
    const { transport, ...rest } = options;
    try {
      await runMainWithTransport(transport, rest);
    } catch (error) {
      leave(1);
      throw error;
    }
    return leave(0);
  },
};
