import { createLocalHost, nativeTuning } from "../local-host.ts";
import { ExecServer } from "../server/exec-server.ts";
import { stderrLog } from "../server/log.ts";
import { runServer } from "../server/run-main.ts";
import type { Command } from "./command.ts";
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
    const log = stderrLog(options.logLevel);
    const server = new ExecServer(
      createLocalHost({ log, config: options.config, subreaper: true }),
      options.config,
    );
    const tuning = nativeTuning();
    await runServer(server, options.transport, {
      auth: options.auth,
      tuning,
      onListening: (url) => {
        // stderr first, so that whoever waits for the line on stdout finds this one there already.
        process.stderr.write(`procwire exec-server listening on ${url}\n`);
        process.stdout.write(`${url}\n`);
        for (const part of server.degraded()) log("warn", part);
      },
    });
    return 0;
  },
};
