import type { Readable, Writable } from "node:stream";
import { systemClock } from "../../async/clock.ts";
import { messageOf } from "../../base/error-message.ts";
import type { ExecServer } from "../exec-server.ts";
import { type ListenOptions, listen, serveStdio } from "../listen/listen.ts";
import type { ExecServerTransport } from "../listen/listen-url.ts";
import type { Listening } from "../listen/websocket-gateway.ts";
import { findWatchdog } from "../watchdog.ts";
import { watchIdleness } from "./idle-exit.ts";

export interface RunOptions extends ListenOptions {
  /** Called with the URL, and the web console's where there is one, once connections are taken; not for stdio. */
  onListening?: (url: string, loginUrl: string | null) => void;
  /** Where stdio is served; the program's own streams by default. */
  stdin?: Readable;
  stdout?: Writable;
  /** Ends when there has been no connection, no session and no live process for this long. Default: never. */
  idleExitMs?: number | undefined;
  /** How the program ends at once when it is told a second time; `process.exit` by default. */
  exit?: (code: number) => void;
  /** Resolves when another server is to take this one's place. */
  leave?: Promise<void> | undefined;
}

/**
 * Serves until it is told to stop: the end of stdin on stdio, SIGTERM or SIGINT everywhere. Then every child is ended
 * (TERM, grace, KILL, sweep) before it resolves.
 */
export async function runServer(
  server: ExecServer,
  transport: ExecServerTransport,
  options: RunOptions = {},
): Promise<void> {
  if (transport.type === "stdio") {
    const { stdin = process.stdin, stdout = process.stdout } = options;
    await untilSignalled(server, serveStdio(server, stdin, stdout), undefined, options.exit);
    return;
  }
  const listening = await listen(server, transport, options);
  options.onListening?.(listening.url, listening.loginUrl());
  const { idleExitMs, exit, leave } = options;
  using _ = renewTlsOnHangUp(server, listening);
  const idle = idleExitMs === undefined ? null : watchIdleness(server, idleExitMs, systemClock);
  try {
    await untilSignalled(server, idle?.over ?? null, listening, exit, leave);
  } finally {
    idle?.stop();
  }
}

/** A certificate is renewed without a new server; one that cannot be used is told, and the old one stays. */
function renewTlsOnHangUp(server: ExecServer, { renewTls }: Listening): Disposable {
  if (!renewTls) return { [Symbol.dispose]: () => undefined };
  const onHangUp = () => {
    try {
      renewTls();
      server.log("info", "certificate and key were read again");
    } catch (error) {
      server.log("error", `the former certificate stays in use: ${messageOf(error)}`);
    }
  };
  process.on("SIGHUP", onHangUp);
  return { [Symbol.dispose]: () => process.off("SIGHUP", onHangUp) };
}

/** Keeps a server that already listens going until a signal comes. */
export function runUntilSignalled(
  server: ExecServer,
  listening: Listening,
  exit?: (code: number) => void,
): Promise<void> {
  return untilSignalled(server, null, listening, exit);
}

/**
 * A signal to the whole group reaches a server twice, once through its watchdog: what comes this soon after the first is
 * the same one.
 */
const SAME_SIGNAL_MS = 250;

/** The second signal does not wait for anybody. */
async function untilSignalled(
  server: ExecServer,
  served: Promise<void> | null,
  listening?: Listening,
  exit: (code: number) => void = (code) => process.exit(code),
  leave?: Promise<void>,
): Promise<void> {
  const watchdog = findWatchdog(systemClock);
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
    const ways = [signalled, served?.then(() => "end" as const), leave?.then(() => "leave" as const)];
    if ((await Promise.race(ways.filter((way) => way !== undefined))) === "leave") {
      const unbound = listening?.close("replaced");
      await server.handOver();
      listening?.drop();
      // What was said last is still on its way.
      await unbound;
      // What is kept would keep this program, too.
      exit(0);
      return;
    }
    const ended = watchdog.ending(server.config.shutdownGraceMs);
    const unbound = listening?.close();
    await server.close();
    listening?.drop();
    await unbound;
    ended();
  } finally {
    process.removeListener("SIGTERM", onSignal);
    process.removeListener("SIGINT", onSignal);
  }
}
