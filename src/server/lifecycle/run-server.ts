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
  /**
   * Called when the server accepts connections, with its URL and the console's login URL, or null without a console.
   * Not called for stdio.
   */
  onListening?: (url: string, loginUrl: string | null) => void;
  /** Streams of the stdio transport. Default: those of this program. */
  stdin?: Readable;
  stdout?: Writable;
  /**
   * Idle time in milliseconds after which the server exits: no connection, no session, no live process. Default:
   * never.
   */
  idleExitMs?: number | undefined;
  /** Called on a second signal, to exit without waiting. Default: `process.exit`. */
  exit?: (code: number) => void;
  /** Resolves when another server is to replace this one. */
  onHandoff?: Promise<void> | undefined;
}

/**
 * Serves until stdin ends (stdio), or until SIGTERM or SIGINT. It then ends every child (TERM, grace period, KILL,
 * sweep) before it resolves.
 */
export async function runServer(
  server: ExecServer,
  transport: ExecServerTransport,
  options: RunServerOptions = {},
): Promise<void> {
  if (transport.type === "stdio") {
    const { stdin = process.stdin, stdout = process.stdout } = options;
    await waitForSignal(server, serveStdio(server, stdin, stdout), undefined, options.exit);
    return;
  }
  const listening = await listen(server, transport, options);
  options.onListening?.(listening.url, listening.loginUrl());
  const { idleExitMs, exit, onHandoff } = options;
  using _ = reloadTlsOnHangup(server, listening);
  const idle = idleExitMs === undefined ? null : watchIdle(server, idleExitMs, systemClock);
  try {
    await waitForSignal(server, idle?.over ?? null, listening, exit, onHandoff);
  } finally {
    idle?.stop();
  }
}

/**
 * Reloads certificate and key on SIGHUP, without a restart. If the new ones are invalid, logs the error and keeps the
 * old ones.
 */
function reloadTlsOnHangup(server: ExecServer, { reloadTls }: ListeningServer): Disposable {
  if (!reloadTls) return { [Symbol.dispose]: () => undefined };
  const onHangUp = () => {
    try {
      reloadTls();
      server.log("info", "reloaded certificate and key");
    } catch (error) {
      server.log(
        "error",
        `cannot reload the certificate: ${errorMessage(error)}; the previous one stays in use`,
      );
    }
  };
  process.on("SIGHUP", onHangUp);
  return { [Symbol.dispose]: () => process.off("SIGHUP", onHangUp) };
}

/** Runs a server that already listens until a signal arrives. */
export function runUntilSignal(
  server: ExecServer,
  listening: ListeningServer,
  exit?: (code: number) => void,
): Promise<void> {
  return waitForSignal(server, null, listening, exit);
}

/**
 * A signal to the whole process group reaches a server twice, once through its watchdog. Signals within this time
 * after the first count as the same one.
 */
const SAME_SIGNAL_MS = 250;

/**
 * Shuts the server down after the first signal, or hands off when `leave` resolves. The second signal exits without
 * waiting.
 */
async function waitForSignal(
  server: ExecServer,
  served: Promise<void> | null,
  listening?: ListeningServer,
  exit: (code: number) => void = (code) => process.exit(code),
  leave?: Promise<void>,
): Promise<void> {
  const watchdog = connectWatchdog(systemClock);
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
    const signalled = stop.promise.then(() => "end" as const);
    const outcomes = [signalled, served?.then(() => "end" as const), leave?.then(() => "leave" as const)];
    if ((await Promise.race(outcomes.filter((outcome) => outcome !== undefined))) === "leave") {
      const unbound = listening?.close("replaced");
      await server.handOff();
      listening?.destroyPending();
      // The last messages are still being sent.
      await unbound;
      // Persistent processes would keep this program's event loop alive.
      exit(0);
      return;
    }
    const ended = watchdog.reportShutdown(server.config.shutdownGraceMs);
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
