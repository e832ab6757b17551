import { resolve } from "node:path";
import type { ProcessLimits } from "../../exec/backend/process-limits.ts";
import { jobsHome } from "../../fanout/ledger/jobs-directory.ts";
import { LOOPBACK, parseForwardRule } from "../../forward/forward-rules.ts";
import type { RunMainOptions } from "../../host/run-main.ts";
import { type AuthFlags, authFromFlags } from "../../server/auth/auth-config.ts";
import type { AskJobs } from "../../server/console/jobs-http-api.ts";
import type { LogLevel } from "../../server/host-services.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport, isLoopback } from "../../server/listen/listen-url.ts";
import { isLogLevel } from "../../server/observability/stderr-log.ts";
import {
  DEFAULT_HUNG_AFTER_MS,
  LARGEST_MESSAGE_BYTES,
  type ServerConfig,
} from "../../server/server-config.ts";
import { UsageError } from "../command.ts";
import { askJobsOf, DATABASE_VARIABLE } from "../support/jobs-reader.ts";
import {
  isNumber,
  isString,
  type Name,
  readServeValues,
  type Value,
  type Values,
} from "./serve-option-table.ts";
import { PLAIN_TOKENS, tlsFromFlags } from "./tls-options.ts";

export interface ServeOptions extends RunMainOptions {
  transport: ExecServerTransport;
  config: Partial<ServerConfig>;
  logLevel: LogLevel;
  /** Files that let their reader in. */
  secretFiles: string[];
}

/** From arguments to options; null when help was asked for. */
export function parseServeOptions(argv: string[]): ServeOptions | null {
  const values = readServeValues(argv);
  return values && toOptions(values);
}

function toOptions(values: Values): ServeOptions {
  const logLevel = values["log-level"] ?? "warn";
  if (typeof logLevel !== "string" || !isLogLevel(logLevel)) {
    throw new UsageError(`unsupported --log-level \`${logLevel}\`; expected debug, info, warn or error`);
  }
  const onDetach = values["on-detach"];
  if (onDetach !== undefined && !isDetachPolicy(onDetach)) {
    throw new UsageError(`unsupported --on-detach \`${onDetach}\`; expected pause or evict`);
  }
  const messageBytes = values["max-message-bytes"];
  if (isNumber(messageBytes) && messageBytes > LARGEST_MESSAGE_BYTES) {
    throw new UsageError(
      `--max-message-bytes takes at most ${LARGEST_MESSAGE_BYTES}, got \`${messageBytes}\``,
    );
  }
  const config: Partial<ServerConfig> = {
    ...pick("maxProcesses", values["max-processes"], isNumber),
    ...pick("maxServerProcesses", values["max-server-processes"], isNumber),
    ...pick("maxConnections", values["max-connections"], isNumber),
    ...pick("maxMessageBytes", values["max-message-bytes"], isNumber),
    ...pick("memoryBudgetBytes", values["memory-budget-bytes"], isNumber),
    ...pick("retainedOutputBytes", values["retained-output-bytes"], isNumber),
    ...pick("detachedSessionTtlMs", inMs(values["detached-session-ttl"]), isNumber),
    ...pick("shutdownGraceMs", inMs(values["shutdown-grace"]), isNumber),
    ...pick("allowDirectExec", values["allow-direct-exec"], isBoolean),
    ...pick("allowPreparedExec", values["allow-prepared-exec"], isBoolean),
    ...pick("onDetach", onDetach, isDetachPolicy),
    ...pick("allowForward", forwardRules(values["allow-forward"]), isStrings),
    limits: limitsOf(values),
  };
  const text = (name: Name) => (typeof values[name] === "string" ? values[name] : undefined);
  const skew = values["ws-max-clock-skew-seconds"];
  const auth: AuthFlags = {
    wsAuth: text("ws-auth"),
    wsTokenFile: text("ws-token-file"),
    wsTokenSha256: text("ws-token-sha256"),
    wsSharedSecretFile: text("ws-shared-secret-file"),
    wsIssuer: text("ws-issuer"),
    wsAudience: text("ws-audience"),
    wsMaxClockSkewSeconds: typeof skew === "number" ? skew : undefined,
    operatorTokenFile: text("operator-token-file"),
    operatorClaim: text("operator-claim"),
  };
  const transport = ExecServerTransport.fromListenUrl(text("listen") ?? DEFAULT_LISTEN_URL);
  const tls = tlsFromFlags(transport, text("tls-cert"), text("tls-key"));
  if (tls && values.keep === true)
    throw new UsageError(
      "--tls-cert does not go with --keep: a keeper hands its socket to servers that speak no TLS on it; put something in front that does",
    );
  const { warnings = [], ...judged } = authFromFlags(auth);
  const isInTheClear = transport.type === "websocket" && !isLoopback(transport.host) && !tls;
  return {
    transport,
    config,
    ...judged,
    warnings: isInTheClear && judged.auth.type !== "none" ? [...warnings, PLAIN_TOKENS] : warnings,
    tls,
    operatorUids: listOf(values["operator-uid"], isNumber),
    allowHosts: listOf(values["allow-host"], isString),
    web:
      values.web === true
        ? {
            allowOrigins: listOf(values["allow-origin"], isString).map(checkedOrigin),
            jobs: jobsOf(text("jobs"), values["jobs-database"] === true),
          }
        : undefined,
    metrics: values.metrics === true || values["metrics-listen"] !== undefined,
    metricsAt: metricsAddress(text("metrics-listen")),
    auditFile: text("audit"),
    otel: values.otel === true,
    idleExitMs: inMs(values["idle-exit"]),
    keep: keepOf(values),
    logLevel,
    secretFiles: [auth.wsTokenFile, auth.wsSharedSecretFile, auth.operatorTokenFile, text("tls-key")].filter(
      (path) => path !== undefined,
    ),
  };
}

function jobsOf(folder: string | undefined, inDatabase: boolean): AskJobs | undefined {
  if (folder === undefined && !inDatabase) return undefined;
  const databaseUrl = inDatabase ? process.env[DATABASE_VARIABLE] || undefined : undefined;
  if (inDatabase && databaseUrl === undefined)
    throw new UsageError(
      `--jobs-database needs ${DATABASE_VARIABLE}, the URL of the database that has the jobs`,
    );
  return askJobsOf({
    folder: folder === undefined ? jobsHome(process.env, process.cwd()) : resolve(folder),
    databaseUrl,
  });
}

function keepOf(values: Values): ServeOptions["keep"] {
  if (values.keep !== true) {
    if (values["hung-after"] !== undefined)
      throw new UsageError("--hung-after is about the server below a keeper; add --keep");
    return undefined;
  }
  const listen = values.listen ?? DEFAULT_LISTEN_URL;
  if (listen === DEFAULT_LISTEN_URL)
    throw new UsageError(
      "--keep needs a socket that outlives the server: --listen ws://IP:PORT or unix://PATH",
    );
  if (values["ws-auth"] === "auto")
    throw new UsageError(
      "--ws-auth auto makes a token for one server, and --keep runs several after one another; give --ws-token-file",
    );
  return { hungAfterMs: inMs(values["hung-after"]) ?? DEFAULT_HUNG_AFTER_MS };
}

function checkedOrigin(text: string): string {
  const origin = URL.parse(text)?.origin;
  if (origin === undefined || origin === "null" || origin !== text.replace(/\/$/, "")) {
    throw new UsageError(
      `--allow-origin \`${text}\` must be a page's origin, such as https://console.example`,
    );
  }
  return origin;
}

function metricsAddress(text: string | undefined): { host: string; port: number } | undefined {
  if (text === undefined) return undefined;
  const url = URL.parse(`http://${text}`);
  const port = /:(\d+)$/.exec(text)?.[1];
  if (!url || port === undefined || url.pathname !== "/") {
    throw new UsageError(`--metrics-listen \`${text}\` must be IP:PORT, such as 127.0.0.1:9464`);
  }
  return { host: url.hostname.replace(/^\[|\]$/g, ""), port: Number(port) };
}

function forwardRules(value: Value | undefined): string[] | undefined {
  if (value === undefined) return undefined;
  return listOf(value, isString).map((text) => {
    const rule = parseForwardRule(text);
    if (rule !== null) return rule;
    throw new UsageError(`--allow-forward \`${text}\` must be HOST:PORT, HOST:* or ${LOOPBACK}`);
  });
}

function isStrings(value: unknown): value is string[] {
  return Array.isArray(value);
}

function limitsOf(values: Values): ProcessLimits {
  return {
    ...pick("wallTimeMs", inMs(values["limit-wall-time"]), isNumber),
    ...pick("cpuTimeMs", inMs(values["limit-cpu-time"]), isNumber),
    ...pick("memoryBytes", values["limit-memory-bytes"], isNumber),
    ...pick("processMemoryBytes", values["limit-process-memory-bytes"], isNumber),
    ...pick("openFiles", values["limit-open-files"], isNumber),
    ...pick("processes", values["limit-processes"], isNumber),
    ...pick("outputBytes", values["limit-output-bytes"], isNumber),
  };
}

const isBoolean = (value: unknown): value is boolean => typeof value === "boolean";
const inMs = (seconds: Values[Name]) => (typeof seconds === "number" ? seconds * 1000 : undefined);

function listOf<T>(value: unknown, is: (value: unknown) => value is T): T[] {
  return Array.isArray(value) ? value.filter(is) : [];
}

function isDetachPolicy(value: unknown): value is ServerConfig["onDetach"] {
  return value === "pause" || value === "evict";
}

function pick<K extends string, T>(
  key: K,
  value: unknown,
  is: (value: unknown) => value is T,
): { [P in K]?: T } {
  return is(value) ? ({ [key]: value } as { [P in K]?: T }) : {};
}
