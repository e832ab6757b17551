import { readFileSync } from "node:fs";
import { FlagError } from "../../base/flag-error.ts";
import { isObject } from "../../base/type-guards.ts";
import { LOOPBACK_RULE } from "../../forward/forward-rules.ts";
import { UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { parseAmount } from "./parse-number.ts";
import { parseOptions } from "./parse-options.ts";

/** An option of `procwire serve`. Flags, configuration file and help derive from it. */
export interface ServeOption {
  /** A `strings` or `integers` option is repeatable as a flag, and a list in the configuration file. */
  type: "string" | "strings" | "boolean" | "integer" | "integers" | "seconds";
  /** Name of the value in the help; empty for a boolean. */
  value: string;
  help: string;
}

const option = (type: ServeOption["type"], value: string, help: string): ServeOption => ({
  type,
  value,
  help,
});
const text = (value: string, help: string) => option("string", value, help);
const flag = (help: string) => option("boolean", "", help);
const bytes = (help: string) => option("integer", "BYTES", help);
const count = (help: string) => option("integer", "N", help);
const seconds = (help: string) => option("seconds", "SECONDS", help);

const LISTENING = {
  listen: text("URL", "stdio://, ws://IP:PORT (0: any free port) or unix://PATH (default: stdio://)"),
  "allow-host": option("strings", "NAME", "allowed host name, besides IP addresses and localhost; repeatable"),
  "allow-origin": option(
    "strings",
    "ORIGIN",
    "allowed origin of web pages, as https://NAME; requires --web; repeatable",
  ),
  "max-connections": count("maximum connections (default: 4096)"),
  "max-message-bytes": bytes("maximum size of a message (default: 67108864)"),
  "allow-forward": option(
    "strings",
    "[TARGET...]",
    "allow forwarding to loopback and these targets: HOST:PORT, HOST:*, a socket path, or any",
  ),
};

const TLS = {
  "tls-cert": text("PATH", "PEM certificate with its intermediates for wss://; SIGHUP reloads it"),
  "tls-key": text("PATH", "PEM key of the certificate; requires --tls-cert"),
  "tls-client-ca": text("PATH", "PEM authority of client certificates; without --ws-auth every client needs one"),
  "tls-client-crl": text("PATH", "PEM list of revoked client certificates; requires --tls-client-ca"),
  "operator-subject": option("strings", "SUBJECT", "certificate subject that is operator, as CN=NAME; repeatable"),
};

const AUTHENTICATION = {
  "ws-auth": text("KIND", "capability-token, signed-bearer-token, or auto (generate and print a token)"),
  "ws-token-file": text("PATH", "file with the capability token, or JSON with token and scope (docs/tokens.md)"),
  "ws-token-sha256": text("HEX", "SHA-256 of the capability token"),
  "ws-shared-secret-file": text("PATH", "file with the secret of signed tokens"),
  "ws-issuer": text("NAME", "required issuer of signed tokens"),
  "ws-audience": text("NAME", "required audience of signed tokens"),
  "ws-max-clock-skew-seconds": option("integer", "SECONDS", "tolerated clock difference (default: 30)"),
  "operator-token-file": text("PATH", "file with the token of an operator, who sees all sessions; at least 32 bytes"),
  "operator-claim": text("NAME=VALUE", "JWT claim that grants the operator role; each `sub` is a principal"),
  "operator-uid": option("integers", "UID", "user who is operator on a Unix socket; repeatable"),
};

const TOKENS = {
  "ws-jwks": text("FILE|URL", "public keys (JWKS) of the issuer of signed tokens, instead of a shared secret"),
  "revoked-tokens-file": text("PATH", "file with the ids of revoked signed tokens (default: SECRET-FILE.revoked)"),
};

const SANDBOXES = {
  sandbox: flag("offer sandboxes if bubblewrap works; --no-sandbox offers none (default: on)"),
  "require-sandbox": text("MODE", "reject processes with less: read-only, workspace-write, or either with +network"),
  credential: option(
    "strings",
    "DEFINITION",
    "NAME=DOMAIN:HEADER:SOURCE: let clients use a secret of file:PATH or env:VARIABLE by its NAME; repeatable",
  ),
  "proxy-private-ips-via-upstream": flag("send requests of network proxies to private addresses to the upstream proxy"),
};

const SESSIONS = {
  "max-processes": count("maximum live processes per session (default: 4096)"),
  "max-server-processes": count("maximum live processes of all sessions (default: 16384)"),
  "memory-budget-bytes": bytes(
    "memory for output and messages of all clients; at most 40% of a container's limit (default: 536870912)",
  ),
  "retained-output-bytes": bytes("maximum retained output per process (default: 1048576)"),
  "detached-session-ttl": seconds("lifetime of a session without a connection; 0 ends it at once (default: 30)"),
  "on-detach": text(
    "pause|evict",
    "policy if the log of a detached session is full, for clients without acknowledgements (default: pause)",
  ),
  "allow-direct-exec": flag("accept starts without mode `prepared`; --no-allow-direct-exec rejects them (default: on)"),
  "allow-prepared-exec": flag(
    "accept starts with mode `prepared`, which the policy of the client resolved; --no-allow-prepared-exec rejects them (default: on)",
  ),
};

const QUOTA_DEFAULT = "(default: 1/4 of the server limit; all of it with one principal)";
const quota = (noun: string) => count(`maximum ${noun} of one principal ${QUOTA_DEFAULT}`);

const QUOTAS = {
  "max-connections-per-principal": quota("connections"),
  "max-sessions-per-principal": count(
    "maximum sessions of one principal, with and without a connection (default: 1024; unlimited with one principal)",
  ),
  "max-processes-per-principal": quota("live processes"),
  "max-memory-bytes-per-principal": bytes(
    "memory of one principal within --memory-budget-bytes (default: 1/4 of it; all of it with one principal)",
  ),
  "max-waits-per-principal": quota("pending waits"),
  "max-http-requests-per-principal": quota("pending HTTP requests"),
  "max-forward-listeners-per-principal": quota("forwarding listeners"),
  "max-forward-streams-per-principal": quota("forwarded streams"),
  "max-file-handles-per-principal": quota("open files"),
  "max-watched-paths-per-principal": quota("watched paths"),
};

const LIMITS = {
  "limit-wall-time": seconds("maximum run time per process"),
  "limit-cpu-time": seconds("maximum CPU time per process and descendant, in whole seconds"),
  "limit-memory-bytes": bytes("maximum memory per process tree; requires a memory cgroup"),
  "limit-process-memory-bytes": bytes("maximum data segment per process and descendant"),
  "limit-open-files": count("maximum open files per process and descendant"),
  "limit-processes": count("maximum processes and threads per process tree; requires a pids cgroup"),
  "limit-output-bytes": bytes("maximum output per process"),
};

const LIFECYCLE = {
  supervised: flag("run under a supervisor: persistent processes survive crashes, hot restarts and upgrades"),
  "liveness-timeout": seconds("replace a server without heartbeat; 0 disables; requires --supervised (default: 30)"),
  "give-up-after": count("end everything after N crashes within a minute; requires --supervised (default: never)"),
  "shutdown-grace": seconds("time between SIGTERM and SIGKILL at shutdown (default: 2)"),
  "idle-exit": seconds("exit after SECONDS without connections, sessions and processes (default: never)"),
};

const OBSERVABILITY = {
  web: flag("serve the web console; requires --listen ws:// or unix://"),
  jobs: text("DIRECTORY", "show the fan-out jobs of DIRECTORY (.procwire/jobs) in the console; requires --web"),
  "jobs-database": flag("show the fan-out jobs of the database PROCWIRE_DATABASE_URL in the console; requires --web"),
  metrics: flag("expose Prometheus metrics at /metrics to operators"),
  "metrics-listen": text("IP:PORT", "additional unauthenticated listener for /metrics"),
  audit: text("FILE", "append one JSON line per decision; `procwire audit verify` checks the file"),
  "audit-sink": text("ADDRESS", "also send each audit line to unix:///PATH (datagrams) or syslog; requires --audit"),
  otel: flag("record an OpenTelemetry span per request; requires @opentelemetry/api"),
  "log-level": text("LEVEL", "debug, info, warn or error, on stderr (default: warn)"),
};

export const HELP_GROUPS: Readonly<Record<string, Readonly<Record<string, ServeOption>>>> = {
  Listening: LISTENING,
  TLS,
  Authentication: AUTHENTICATION,
  "Signed tokens": TOKENS,
  "Sandboxes and their network": SANDBOXES,
  Sessions: SESSIONS,
  "Quotas per principal": QUOTAS,
  "Process limits": LIMITS,
  Lifecycle: LIFECYCLE,
  "Console and observability": OBSERVABILITY,
};

const OPTIONS = {
  ...LISTENING,
  ...TLS,
  ...AUTHENTICATION,
  ...TOKENS,
  ...SANDBOXES,
  ...SESSIONS,
  ...QUOTAS,
  ...LIMITS,
  ...LIFECYCLE,
  ...OBSERVABILITY,
};

export type ServeOptionName = keyof typeof OPTIONS;
export type ServeOptionValue = string | number | boolean | (string | number)[];
export type ServeOptionValues = { [K in ServeOptionName]?: ServeOptionValue };

/** Flags of `procwire serve`, for `parseOptions`. */
export const SERVE_FLAGS: Readonly<Record<string, { type: "string" | "boolean"; short?: string; multiple?: boolean }>> =
  {
    config: { type: "string" },
    ...Object.fromEntries(
      Object.entries(OPTIONS).map(([name, { type }]) => [
        name,
        { type: type === "boolean" ? type : "string", multiple: type === "strings" || type === "integers" } as const,
      ]),
    ),
  };

/** Merges flags and configuration file; flags win. Returns null if --help is set. */
export function parseServeArguments(argv: string[]): ServeOptionValues | null {
  const flags: typeof SERVE_FLAGS = { ...SERVE_FLAGS, help: { type: "boolean", short: "h" } };
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
  rejectEmptyValues(merged);
  return merged;
}

/** Options of Codex. Their empty values have the errors of Codex. */
const CODEX_OPTIONS: ReadonlySet<string> = new Set<ServeOptionName>([
  "listen",
  "ws-auth",
  "ws-token-file",
  "ws-token-sha256",
  "ws-shared-secret-file",
  "ws-issuer",
  "ws-audience",
]);

function rejectEmptyValues(values: ServeOptionValues): void {
  for (const [name, value] of Object.entries(values)) {
    const isEmpty = value === "" || (Array.isArray(value) && value.includes(""));
    if (isEmpty && !CODEX_OPTIONS.has(name)) throw new UsageError(`--${name} has an empty value`);
  }
}

/** Help page of `procwire serve`. */
export const SERVE_HELP: HelpPage = {
  usage: ["[OPTIONS]"],
  details: `Serves processes, files and HTTP requests of this host over JSON-RPC. Prints the URL on stdout when it listens.
    SIGTERM or SIGINT terminates all processes.`,
  options: {
    ...Object.fromEntries(
      Object.entries(HELP_GROUPS).map(([title, options]) => [
        title,
        Object.entries(options).map(([name, { value, help }]) => [`--${name} ${value}`.trimEnd(), help] as const),
      ]),
    ),
    Configuration: [
      ["--config PATH", 'JSON file with these options: {"listen": "ws://127.0.0.1:7070", "maxProcesses": 10}'],
    ],
  },
  examples: [
    ["procwire serve --listen ws://127.0.0.1:7070", "serve programs of this host"],
    ["procwire serve --listen unix:///run/user/1000/procwire.sock", "serve one user on a Unix socket"],
    [
      "procwire serve --listen ws://0.0.0.0:7070 --tls-cert cert.pem \\\n--tls-key secrets/key.pem --ws-auth capability-token \\\n--ws-token-file secrets/token",
      "serve other hosts, with TLS and a token",
    ],
  ],
};

/** Rewrites `--allow-forward` with any number of targets to one flag per target; without targets, to the loopback rule. */
function expandAllowForward(argv: readonly string[]): string[] {
  return argv.flatMap((argument, at) => {
    if (argument === "--allow-forward") return [`--allow-forward=${LOOPBACK_RULE}`];
    const before = argv.slice(0, at);
    const lastFlag = before.findLast((earlier) => earlier.startsWith("-"));
    const isTarget = lastFlag === "--allow-forward" && !argument.startsWith("-");
    return isTarget ? [`--allow-forward=${argument}`] : [argument];
  });
}

function parseFlag(name: ServeOptionName, value: string | boolean | (string | boolean)[]): ServeOptionValue {
  const { type } = OPTIONS[name];
  if (Array.isArray(value)) {
    const texts = value.map(String);
    return type === "integers" ? texts.map((item) => parseNumber(`--${name}`, "integer", item)) : texts;
  }
  if (typeof value === "boolean" || (type !== "integer" && type !== "seconds")) return value;
  return parseNumber(`--${name}`, type, value);
}

function parseNumber(name: string, type: "integer" | "seconds", value: string | number): number {
  const number = parseAmount(String(value));
  if (number === null || (type === "integer" && !Number.isSafeInteger(number))) {
    const expected = type === "integer" ? "a whole number, 0 or more" : "a number of seconds, 0 or more";
    throw new UsageError(`${name} takes ${expected}, got \`${value}\``);
  }
  return number;
}

function readConfigFile(path: string): ServeOptionValues {
  let parsed: unknown;
  try {
    parsed = JSON.parse(readFileSync(path, "utf8"));
  } catch (cause) {
    throw new FlagError("--config", path, cause);
  }
  if (!isObject(parsed)) {
    throw new FlagError("--config", path, "expected a JSON object of options");
  }
  const values: ServeOptionValues = {};
  for (const [key, value] of Object.entries(parsed)) {
    const name = optionNames().find((candidate) => camelCase(candidate) === key || candidate === key);
    if (!name) throw new FlagError("--config", path, `unknown option \`${key}\``);
    values[name] = configValue(path, key, OPTIONS[name].type, value);
  }
  return values;
}

function configValue(path: string, key: string, type: ServeOption["type"], value: unknown): ServeOptionValue {
  if (type === "strings" && Array.isArray(value) && value.every(isString)) return value;
  if (type === "integers" && Array.isArray(value) && value.every(isNumber))
    return value.map((item) => parseNumber(key, "integer", item));
  if (type === "boolean" && typeof value === "boolean") return value;
  if (type === "string" && typeof value === "string") return value;
  if ((type === "integer" || type === "seconds") && typeof value === "number") return parseNumber(key, type, value);
  throw new FlagError("--config", path, `\`${key}\` takes ${EXPECTED_VALUE[type]}`);
}

const EXPECTED_VALUE: Record<ServeOption["type"], string> = {
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
