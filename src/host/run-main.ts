import type { LocalBackend } from "../local/local-backend.ts";
import { loadAddon } from "../native/addon.ts";
import { exitNow } from "../native/exit-now.ts";
import { makeNodeThreads } from "../native/libuv-threads.ts";
import type { Keeper } from "../native/native-keeper.ts";
import type { WebOptions } from "../server/console/console-gateway.ts";
import { ExecServer } from "../server/exec-server.ts";
import type { LogLevel, ServerLog } from "../server/host-services.ts";
import { runServer } from "../server/lifecycle/run-server.ts";
import { writeStandardLine } from "../server/lifecycle/stdio-stream.ts";
import type { ListenOptions } from "../server/listen/listen.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport } from "../server/listen/listen-url.ts";
import { listenForMetrics } from "../server/listen/metrics-listener.ts";
import { AuditLog } from "../server/observability/audit-log.ts";
import { ServerFigures } from "../server/observability/server-metrics.ts";
import { stderrLog } from "../server/observability/stderr-log.ts";
import { type ServerConfig, SIGN_OF_LIFE_EVERY_MS } from "../server/server-config.ts";
import { VERSION } from "../version.ts";
import { webFolder } from "./console-assets.ts";
import { createLocalHost } from "./local-host.ts";

export interface RunMainOptions extends Omit<ListenOptions, "web"> {
  /** Serves the web console; its page is found beside this program. */
  web?: Omit<WebOptions, "folder"> | undefined;
  /** Counts for `/metrics`. */
  metrics?: boolean | undefined;
  /** Everything done to a process is appended here, a JSON line each. */
  auditFile?: string | undefined;
  /** Makes a span of each request, through `@opentelemetry/api`. */
  otel?: boolean | undefined;
  /** Tells the figures here too, to everybody who reaches it. */
  metricsAt?: { host: string; port: number } | undefined;
  config?: Partial<ServerConfig>;
  /** Ends when there has been no connection, no session and no live process for this long. */
  idleExitMs?: number | undefined;
  /** Logged as warnings once the server listens. */
  warnings?: readonly string[];
  /** A token that was made for this run, shown once on stderr. */
  newToken?: string;
  /** Token and secret files; hidden from sandboxed processes. */
  secretFiles?: readonly string[];
  /** What is told on stderr; default `warn`. */
  logLevel?: LogLevel;
  /** Runs below a keeper: processes can outlive it, and so does its listening socket. */
  keep?: { hungAfterMs: number } | undefined;
}

/** Late enough not to delay the first request, early enough that clients have not used up the process limit yet. */
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
  const {
    config = {},
    warnings = [],
    newToken,
    secretFiles = [],
    web,
    metrics,
    metricsAt,
    auditFile,
    otel,
  } = options;
  const { auth, operatorUids, allowHosts, tls } = options;
  const hidden = [
    ...secretFiles,
    ...(auditFile === undefined ? [] : [auditFile]),
    ...(transport.type === "unix" ? [transport.path] : []),
  ];
  const keeper = options.keep ? await openKeeper(options.keep.hungAfterMs) : null;
  const host = createLocalHost({
    log,
    config,
    hidden,
    subreaper: true,
    keepFreedMemory: true,
    keeper: keeper?.machine,
  });
  const tracing = otel
    ? await (await import("../server/observability/tracing.ts")).openTracing(VERSION)
    : undefined;
  const server = new ExecServer(
    {
      ...host,
      tracing,
      generation: keeper?.generation,
      figures: metrics ? new ServerFigures() : undefined,
      audit: auditFile === undefined ? undefined : new AuditLog(auditFile),
    },
    config,
  );
  const leaving = Promise.withResolvers<void>();
  if (keeper) restoreKept(server, host.backend, log);
  const figures = metricsAt ? await listenForMetrics(server, metricsAt) : null;
  const warn = () => {
    for (const part of [...warnings, ...server.degraded()]) log("warn", part);
  };
  if (transport.type === "stdio") warn();
  setTimeout(makeNodeThreads, MAKE_THREADS_AFTER_MS).unref();
  await runServer(server, transport, {
    auth,
    operatorUids,
    allowHosts,
    tls,
    web: web ? { ...web, folder: webFolder() } : metrics ? { folder: null } : undefined,
    idleExitMs: options.idleExitMs,
    exit: exitNow,
    inherited: keeper?.listener ?? undefined,
    leave: leaving.promise,
    onListening: (url, loginUrl) => {
      keeper?.onLeave(leaving.resolve);
      if (keeper) signOfLife(keeper);
      // Whoever waited for the first server's line has it.
      if (keeper && keeper.listener !== null) {
        log("info", "took the place of another server", { url, generation: keeper.generation });
        return;
      }
      // stderr first, so that whoever waits for the line on stdout finds this one there already.
      writeStandardLine(2, `procwire exec-server listening on ${url}`);
      if (newToken !== undefined) writeStandardLine(2, tokenHint(url, newToken));
      if (loginUrl !== null)
        writeStandardLine(2, `web console, to be opened once within 15 minutes: ${loginUrl}`);
      if (figures) writeStandardLine(2, `figures at ${figures.url}`);
      writeStandardLine(1, url);
      warn();
    },
  }).finally(() => figures?.close());
  // The line to it would hold the program.
  if (keeper) exitNow(0);
}

async function openKeeper(hungAfterMs: number): Promise<Keeper> {
  const native = loadAddon();
  if (native.type === "missing")
    throw new Error(`--keep needs the native addon, which is missing: ${native.why}`);
  const { openKeeper } = await import("../native/native-keeper.ts");
  const keeper = openKeeper(native.addon, hungAfterMs);
  if (!keeper)
    throw new Error(
      "--keep needs the keeper above the server; `procwire serve --keep` brings it where it was built",
    );
  return keeper;
}

/** Sessions and processes of earlier servers are known before anybody can ask for them. */
function restoreKept(server: ExecServer, backend: LocalBackend, log: ServerLog): void {
  const { restored, unreadable } = backend.takeKept();
  server.restore(restored);
  if (unreadable > 0)
    log("error", "ended kept processes of another version of procwire, whose records cannot be read", {
      processes: unreadable,
    });
}

function signOfLife(keeper: Keeper): void {
  keeper.ready();
  setInterval(() => keeper.alive(), SIGN_OF_LIFE_EVERY_MS).unref();
}

/** The only place where a generated token is shown. */
export function tokenHint(url: string, token: string): string {
  return `its token, shown this once: ${token}\n  PROCWIRE_TOKEN=${token} procwire run --connect ${url} -- uname -a`;
}
