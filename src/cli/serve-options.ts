import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { ProcessLimits } from "../exec/process-limits.ts";
import { jobsHome } from "../fanout/ledger/jobs-home.ts";
import { LOOPBACK, parseForwardRule } from "../forward/forward-rules.ts";
import type { RunMainOptions } from "../host/run-main.ts";
import { messageOf } from "../protocol/message-of.ts";
import { type AuthFlags, authFromFlags } from "../server/auth-flags.ts";
import type { LogLevel } from "../server/host-services.ts";
import { DEFAULT_HUNG_AFTER_MS, LARGEST_MESSAGE_BYTES, type ServerConfig } from "../server/limits.ts";
import { isLogLevel } from "../server/log.ts";
import { DEFAULT_LISTEN_URL, ExecServerTransport, isLoopback } from "../server/transport.ts";
import type { AskJobs } from "../server/web-jobs.ts";
import { UsageError } from "./command.ts";
import { askJobsOf, DATABASE_VARIABLE } from "./console-jobs.ts";
import { parseOptions } from "./parse-options.ts";
import { PLAIN_TOKENS, tlsFromFlags } from "./tls-options.ts";

/** The options of `procwire serve`, once: flags, configuration file and help are derived from this table. */
interface Option {
  /** Of `strings` and `integers` there may be several: the flag is repeated, the file has a list. */
  type: "string" | "strings" | "boolean" | "integer" | "integers" | "seconds";
  value: string;
  help: string;
}

const OPTIONS = {
  listen: {
    type: "string",
    value: "URL",
    help: "stdio:// (default), ws://IP:PORT (port 0 takes a free one) or unix://PATH",
  },
  "max-processes": { type: "integer", value: "N", help: "live processes per session (default 4096)" },
  "max-server-processes": {
    type: "integer",
    value: "N",
    help: "live processes of all sessions together (default 16384)",
  },
  "max-connections": { type: "integer", value: "N", help: "connections at once (default 4096)" },
  "max-message-bytes": { type: "integer", value: "BYTES", help: "largest message taken (default 67108864)" },
  "memory-budget-bytes": {
    type: "integer",
    value: "BYTES",
    help: "output, answers and messages kept for all clients together (default 536870912)",
  },
  "retained-output-bytes": {
    type: "integer",
    value: "BYTES",
    help: "output kept per process (default 1048576)",
  },
  "detached-session-ttl": {
    type: "seconds",
    value: "SECONDS",
    help: "how long a session without a connection lives on (default 30; 0 ends its processes at once)",
  },
  "on-detach": {
    type: "string",
    value: "pause|evict",
    help: "when a detached session's retention is full (default pause)",
  },
  "shutdown-grace": {
    type: "seconds",
    value: "SECONDS",
    help: "between TERM and KILL at shutdown (default 2)",
  },
  "idle-exit": {
    type: "seconds",
    value: "SECONDS",
    help: "end by itself after so long without a connection, a session and a live process (default: never)",
  },
  "allow-direct-exec": {
    type: "boolean",
    value: "",
    help: "take direct starts (default; --no-allow-direct-exec refuses)",
  },
  "allow-prepared-exec": {
    type: "boolean",
    value: "",
    help: "take prepared starts (default; --no-allow-prepared-exec refuses)",
  },
  "limit-wall-time": { type: "seconds", value: "SECONDS", help: "how long each process may run" },
  "limit-cpu-time": {
    type: "seconds",
    value: "SECONDS",
    help: "CPU time of each process and of each of its descendants by itself, in full seconds",
  },
  "limit-memory-bytes": {
    type: "integer",
    value: "BYTES",
    help: "memory of each process with its descendants; needs a memory cgroup",
  },
  "limit-process-memory-bytes": {
    type: "integer",
    value: "BYTES",
    help: "data of each process and of each of its descendants by itself",
  },
  "limit-open-files": { type: "integer", value: "N", help: "files each process may have open" },
  "limit-processes": {
    type: "integer",
    value: "N",
    help: "processes and threads of each process with its descendants; needs a pids cgroup",
  },
  "limit-output-bytes": { type: "integer", value: "BYTES", help: "output each process may write" },
  "allow-host": {
    type: "strings",
    value: "NAME",
    help: "a name clients may ask for the server by, beside IP addresses and localhost; may be repeated",
  },
  "tls-cert": {
    type: "string",
    value: "PATH",
    help: "speak TLS (wss://) with this certificate and those of its authorities, PEM; read again on SIGHUP",
  },
  "tls-key": { type: "string", value: "PATH", help: "its key, PEM" },
  "ws-auth": {
    type: "string",
    value: "KIND",
    help: "capability-token, signed-bearer-token, or auto: a token is made and shown once",
  },
  "ws-token-file": { type: "string", value: "PATH", help: "the capability token" },
  "ws-token-sha256": { type: "string", value: "HEX", help: "its SHA-256 instead" },
  "ws-shared-secret-file": {
    type: "string",
    value: "PATH",
    help: "the secret signed tokens are checked with",
  },
  "ws-issuer": { type: "string", value: "NAME", help: "issuer a signed token must name" },
  "ws-audience": { type: "string", value: "NAME", help: "audience a signed token must name" },
  "ws-max-clock-skew-seconds": {
    type: "integer",
    value: "SECONDS",
    help: "clocks may differ by this much (default 30)",
  },
  "operator-token-file": {
    type: "string",
    value: "PATH",
    help: "the token of an operator, who sees the processes of all principals; at least 32 bytes",
  },
  "operator-claim": {
    type: "string",
    value: "NAME=VALUE",
    help: "a claim that makes a signed token an operator's; each `sub` is a principal of its own",
  },
  "operator-uid": {
    type: "integers",
    value: "UID",
    help: "a user who is operator on a unix socket, where each uid is a principal; may be repeated",
  },
  "allow-forward": {
    type: "strings",
    value: "[HOST:PORT...]",
    help: "let clients open TCP connections and listeners here: on loopback, and where HOST:PORT or HOST:* says",
  },
  web: { type: "boolean", value: "", help: "serve the web console at / of a ws:// address" },
  jobs: {
    type: "string",
    value: "FOLDER",
    help: "show this folder's fan-out jobs (.procwire/jobs) in the console, to operators and whoever started it",
  },
  "jobs-database": {
    type: "boolean",
    value: "",
    help: "show the jobs of the database of PROCWIRE_DATABASE_URL there",
  },
  "allow-origin": {
    type: "strings",
    value: "ORIGIN",
    help: "another site's pages that may connect with a token, as https://NAME; may be repeated",
  },
  keep: {
    type: "boolean",
    value: "",
    help: "run below a keeper: processes of lifetime `kept` outlive a crash, a reload (SIGHUP) and an upgrade",
  },
  "hung-after": {
    type: "seconds",
    value: "SECONDS",
    help: "with --keep: a server that gives no sign of life for so long is replaced (default 30; 0 never)",
  },
  metrics: { type: "boolean", value: "", help: "count, and tell operators at /metrics in Prometheus's text" },
  "metrics-listen": {
    type: "string",
    value: "IP:PORT",
    help: "tell the figures on a listener of their own too, to everybody who reaches it",
  },
  audit: {
    type: "string",
    value: "FILE",
    help: "append a JSON line for everything that is done to a process, and by whom; the file may be moved away",
  },
  otel: {
    type: "boolean",
    value: "",
    help: "span each request, below the caller's (trace.traceparent); needs @opentelemetry/api and an SDK",
  },
  "log-level": {
    type: "string",
    value: "LEVEL",
    help: "debug, info, warn or error (default warn), on stderr",
  },
} as const satisfies Record<string, Option>;

type Name = keyof typeof OPTIONS;
type Value = string | number | boolean | (string | number)[];
type Values = { [K in Name]?: Value };

export interface ServeOptions extends RunMainOptions {
  transport: ExecServerTransport;
  config: Partial<ServerConfig>;
  logLevel: LogLevel;
  /** Files that let their reader in. */
  secretFiles: string[];
}

/** From arguments to options; null when help was asked for. Flags win over the configuration file. */
export function parseServeOptions(argv: string[]): ServeOptions | null {
  const flags: Record<string, { type: "string" | "boolean"; short?: string; multiple?: boolean }> = {
    config: { type: "string" },
    help: { type: "boolean", short: "h" },
  };
  for (const [name, option] of Object.entries(OPTIONS)) {
    flags[name] = {
      type: option.type === "boolean" ? "boolean" : "string",
      multiple: option.type === "strings" || option.type === "integers",
    };
  }
  const { values } = parseOptions({
    args: withForwardTargets(argv),
    options: flags,
    allowNegative: true,
    strict: true,
  });
  if (values.help) return null;
  const file = typeof values.config === "string" ? readConfigFile(values.config) : {};
  if (file.keep === true && values.keep === undefined)
    throw new UsageError(
      `\`keep\` in --config ${values.config} comes too late: the keeper is started before the file is read; give --keep as well`,
    );
  const merged: Values = { ...file };
  for (const name of optionNames()) {
    const value = values[name];
    if (value !== undefined) merged[name] = parseFlag(name, value);
  }
  return toOptions(merged);
}

export function serveHelp(): string {
  const rows = Object.entries(OPTIONS).map(([name, { value, help }]) => [
    `--${name}${value ? ` ${value}` : ""}`,
    help,
  ]);
  rows.push(["--config PATH", 'the same options from a JSON file: {"listen": "…", "maxProcesses": 10}']);
  rows.push(["-h, --help", "this text"]);
  const width = Math.max(...rows.map(([flag]) => flag?.length ?? 0));
  const lines = rows.map(([flag, help]) => `  ${flag?.padEnd(width)}  ${help}`);
  return `Usage: procwire serve [options]

Serves processes, files and HTTP requests of this machine over JSON-RPC.
Once it listens, the URL stands alone on stdout. SIGTERM or SIGINT ends every process it started.

${lines.join("\n")}

Examples:
  procwire serve --listen ws://127.0.0.1:7070
  procwire serve --listen unix:///run/user/1000/procwire.sock
  procwire serve --listen ws://0.0.0.0:7070 --ws-auth capability-token --ws-token-file token --tls-cert cert.pem --tls-key key.pem
`;
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

/** `--allow-forward` takes any number of words, also none: what it stands for then is said here. */
function withForwardTargets(argv: readonly string[]): string[] {
  return argv.flatMap((word, at) => {
    if (word === "--allow-forward") return [`--allow-forward=${LOOPBACK}`];
    const before = argv.slice(0, at);
    const flag = before.findLastIndex((one) => one.startsWith("-"));
    return before[flag] === "--allow-forward" && !word.startsWith("-") ? [`--allow-forward=${word}`] : [word];
  });
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

function parseFlag(name: Name, value: string | boolean | (string | boolean)[]): Value {
  const { type } = OPTIONS[name];
  if (Array.isArray(value)) {
    return value.map((one) => {
      const text = String(one);
      return type === "integers" ? parseNumber(`--${name}`, "integer", text) : text;
    });
  }
  if (typeof value === "boolean" || (type !== "integer" && type !== "seconds")) return value;
  return parseNumber(`--${name}`, type, value);
}

function parseNumber(name: string, type: "integer" | "seconds", value: string | number): number {
  const number = typeof value === "number" ? value : value.trim() === "" ? Number.NaN : Number(value);
  const right = type === "integer" ? Number.isSafeInteger(number) : Number.isFinite(number);
  if (!right || number < 0) {
    const wanted = type === "integer" ? "a whole number, 0 or more" : "a number of seconds, 0 or more";
    throw new UsageError(`${name} takes ${wanted}, got \`${value}\``);
  }
  return number;
}

function readConfigFile(path: string): Values {
  let parsed: unknown;
  try {
    parsed = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    throw new Error(`cannot read --config ${path}: ${messageOf(cause)}`, {
      cause,
    });
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new Error(`--config ${path} must hold a JSON object of options`);
  }
  const values: Values = {};
  for (const [key, value] of Object.entries(parsed)) {
    const name = optionNames().find((candidate) => camelCase(candidate) === key || candidate === key);
    if (!name)
      throw new Error(`--config ${path}: unknown option \`${key}\`; \`procwire serve --help\` lists them`);
    values[name] = configValue(path, key, OPTIONS[name].type, value);
  }
  return values;
}

function configValue(path: string, key: string, type: Option["type"], value: unknown): Value {
  if (type === "strings" && Array.isArray(value) && value.every(isString)) return value;
  if (type === "integers" && Array.isArray(value) && value.every(isNumber))
    return value.map((one) => parseNumber(key, "integer", one));
  if (type === "boolean" && typeof value === "boolean") return value;
  if (type === "string" && typeof value === "string") return value;
  if ((type === "integer" || type === "seconds") && typeof value === "number")
    return parseNumber(key, type, value);
  throw new Error(`--config ${path}: \`${key}\` takes ${TAKEN[type]}`);
}

const TAKEN: Record<Option["type"], string> = {
  string: "a string",
  strings: "a list of strings",
  boolean: "a boolean",
  integer: "an integer",
  integers: "a list of integers",
  seconds: "a number of seconds",
};

function optionNames(): Name[] {
  return Object.keys(OPTIONS).filter((name): name is Name => Object.hasOwn(OPTIONS, name));
}

const camelCase = (name: string) => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
const isNumber = (value: unknown): value is number => typeof value === "number";
const isString = (value: unknown): value is string => typeof value === "string";
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
