import type { Readable, Writable } from "node:stream";
import { systemClock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecServer } from "../exec-server.ts";
import { type ListenOptions, listen, serveStdio } from "../listen/listen.ts";
import type { ExecServerTransport } from "../listen/listen-url.ts";
import type { ListeningServer } from "../listen/websocket-gateway.ts";
import { watchIdle } from "./idle-exit.ts";
import { connectWatchdog } from "./watchdog-client.ts";

export interface RunServerOptions extends ListenOptions {
  /** Called when the server listens. Not called for stdio. */
  onListening?: (listening: ListeningServer) => void;
  /** Streams of the stdio transport. Default: those of this program. */
  stdin?: Readable;
  stdout?: Writable;
  /** Exits after this time without connections, sessions and live processes, in milliseconds. Default: never. */
  idleExitMs?: number | undefined;
  /** Called on a second signal, to exit without waiting. Default: `process.exit`. */
  exit?: ((code: number) => void) | undefined;
  /** Resolves when another server is to replace this one. */
  onHandoff?: Promise<void> | undefined;
}

/** Serves until stdin ends (stdio), SIGTERM or SIGINT. Then ends every process before it resolves. */
export async function runServer(
  server: ExecServer,
  transport: ExecServerTransport,
  options: RunServerOptions = {},
): Promise<void> {
  if (transport.type === "stdio") {
    const { stdin = process.stdin, stdout = process.stdout } = options;
    return runUntilSignal(server, { served: serveStdio(server, stdin, stdout), exit: options.exit });
  }
  const { auth, authFiles, revokedTokensFile, operatorUids, allowHosts, web, inherited, tls, clientCertificates } =
    options;
  const listening = await listen(server, transport, {
    ...{ auth, authFiles, revokedTokensFile, operatorUids },
    ...{ allowHosts, web, inherited, tls, clientCertificates },
  });
  options.onListening?.(listening);
  const { idleExitMs, exit, onHandoff } = options;
  using _ = reloadOnHangup(server, listening);
  const idle = idleExitMs === undefined ? null : watchIdle(server, idleExitMs, systemClock);
  try {
    await runUntilSignal(server, { served: idle?.over, listening, exit, onHandoff });
  } finally {
    idle?.stop();
  }
}

/**
 * Reloads tokens, secrets, certificate and key on SIGHUP. If the new ones are invalid, logs the error and keeps the old
 * ones. A supervisor does not pass SIGHUP on: it starts the next server, which reads all files.
 */
function reloadOnHangup(server: ExecServer, { reloadTls, reloadAuth }: ListeningServer): Disposable {
  if (!reloadTls && !reloadAuth) return { [Symbol.dispose]: () => undefined };
  const onHangUp = () => {
    void reloadAuth?.();
    if (!reloadTls) return;
    try {
      reloadTls();
      server.log("info", "reloaded certificate and key");
    } catch (error) {
      server.log("error", `cannot reload the certificate: ${errorMessage(error)}; the previous one stays in use`);
    }
  };
  process.on("SIGHUP", onHangUp);
  return { [Symbol.dispose]: () => process.off("SIGHUP", onHangUp) };
}

/** Signals within this time count as one: a signal to the process group also arrives through the watchdog. */
const SAME_SIGNAL_MS = 250;

interface RunUntilSignalOptions extends Pick<RunServerOptions, "exit" | "onHandoff"> {
  listening?: ListeningServer;
  /** Resolves when the server has nothing more to serve. */
  served?: Promise<void> | undefined;
}

/**
 * Shuts the server down after the first signal or when `served` resolves, or hands off when `onHandoff` resolves. The
 * second signal exits without waiting.
 */
export async function runUntilSignal(
  server: ExecServer,
  { listening, served, exit = (code) => process.exit(code), onHandoff }: RunUntilSignalOptions,
): Promise<void> {
  const reportShutdown = connectWatchdog(systemClock);
  const stop = Promise.withResolvers<void>();
  let firstAtMs: number | null = null;
  const onSignal = () => {
    firstAtMs ??= systemClock.monotonic();
    if (systemClock.monotonic() - firstAtMs > SAME_SIGNAL_MS) exit(0);
    stop.resolve();
  };
  process.on("SIGTERM", onSignal);
  process.on("SIGINT", onSignal);
  try {
    const never = new Promise<never>(() => undefined);
    const replaced = onHandoff?.then(() => "handoff" as const);
    if ((await Promise.race([stop.promise, served ?? never, replaced ?? never])) === "handoff") {
      const unbound = listening?.close("replaced");
      await server.handOff();
      listening?.destroyPending();
      // The last messages are still being sent.
      await unbound;
      // Persistent processes would keep this program's event loop alive.
      exit(0);
      return;
    }
    const ended = reportShutdown(server.config.shutdownGraceMs);
    const unbound = listening?.close();
    await server.close();
    listening?.destroyPending();
    await unbound;
    ended();
  } finally {
    process.removeListener("SIGTERM", onSignal);
    process.removeListener("SIGINT", onSignal);
  }
}
