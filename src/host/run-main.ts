import type { LocalBackend } from "../local/local-backend.ts";
import { loadAddon } from "../native/addon.ts";
import { exitImmediately } from "../native/exit-now.ts";
import { startLibuvThreads } from "../native/libuv-threads.ts";
import type { Supervisor } from "../native/supervisor-client.ts";
import type { ConsoleOptions } from "../server/console/console-gateway.ts";
import { ExecServer } from "../server/exec-server.ts";
import type { LogLevel, ServerLog } from "../server/host-services.ts";
import { runServer } from "../server/lifecycle/run-server.ts";
import { writeStandardLine } from "../server/lifecycle/stdio-stream.ts";
import type { ListenOptions } from "../server/listen/listen.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport } from "../server/listen/listen-url.ts";
import { listenForMetrics } from "../server/listen/metrics-listener.ts";
import { AuditLog } from "../server/observability/audit-log.ts";
import { ServerMetrics } from "../server/observability/server-metrics.ts";
import { stderrLog } from "../server/observability/stderr-log.ts";
import { HEARTBEAT_INTERVAL_MS, type ServerConfig } from "../server/server-config.ts";
import { VERSION } from "../version.ts";
import { consoleAssetsPath } from "./console-assets.ts";
import { createLocalHost } from "./local-host.ts";

export interface RunMainOptions extends Omit<ListenOptions, "web"> {
  /** Serves the web console of this installation. */
  web?: Omit<ConsoleOptions, "directory"> | undefined;
  /** Collects metrics for `/metrics`. */
  metrics?: boolean | undefined;
  /** Appends one JSON line per operation on a process to this file. */
  auditFile?: string | undefined;
  /** Creates a span per request through `@opentelemetry/api`. */
  otel?: boolean | undefined;
  /** Additionally serves the metrics at this address, without authentication. */
  metricsAt?: { host: string; port: number } | undefined;
  config?: Partial<ServerConfig>;
  /** Exits after this time without a connection, a session and a live process. */
  idleExitMs?: number | undefined;
  /** Logged as warnings once the server listens. */
  warnings?: readonly string[];
  /** A token generated for this run, printed once on stderr. */
  newToken?: string;
  /** Token and secret files; hidden from sandboxed processes. */
  secretFiles?: readonly string[];
  /** Minimum level of log lines on stderr. Default: `warn`. */
  logLevel?: LogLevel;
  /** Runs below a supervisor: persistent processes and the listening socket survive this server. */
  supervised?: { livenessTimeoutMs: number } | undefined;
}

/**
 * Delay before libuv's threads start. Late enough not to delay the first request, early enough that clients have not
 * exhausted the process limit.
 */
const START_THREADS_AFTER_MS = 50;

/** Serves the local host on stdio until stdin ends or a signal arrives. */
export function runMain(options?: RunMainOptions): Promise<void> {
  return runMainWithTransport(ExecServerTransport.fromListenUrl(DEFAULT_LISTEN_URL), options);
}

/**
 * Serves the local host until it is stopped. When it listens, it prints the URL alone on stdout and a line with the URL on
 * stderr.
 *
 * @example
 * await runMainWithTransport(ExecServerTransport.fromListenUrl("ws://127.0.0.1:0"));
 */
export async function runMainWithTransport(
  transport: ExecServerTransport,
  options: RunMainOptions = {},
): Promise<void> {
  const log = stderrLog(options.logLevel ?? "warn");
  const { config = {}, warnings = [], newToken, secretFiles = [], web, metrics, metricsAt, auditFile, otel } = options;
  const { auth, operatorUids, allowHosts, tls } = options;
  const maskedPaths = [
    ...secretFiles,
    ...(auditFile === undefined ? [] : [auditFile]),
    ...(transport.type === "unix" ? [transport.path] : []),
  ];
  const supervisor = options.supervised ? await openSupervisor(options.supervised.livenessTimeoutMs) : null;
  const host = createLocalHost({
    log,
    config,
    maskedPaths,
    subreaper: true,
    keepFreedMemory: true,
    supervisor: supervisor?.machine,
  });
  const tracing = otel ? await (await import("../server/observability/tracing.ts")).openTracing(VERSION) : undefined;
  const server = new ExecServer(
    {
      ...host,
      tracing,
      generation: supervisor?.generation,
      metrics: metrics ? new ServerMetrics() : undefined,
      audit: auditFile === undefined ? undefined : new AuditLog(auditFile),
    },
    config,
  );
  const handoff = Promise.withResolvers<void>();
  if (supervisor) restorePersistent(server, host.backend, log);
  const metricsListener = metricsAt ? await listenForMetrics(server, metricsAt) : null;
  const warn = () => {
    for (const warning of [...warnings, ...server.degradedComponents()]) log("warn", warning);
  };
  if (transport.type === "stdio") warn();
  setTimeout(startLibuvThreads, START_THREADS_AFTER_MS).unref();
  await runServer(server, transport, {
    auth,
    operatorUids,
    allowHosts,
    tls,
    web: web ? { ...web, directory: consoleAssetsPath() } : metrics ? { directory: null } : undefined,
    idleExitMs: options.idleExitMs,
    exit: exitImmediately,
    inherited: supervisor?.listener ?? undefined,
    onHandoff: handoff.promise,
    onListening: (url, loginUrl) => {
      supervisor?.onHandoff(handoff.resolve);
      if (supervisor) startHeartbeat(supervisor);
      // The first server has printed the URL already.
      if (supervisor && supervisor.listener !== null) {
        log("info", "replaced another server", { url, generation: supervisor.generation });
        return;
      }
      // stderr first, so that a reader of the line on stdout finds this line already printed.
      writeStandardLine(2, `procwire exec-server listening on ${url}`);
      if (newToken !== undefined) writeStandardLine(2, tokenMessage(url, newToken));
      if (loginUrl !== null) writeStandardLine(2, `web console, to be opened once within 15 minutes: ${loginUrl}`);
      if (metricsListener) writeStandardLine(2, `metrics at ${metricsListener.url}`);
      writeStandardLine(1, url);
      warn();
    },
  }).finally(() => metricsListener?.close());
  // The connection to the supervisor would keep this process running.
  if (supervisor) exitImmediately(0);
}

async function openSupervisor(livenessTimeoutMs: number): Promise<Supervisor> {
  const native = loadAddon();
  if (native.type === "missing") throw new Error(`--supervised requires the native addon: ${native.why}`);
  const { connectSupervisor } = await import("../native/supervisor-client.ts");
  const supervisor = connectSupervisor(native.addon, livenessTimeoutMs);
  if (!supervisor)
    throw new Error(
      "cannot run supervised: no supervisor started this server; start it with `procwire serve --supervised`",
    );
  return supervisor;
}

/** Restores sessions and processes of earlier servers before the first client connects. */
function restorePersistent(server: ExecServer, backend: LocalBackend, log: ServerLog): void {
  const { restored, unreadable } = backend.restorePersistent();
  server.restorePersistent(restored);
  if (unreadable > 0)
    log("error", "killed persistent processes whose records another version of procwire wrote", {
      processes: unreadable,
    });
}

function startHeartbeat(supervisor: Supervisor): void {
  supervisor.ready();
  setInterval(() => supervisor.sendHeartbeat(), HEARTBEAT_INTERVAL_MS).unref();
}

/** The only output that contains a generated token. */
export function tokenMessage(url: string, token: string): string {
  return `its token, shown this once: ${token}\n  PROCWIRE_TOKEN=${token} procwire run --connect ${url} -- uname -a`;
}
