import { readFileSync } from "node:fs";
import { messageOf } from "../../base/error-message.ts";
import { LOOPBACK } from "../../forward/forward-rules.ts";
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
    help: "a name by which clients may address the server, beside IP addresses and localhost; may be repeated",
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
  metrics: {
    type: "boolean",
    value: "",
    help: "keep figures, and give them to operators at /metrics in Prometheus's text format",
  },
  "metrics-listen": {
    type: "string",
    value: "IP:PORT",
    help: "also give the figures on a listener of their own, to everybody who can reach it",
  },
  audit: {
    type: "string",
    value: "FILE",
    help: "append a JSON line for everything that is done to a process, and by whom; the file may be moved away",
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

export type Name = keyof typeof OPTIONS;
export type Value = string | number | boolean | (string | number)[];
export type Values = { [K in Name]?: Value };

/** What the flags and the configuration file say; flags win. Null when help was asked for. */
export function readServeValues(argv: string[]): Values | null {
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

Serves processes, files and HTTP requests of this machine over JSON-RPC.
Once it listens, the URL stands alone on stdout. SIGTERM or SIGINT ends every process it started.

${lines.join("\n")}

Examples:
  procwire serve --listen ws://127.0.0.1:7070
  procwire serve --listen unix:///run/user/1000/procwire.sock
  procwire serve --listen ws://0.0.0.0:7070 --ws-auth capability-token --ws-token-file token --tls-cert cert.pem --tls-key key.pem
`;
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
export const isNumber = (value: unknown): value is number => typeof value === "number";
export const isString = (value: unknown): value is string => typeof value === "string";
