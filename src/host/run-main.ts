import { FlagError } from "../base/flag-error.ts";
import * as option from "../exec/options/option-schema.ts";
import { variables } from "../exec/options/process-options.ts";
import type { LocalBackend } from "../local/local-backend.ts";
import { exitImmediately } from "../native/exit-now.ts";
import { startLibuvThreads } from "../native/libuv-threads.ts";
import { loadAddon } from "../native/load-addon.ts";
import type { SupervisionOptions, Supervisor } from "../native/supervisor-client.ts";
import { parseCredential } from "../protocol/network/credential-definition.ts";
import type { AuditSinkAddress } from "../server/audit/audit-sink.ts";
import type { ConsoleOptions } from "../server/console/console-gateway.ts";
import { ExecServer } from "../server/exec-server.ts";
import type { LogLevel, ServerLog } from "../server/host-services.ts";
import { runServer } from "../server/lifecycle/run-server.ts";
import { writeStandardLine } from "../server/lifecycle/stdio-stream.ts";
import { hostForOthers } from "../server/listen/console-hosts.ts";
import type { ListenOptions } from "../server/listen/listen.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport } from "../server/listen/listen-url.ts";
import { listenForMetrics } from "../server/listen/metrics-listener.ts";
import { ServerMetrics } from "../server/observability/server-metrics.ts";
import { stderrLog } from "../server/observability/stderr-log.ts";
import { HEARTBEAT_INTERVAL_MS, type ServerConfig } from "../server/server-config.ts";
import { listenFields, serverConfig, transportKind, webFields } from "../server/server-options.ts";
import { VERSION } from "../version.ts";
import { openAuditLog } from "./audit/open-audit-log.ts";
import { consoleAssetsPath } from "./console-assets.ts";
import { createLocalHost } from "./local-host.ts";
import { exposedSecrets, rejectExposed } from "./local-sandbox.ts";
import { secretFilesOf } from "./network/local-network.ts";

export interface RunMainOptions extends Omit<ListenOptions, "web"> {
  /** Serves the web console of this installation. */
  web?: Omit<ConsoleOptions, "directory"> | undefined;
  /** Collects metrics for `/metrics`. */
  metrics?: boolean | undefined;
  /** Appends one JSON line per audited decision to this file. */
  auditFile?: string | undefined;
  /** Also sends each audit line to this socket. Requires `auditFile`. */
  auditSink?: AuditSinkAddress | undefined;
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
  newToken?: string | undefined;
  /**
   * Token and secret files; hidden from sandboxed processes. Their directories must contain only secrets, unless no
   * sandbox works on this host or `noSandbox` is set.
   */
  secretFiles?: readonly string[];
  /** The flag of each secret file, for errors. */
  secretFlags?: Readonly<Record<string, string>> | undefined;
  /** Offers no sandboxes: the server rejects every request for one. */
  noSandbox?: boolean | undefined;
  /** Further files of the server, which may be in the directory of a secret file: certificate, configuration. */
  ownFiles?: readonly string[] | undefined;
  /** Minimum level of log lines on stderr. Default: `warn`. */
  logLevel?: LogLevel;
  /** Runs below a supervisor: persistent processes and the listening socket survive this server. */
  supervised?: SupervisionOptions | undefined;
}

const { required, optionsOf } = option;
const runMainOptions = optionsOf<RunMainOptions>(() => ({
  ...listenFields,
  inherited: option.count,
  web: optionsOf<NonNullable<RunMainOptions["web"]>>(() => webFields),
  auditSink: optionsOf<AuditSinkAddress>(() => ({
    type: required(option.oneOf("unix", "syslog")),
    path: required(option.text),
  })),
  metricsAt: optionsOf<{ host: string; port: number }>(() => ({
    host: required(option.text),
    port: required(option.smallCount),
  })),
  config: serverConfig,
  idleExitMs: option.duration,
  newToken: option.secretText,
  auditFile: option.text,
  secretFlags: variables,
  logLevel: option.oneOf("debug", "info", "warn", "error"),
  supervised: optionsOf<SupervisionOptions>(() => ({
    livenessTimeoutMs: required(option.nullOr(option.duration)),
    giveUpAfter: required(option.nullOr(option.count)),
  })),
  ...option.each(option.flag, "metrics", "otel", "noSandbox"),
  ...option.each(option.texts, "warnings", "secretFiles", "ownFiles"),
}));

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
  option.checkArgument("runMainWithTransport", "transport", transport, transportKind);
  option.checkOptions("runMainWithTransport", options, runMainOptions);
  const log = stderrLog(options.logLevel ?? "warn");
  const { config = {}, warnings = [], newToken, secretFiles = [], web, metrics, metricsAt, otel } = options;
  const { auditFile, auditSink, secretFlags, noSandbox } = options;
  const { auth, authFiles, revokedTokensFile, operatorUids, allowHosts, tls, clientCertificates } = options;
  const maskedPaths = [
    ...secretFiles,
    ...(auditFile === undefined ? [] : [auditFile]),
    ...(auditSink?.type === "unix" ? [auditSink.path] : []),
    ...(transport.type === "unix" ? [transport.path] : []),
  ];
  const credentialFiles = secretFilesOf((config.credentials ?? []).map(parseCredential));
  const secrets = [...secretFiles, auditFile ?? [], credentialFiles].flat();
  const ownFiles = [...maskedPaths, ...credentialFiles, ...(options.ownFiles ?? [])];
  const supervisor = options.supervised ? await openSupervisor(options.supervised) : null;
  const flags = { ...Object.fromEntries(credentialFiles.map((path) => [path, "--credential"])), ...secretFlags };
  const exposed = noSandbox ? [] : await exposedSecrets(secrets, ownFiles);
  // The operator of a first server can move the file now. The next server serves the processes of the first one.
  if (!supervisor?.listener) rejectExposed(exposed, flags, "offer no sandboxes with --no-sandbox");
  const host = createLocalHost({
    log,
    config,
    maskedPaths,
    ownFiles,
    noSandbox,
    subreaper: true,
    keepFreedMemory: true,
    supervisor: supervisor?.channel,
  });
  const tracing = otel ? await (await import("../server/observability/tracing.ts")).openTracing(VERSION) : undefined;
  const server = new ExecServer(
    {
      ...host,
      tracing,
      generation: supervisor?.generation,
      metrics: metrics ? new ServerMetrics() : undefined,
      audit: auditFile === undefined ? undefined : openAuditLog(auditFile, auditSink),
    },
    config,
  );
  const handoff = Promise.withResolvers<void>();
  if (supervisor) await restorePersistent(server, host.backend, log);
  const metricsListener = metricsAt
    ? await listenForMetrics(server, metricsAt).catch((error: unknown) => {
        throw new FlagError("--metrics-listen", `${metricsAt.host}:${metricsAt.port}`, error);
      })
    : null;
  const warn = () => {
    for (const warning of [...warnings, ...server.degradedComponents()]) log("warn", warning);
  };
  if (transport.type === "stdio") warn();
  setTimeout(startLibuvThreads, START_THREADS_AFTER_MS).unref();
  await runServer(server, transport, {
    auth,
    authFiles,
    revokedTokensFile,
    operatorUids,
    allowHosts,
    tls,
    clientCertificates,
    web: web ? { ...web, directory: consoleAssetsPath() } : metrics ? { directory: null } : undefined,
    idleExitMs: options.idleExitMs,
    exit: exitImmediately,
    inherited: supervisor?.listener ?? undefined,
    onHandoff: handoff.promise,
    onListening: (listening) => {
      const { url } = listening;
      supervisor?.onHandoff(handoff.resolve);
      if (supervisor) startHeartbeat(supervisor);
      // The first server has printed the URL already.
      if (supervisor && supervisor.listener !== null) {
        for (const { path, exposure } of exposed)
          log("warn", `sandboxed starts are rejected: secret file \`${path}\`: ${exposure}`);
        log("info", "replaced another server", { url, generation: supervisor.generation });
        return;
      }
      // stderr first, so that a reader of the line on stdout finds this line already printed.
      writeStandardLine(2, `procwire exec-server listening on ${url}`);
      if (newToken !== undefined) writeStandardLine(2, tokenMessage(url, newToken));
      const loginUrl = listening.loginUrl();
      if (loginUrl !== null) {
        writeStandardLine(2, `web console, to be opened once within 15 minutes: ${loginUrl}`);
        const otherHost = hostForOthers(transport, allowHosts);
        if (otherHost !== null)
          writeStandardLine(2, `web console for another host, also once: ${listening.loginUrl(otherHost)}`);
      } else if (web) writeStandardLine(2, `web console: run \`procwire console --connect ${url}\``);
      if (metricsListener) writeStandardLine(2, `metrics at ${metricsListener.url}`);
      writeStandardLine(1, url);
      warn();
    },
  }).finally(() => {
    metricsListener?.close();
    server.audit?.close();
  });
  // The connection to the supervisor would keep this process running.
  if (supervisor) exitImmediately(0);
}

async function openSupervisor(supervised: SupervisionOptions): Promise<Supervisor> {
  const native = loadAddon();
  if (native.type === "missing") throw new Error(`--supervised requires the native addon: ${native.why}`);
  const { connectSupervisor } = await import("../native/supervisor-client.ts");
  const supervisor = connectSupervisor(native.addon, supervised);
  if (!supervisor)
    throw new Error(
      "cannot run supervised: no supervisor started this server; start it with `procwire serve --supervised`",
    );
  return supervisor;
}

/** Restores sessions and processes of earlier servers before the first client connects. */
async function restorePersistent(server: ExecServer, backend: LocalBackend, log: ServerLog): Promise<void> {
  const { restored, unreadable } = await backend.restorePersistent();
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
function tokenMessage(url: string, token: string): string {
  return `its token, shown this once: ${token}\n  PROCWIRE_TOKEN=${token} procwire run --connect ${url} -- uname -a`;
}
