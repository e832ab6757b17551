import { readFileSync } from "node:fs";
import { errorMessage } from "../../base/error-message.ts";
import { LOOPBACK_RULE } from "../../forward/forward-rules.ts";
import { UsageError } from "../command.ts";
import { parseOptions } from "./parse-options.ts";

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
    help: "exit after SECONDS without connections, sessions and processes (default: never)",
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
    help: "maximum CPU time per process and descendant, in whole seconds",
  },
  "limit-memory-bytes": {
    type: "integer",
    value: "BYTES",
    help: "memory of each process with its descendants; needs a memory cgroup",
  },
  "limit-process-memory-bytes": {
    type: "integer",
    value: "BYTES",
    help: "maximum data segment per process and descendant",
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
    help: "allowed host name, in addition to IP addresses and localhost; repeatable",
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
    help: "JWT claim that grants the operator role; each `sub` is a separate principal",
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
    help: "show the fan-out jobs of this directory (.procwire/jobs) in the console, to operators and local users",
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
  supervised: {
    type: "boolean",
    value: "",
    help: "run under a supervisor: persistent processes survive a crash, a hot restart (SIGHUP) and an upgrade",
  },
  "liveness-timeout": {
    type: "seconds",
    value: "SECONDS",
    help: "replace a server that sends no heartbeat for SECONDS; 0 disables; requires --supervised (default: 30)",
  },
  metrics: {
    type: "boolean",
    value: "",
    help: "expose Prometheus metrics at /metrics to operators",
  },
  "metrics-listen": {
    type: "string",
    value: "IP:PORT",
    help: "additional unauthenticated listener for /metrics",
  },
  audit: {
    type: "string",
    value: "FILE",
    help: "append one JSON line per operation on a process, with its principal; reopened after rotation",
  },
  otel: {
    type: "boolean",
    value: "",
    help: "record a span of each request, below the caller's (trace.traceparent); needs @opentelemetry/api",
  },
  "log-level": {
    type: "string",
    value: "LEVEL",
    help: "debug, info, warn or error (default warn), on stderr",
  },
} as const satisfies Record<string, Option>;

export type ServeOptionName = keyof typeof OPTIONS;
export type ServeOptionValue = string | number | boolean | (string | number)[];
export type ServeOptionValues = { [K in ServeOptionName]?: ServeOptionValue };

/** Merges flags and configuration file; flags win. Returns null if --help is set. */
export function parseServeArguments(argv: string[]): ServeOptionValues | null {
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
    args: expandAllowForward(argv),
    options: flags,
    allowNegative: true,
    strict: true,
  });
  if (values.help) return null;
  const file = typeof values.config === "string" ? readConfigFile(values.config) : {};
  if (file.supervised === true && values.supervised === undefined)
    throw new UsageError(
      `\`supervised\` in --config ${values.config} is read after the supervisor starts; add the flag --supervised`,
    );
  const merged: ServeOptionValues = { ...file };
  for (const name of optionNames()) {
    const value = values[name];
    if (value !== undefined) merged[name] = parseFlag(name, value);
  }
  return merged;
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

Serve processes, files and HTTP requests of this host over JSON-RPC. Prints the URL on
stdout when it listens. SIGTERM or SIGINT terminates all processes.

${lines.join("\n")}

Examples:
  procwire serve --listen ws://127.0.0.1:7070
  procwire serve --listen unix:///run/user/1000/procwire.sock
  procwire serve --listen ws://0.0.0.0:7070 --ws-auth capability-token --ws-token-file token --tls-cert cert.pem --tls-key key.pem
`;
}

/** `--allow-forward` takes any number of words, also none: what it stands for then is said here. */
function expandAllowForward(argv: readonly string[]): string[] {
  return argv.flatMap((word, at) => {
    if (word === "--allow-forward") return [`--allow-forward=${LOOPBACK_RULE}`];
    const before = argv.slice(0, at);
    const flag = before.findLastIndex((one) => one.startsWith("-"));
    return before[flag] === "--allow-forward" && !word.startsWith("-") ? [`--allow-forward=${word}`] : [word];
  });
}

function parseFlag(name: ServeOptionName, value: string | boolean | (string | boolean)[]): ServeOptionValue {
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

function readConfigFile(path: string): ServeOptionValues {
  let parsed: unknown;
  try {
    parsed = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    throw new Error(`cannot read --config ${path}: ${errorMessage(cause)}`, {
      cause,
    });
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new Error(`--config ${path} must hold a JSON object of options`);
  }
  const values: ServeOptionValues = {};
  for (const [key, value] of Object.entries(parsed)) {
    const name = optionNames().find((candidate) => camelCase(candidate) === key || candidate === key);
    if (!name)
      throw new Error(`--config ${path}: unknown option \`${key}\`; \`procwire serve --help\` lists them`);
    values[name] = configValue(path, key, OPTIONS[name].type, value);
  }
  return values;
}

function configValue(path: string, key: string, type: Option["type"], value: unknown): ServeOptionValue {
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

function optionNames(): ServeOptionName[] {
  return Object.keys(OPTIONS).filter((name): name is ServeOptionName => Object.hasOwn(OPTIONS, name));
}

const camelCase = (name: string) => name.replace(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
export const isNumber = (value: unknown): value is number => typeof value === "number";
export const isString = (value: unknown): value is string => typeof value === "string";
