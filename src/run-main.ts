import { writeSync } from "node:fs";
import { createLocalHost, nativeTuning } from "./local-host.ts";
import type { WebSocketAuth } from "./server/auth.ts";
import { ExecServer } from "./server/exec-server.ts";
import type { LogLevel } from "./server/host-services.ts";
import type { ServerConfig } from "./server/limits.ts";
import { stderrLog } from "./server/log.ts";
import { runServer } from "./server/run-main.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport } from "./server/transport.ts";

export interface RunMainOptions {
  config?: Partial<ServerConfig>;
  auth?: WebSocketAuth;
  /** What is told on stderr; default `warn`. */
  logLevel?: LogLevel;
}

/** Serves this machine on stdio, as a program of its own would, until stdin ends or a signal comes. */
export function runMain(options?: RunMainOptions): Promise<void> {
  return runMainWithTransport(ExecServerTransport.fromListenUrl(DEFAULT_LISTEN_URL), options);
}

/**
 * Serves this machine until it is told to stop. Once it listens, the URL stands alone on stdout, and the first line on
 * stderr tells it to a person.
 *
 * @example
 * await runMainWithTransport(ExecServerTransport.fromListenUrl("ws://127.0.0.1:0"));
 */
export async function runMainWithTransport(
  transport: ExecServerTransport,
  options: RunMainOptions = {},
): Promise<void> {
  const log = stderrLog(options.logLevel ?? "warn");
  const { config = {}, auth } = options;
  const server = new ExecServer(createLocalHost({ log, config, subreaper: true }), config);
  await runServer(server, transport, {
    ...(auth && { auth }),
    tuning: nativeTuning(),
    onListening: (url) => {
      // stderr first, so that whoever waits for the line on stdout finds this one there already.
      writeLine(2, `procwire exec-server listening on ${url}`);
      writeLine(1, url);
      for (const part of server.degraded()) log("warn", part);
    },
  });
}

/** Not through Node's stream, which would be loaded for this line alone before the first connection is taken. */
function writeLine(fd: 1 | 2, line: string): void {
  try {
    writeSync(fd, `${line}\n`);
  } catch {
    // Nobody reads it now, or ever; the stream waits or says so.
    (fd === 1 ? process.stdout : process.stderr).write(`${line}\n`);
  }
}
