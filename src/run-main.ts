import { createLocalHost } from "./local-host.ts";
import { exitNow } from "./native/exit-now.ts";
import { makeNodeThreads } from "./native/node-threads.ts";
import type { WebSocketAuth } from "./server/auth.ts";
import { ExecServer } from "./server/exec-server.ts";
import type { LogLevel } from "./server/host-services.ts";
import type { ServerConfig } from "./server/limits.ts";
import { stderrLog } from "./server/log.ts";
import { runServer } from "./server/run-main.ts";
import { writeStandardLine } from "./server/standard-stream.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport } from "./server/transport.ts";

export interface RunMainOptions {
  config?: Partial<ServerConfig>;
  auth?: WebSocketAuth;
  /** What is told on stderr; default `warn`. */
  logLevel?: LogLevel;
}

/** Late enough not to be in the way of the first request, early enough that nobody has used up the processes yet. */
const MAKE_THREADS_AFTER_MS = 50;

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
  const host = createLocalHost({ log, config, subreaper: true, keepFreedMemory: true });
  const server = new ExecServer(host, config);
  setTimeout(makeNodeThreads, MAKE_THREADS_AFTER_MS).unref();
  await runServer(server, transport, {
    auth,
    exit: exitNow,
    onListening: (url) => {
      // stderr first, so that whoever waits for the line on stdout finds this one there already.
      writeStandardLine(2, `procwire exec-server listening on ${url}`);
      writeStandardLine(1, url);
      for (const part of server.degraded()) log("warn", part);
    },
  });
}
