import { resolve } from "node:path";
import type { ProcessLimits } from "../../exec/backend/process-limits.ts";
import { isRequiredSandbox, REQUIRED_SANDBOXES, type RequiredSandbox } from "../../exec/backend/sandbox-requirement.ts";
import { jobsDirectory } from "../../fanout/ledger/jobs-directory.ts";
import { ANY_RULE, LOOPBACK_RULE, parseForwardRule } from "../../forward/forward-rules.ts";
import type { RunMainOptions } from "../../host/run-main.ts";
import { type AuthFlags, parseAuthFlags } from "../../server/auth/auth-config.ts";
import { hasSeveralPrincipals } from "../../server/auth/websocket-auth.ts";
import type { JobsQueryHandler } from "../../server/console/jobs-http-api.ts";
import type { LogLevel } from "../../server/host-services.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport, isLoopback } from "../../server/listen/listen-url.ts";
import { isLogLevel } from "../../server/observability/stderr-log.ts";
import { DEFAULT_LIVENESS_TIMEOUT_MS, LARGEST_MESSAGE_BYTES, type ServerConfig } from "../../server/server-config.ts";
import { UsageError } from "../command.ts";
import { DATABASE_URL_VARIABLE, startJobsThread } from "../support/jobs-reader.ts";
import { auditSinkAddress } from "./approval-options.ts";
import { parseCredentialFlags } from "./credential-options.ts";
import {
  isNumber,
  isString,
  parseServeArguments,
  type ServeOptionName,
  type ServeOptionValue,
  type ServeOptionValues,
} from "./serve-option-table.ts";
import { PLAINTEXT_TOKEN_WARNING, tlsFromFlags } from "./tls-options.ts";

export interface ServeOptions extends RunMainOptions {
  transport: ExecServerTransport;
  config: Partial<ServerConfig>;
  logLevel: LogLevel;
  /** Files with tokens and keys, hidden from sandboxed processes. */
  secretFiles: string[];
}

/** Parses the arguments. Returns null if --help is set. */
export function parseServeOptions(argv: string[]): ServeOptions | null {
  const values = parseServeArguments(argv);
  return values && { ...toOptions(values), ownFiles: ownFiles(argv, values) };
}

/** Files of the server that are not secret, but may be in the same directory. */
function ownFiles(argv: string[], values: ServeOptionValues): string[] {
  const config = argv.flatMap(
    (flag, at) => (flag === "--config" ? argv[at + 1] : /^--config=(.*)/.exec(flag)?.[1]) ?? [],
  );
  return [...config, values["tls-cert"]].filter(isString);
}

function toOptions(values: ServeOptionValues): ServeOptions {
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
    throw new UsageError(`--max-message-bytes takes at most ${LARGEST_MESSAGE_BYTES}, got \`${messageBytes}\``);
  }
  if (values.sandbox === false && values["require-sandbox"] !== undefined)
    throw new UsageError("--no-sandbox conflicts with --require-sandbox");
  const config: Partial<ServerConfig> = {
    ...optionalField("maxProcesses", values["max-processes"], isNumber),
    ...optionalField("maxServerProcesses", values["max-server-processes"], isNumber),
    ...optionalField("maxConnections", values["max-connections"], isNumber),
    ...optionalField("maxMessageBytes", values["max-message-bytes"], isNumber),
    ...optionalField("memoryBudgetBytes", values["memory-budget-bytes"], isNumber),
    ...optionalField("retainedOutputBytes", values["retained-output-bytes"], isNumber),
    ...optionalField("detachedSessionTtlMs", inMs(values["detached-session-ttl"]), isNumber),
    ...optionalField("shutdownGraceMs", inMs(values["shutdown-grace"]), isNumber),
    ...optionalField("allowDirectExec", values["allow-direct-exec"], isBoolean),
    ...optionalField("allowPreparedExec", values["allow-prepared-exec"], isBoolean),
    ...optionalField("requireSandbox", requiredSandbox(values["require-sandbox"]), isSandboxMode),
    ...optionalField("onDetach", onDetach, isDetachPolicy),
    ...optionalField("allowForward", forwardRules(values["allow-forward"]), isStrings),
    proxyPrivateIpsViaUpstream: values["proxy-private-ips-via-upstream"] === true || isSetInEnv(PRIVATE_IPS_VARIABLE),
    credentials: parseCredentials(values.credential),
    limits: parseLimits(values),
    quotas: parseQuotas(values),
  };
  const text = (name: ServeOptionName) => (typeof values[name] === "string" ? values[name] : undefined);
  const skew = values["ws-max-clock-skew-seconds"];
  const auth: AuthFlags = {
    wsAuth: text("ws-auth"),
    wsTokenFile: text("ws-token-file"),
    wsTokenSha256: text("ws-token-sha256"),
    wsSharedSecretFile: text("ws-shared-secret-file"),
    wsJwks: text("ws-jwks"),
    wsIssuer: text("ws-issuer"),
    wsAudience: text("ws-audience"),
    wsMaxClockSkewSeconds: typeof skew === "number" ? skew : undefined,
    operatorTokenFile: text("operator-token-file"),
    operatorClaim: text("operator-claim"),
    revokedTokensFile: text("revoked-tokens-file"),
  };
  const transport = ExecServerTransport.fromListenUrl(text("listen") ?? DEFAULT_LISTEN_URL);
  requireWeb(values, transport);
  const { tls, clientCertificates } = tlsFromFlags(transport, {
    certFile: text("tls-cert"),
    keyFile: text("tls-key"),
    clientCaFile: text("tls-client-ca"),
    clientCrlFile: text("tls-client-crl"),
    operatorSubjects: toList(values["operator-subject"], isString),
  });
  if (tls && values.supervised === true)
    throw new UsageError(
      "--tls-cert conflicts with --supervised: a handed-off listener does not support TLS; use a TLS proxy",
    );
  const { warnings = [], ...authOptions } = parseAuthFlags(auth);
  const isPlaintext = transport.type === "websocket" && !isLoopback(transport.host) && !tls;
  const operatorUids = toList(values["operator-uid"], isNumber);
  config.hasSeveralPrincipals =
    operatorUids.length > 0 || clientCertificates !== undefined || hasSeveralPrincipals(authOptions.auth);
  return {
    transport,
    config,
    ...authOptions,
    warnings: isPlaintext && authOptions.auth.type !== "none" ? [...warnings, PLAINTEXT_TOKEN_WARNING] : warnings,
    tls,
    clientCertificates,
    operatorUids,
    allowHosts: toList(values["allow-host"], isString),
    web:
      values.web === true
        ? {
            allowOrigins: toList(values["allow-origin"], isString).map(parseOrigin),
            jobs: openJobs(text("jobs"), values["jobs-database"] === true),
          }
        : undefined,
    metrics: values.metrics === true || values["metrics-listen"] !== undefined,
    metricsAt: metricsAddress(text("metrics-listen")),
    auditFile: text("audit"),
    auditSink: auditSinkAddress(text("audit-sink"), text("audit")),
    otel: values.otel === true,
    idleExitMs: inMs(values["idle-exit"]),
    supervised: supervisionOptions(values),
    logLevel,
    noSandbox: values.sandbox === false,
    secretFlags: secretFlags(values),
    secretFiles: [
      // A key set and an authority are public, but a command that replaces them could sign tokens and certificates.
      ...(authOptions.authFiles?.paths ?? []),
      ...(clientCertificates?.files ?? []),
      ...[text("tls-key"), authOptions.revokedTokensFile],
    ].filter((path) => path !== undefined),
  };
}

const SECRET_FLAGS = [
  "ws-token-file",
  "ws-shared-secret-file",
  "ws-jwks",
  "operator-token-file",
  "revoked-tokens-file",
  "tls-key",
  "tls-client-ca",
  "tls-client-crl",
  "audit",
] as const satisfies readonly ServeOptionName[];

function secretFlags(values: ServeOptionValues): Record<string, string> {
  return Object.fromEntries(
    SECRET_FLAGS.flatMap((name) => {
      const path = values[name];
      return isString(path) ? [[path, `--${name}`]] : [];
    }),
  );
}

function parseQuotas(values: ServeOptionValues): ServerConfig["quotas"] {
  const quota = (name: ServeOptionName) => (isNumber(values[name]) ? values[name] : undefined);
  return {
    connections: quota("max-connections-per-principal"),
    sessions: quota("max-sessions-per-principal"),
    processes: quota("max-processes-per-principal"),
    memoryBytes: quota("max-memory-bytes-per-principal"),
    waits: quota("max-waits-per-principal"),
    httpRequests: quota("max-http-requests-per-principal"),
    forwardListeners: quota("max-forward-listeners-per-principal"),
    forwardStreams: quota("max-forward-streams-per-principal"),
    fileHandles: quota("max-file-handles-per-principal"),
    watchedPaths: quota("max-watched-paths-per-principal"),
  };
}

/** Rejects options of the web console without `--web`, which would have no effect. */
function requireWeb(values: ServeOptionValues, { type }: ExecServerTransport): void {
  if (values.web === true && type === "stdio")
    throw new UsageError("--web requires --listen ws://IP:PORT or unix://PATH");
  for (const name of ["allow-origin", "jobs", "jobs-database"] as const)
    if (values.web !== true && values[name] !== undefined && values[name] !== false)
      throw new UsageError(`--${name} requires --web`);
}

function openJobs(directory: string | undefined, inDatabase: boolean): JobsQueryHandler | undefined {
  if (directory === undefined && !inDatabase) return undefined;
  const databaseUrl = inDatabase ? process.env[DATABASE_URL_VARIABLE] || undefined : undefined;
  if (inDatabase && databaseUrl === undefined)
    throw new UsageError(`--jobs-database requires the database URL in ${DATABASE_URL_VARIABLE}`);
  return startJobsThread({
    directory: directory === undefined ? jobsDirectory(process.env, process.cwd()) : resolve(directory),
    databaseUrl,
  });
}

function supervisionOptions(values: ServeOptionValues): ServeOptions["supervised"] {
  if (values.supervised !== true) {
    for (const name of ["liveness-timeout", "give-up-after"] as const)
      if (values[name] !== undefined) throw new UsageError(`--${name} requires --supervised`);
    return undefined;
  }
  const listen = values.listen ?? DEFAULT_LISTEN_URL;
  if (listen === DEFAULT_LISTEN_URL)
    throw new UsageError(
      "--supervised requires a socket that outlives the server: --listen ws://IP:PORT or unix://PATH",
    );
  if (values["ws-auth"] === "auto")
    throw new UsageError(
      "--ws-auth auto conflicts with --supervised: the token would change with each server; use --ws-token-file",
    );
  const livenessTimeoutMs = inMs(values["liveness-timeout"]) ?? DEFAULT_LIVENESS_TIMEOUT_MS;
  return {
    livenessTimeoutMs: livenessTimeoutMs === 0 ? null : livenessTimeoutMs,
    giveUpAfter: crashLimit(values["give-up-after"]),
  };
}

/** As in native/programs/server-lifecycle.h. */
const MAX_CRASH_LIMIT = 1024;

function crashLimit(value: ServeOptionValue | undefined): number | null {
  if (value === undefined) return null;
  if (typeof value !== "number" || value < 1 || value > MAX_CRASH_LIMIT)
    throw new UsageError(`--give-up-after \`${value}\`: expected 1 to ${MAX_CRASH_LIMIT} crashes`);
  return value;
}

function requiredSandbox(value: ServeOptionValue | undefined): RequiredSandbox | undefined {
  if (value === undefined || (isString(value) && isRequiredSandbox(value))) return value;
  throw new UsageError(`unsupported --require-sandbox \`${value}\`; expected ${REQUIRED_SANDBOXES.join(", ")}`);
}

const isSandboxMode = (value: unknown): value is RequiredSandbox => isString(value) && isRequiredSandbox(value);

function parseOrigin(text: string): string {
  const origin = URL.parse(text)?.origin;
  if (origin === undefined || origin === "null" || origin !== text.replace(/\/$/, "")) {
    throw new UsageError(`--allow-origin \`${text}\` must be an origin such as https://console.example`);
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

function forwardRules(value: ServeOptionValue | undefined): string[] | undefined {
  if (value === undefined) return undefined;
  return toList(value, isString).map((text) => {
    const rule = parseForwardRule(text);
    if (rule !== null) return rule;
    throw new UsageError(
      `--allow-forward \`${text}\` must be HOST:PORT, HOST:*, /PATH, ${LOOPBACK_RULE} or ${ANY_RULE}`,
    );
  });
}

/** Returns the definitions as written. They contain no secrets. */
function parseCredentials(value: ServeOptionValue | undefined): string[] {
  const texts = toList(value, isString);
  parseCredentialFlags(texts);
  return texts;
}

function isStrings(value: unknown): value is string[] {
  return Array.isArray(value);
}

function parseLimits(values: ServeOptionValues): ProcessLimits {
  return {
    ...optionalField("wallTimeMs", inMs(values["limit-wall-time"]), isNumber),
    ...optionalField("cpuTimeMs", inMs(values["limit-cpu-time"]), isNumber),
    ...optionalField("memoryBytes", values["limit-memory-bytes"], isNumber),
    ...optionalField("processMemoryBytes", values["limit-process-memory-bytes"], isNumber),
    ...optionalField("openFiles", values["limit-open-files"], isNumber),
    ...optionalField("processes", values["limit-processes"], isNumber),
    ...optionalField("outputBytes", values["limit-output-bytes"], isNumber),
  };
}

const isBoolean = (value: unknown): value is boolean => typeof value === "boolean";
const inMs = (seconds: ServeOptionValues[ServeOptionName]) =>
  typeof seconds === "number" ? seconds * 1000 : undefined;

function toList<T>(value: unknown, is: (value: unknown) => value is T): T[] {
  return Array.isArray(value) ? value.filter(is) : [];
}

function isDetachPolicy(value: unknown): value is ServerConfig["onDetach"] {
  return value === "pause" || value === "evict";
}

/** Returns an object with this field, or an empty one if the value has another type. */
function optionalField<K extends string, T>(
  key: K,
  value: unknown,
  is: (value: unknown) => value is T,
): { [P in K]?: T } {
  return is(value) ? ({ [key]: value } as { [P in K]?: T }) : {};
}

/** The name of Codex for `--proxy-private-ips-via-upstream`. */
const PRIVATE_IPS_VARIABLE = "CODEX_EXEC_SERVER_PROXY_PRIVATE_IPS_VIA_UPSTREAM";

function isSetInEnv(name: string): boolean {
  return ["1", "true"].includes((process.env[name] ?? "").toLowerCase());
}
