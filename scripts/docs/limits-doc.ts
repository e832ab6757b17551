/**
 * `npm run limits-doc`: writes docs/limits.md, the reference of all limits and defaults, from the option table of `serve`
 * and the constants of the sources. `test/documents/limits.test.ts` fails if the file is outdated, or if a constant is
 * neither documented (`limits-texts.ts`) nor internal (`internal-limits.ts`).
 */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { HELP_GROUPS } from "../../src/cli/options/serve-option-table.ts";
import { DEFAULT_RECONNECT_POLICY, type ReconnectPolicy } from "../../src/client/session/reconnect-policy.ts";
import { DEFAULT_EVENT_LOG_LIMITS, type EventLogLimits } from "../../src/exec/log/event-log.ts";
import { type Cap, DEFAULT_SERVER_CAPS, type ServerCaps } from "../../src/server/server-config.ts";
import { DEFAULT_YIELD_LIMITS, type YieldLimits } from "../../src/tools/calls/yield-window.ts";
import { type ArchiveLimits, DEFAULT_ARCHIVE_LIMITS } from "../../src/tools/output/output-archive.ts";
import { DEFAULT_SESSION_LIMITS, type SessionLimits } from "../../src/tools/sessions/exec-session-table.ts";
import { DOCUMENTED_LIMITS } from "./limits-texts.ts";

export const LIMITS_DOCUMENT = "docs/limits.md";

const CAPS = {
  waits: "pending `process/wait` calls, per connection and per server",
  watchedPaths: "paths of `fs/watchMissing` per server",
  fileHandles: "open files per server",
  httpRequests: "pending HTTP requests, per connection and per server",
  forwardStreams: "forwarded streams, per connection and per server",
  forwardListeners: "listeners of `forward -R` per server",
  sandboxedFileServers: "file servers in a sandbox, per session and per server",
} satisfies Record<keyof ServerCaps, string>;

const RECONNECT = {
  deadlineMs: "time to reconnect; then all calls fail",
  firstDelayMs: "delay of the second attempt; it doubles",
  maxDelayMs: "largest delay between attempts",
} satisfies Record<Exclude<keyof ReconnectPolicy, "newSession">, string>;

const EVENT_LOG = {
  retainedBytes: "retained output per process",
  retainedChunks: "retained chunks per process",
  headBytes: "first bytes per stream in a snapshot",
  tailBytes: "last bytes per stream in a snapshot",
} satisfies Record<keyof EventLogLimits, string>;

const YIELD = {
  execDefaultMs: "yield window of `exec_command`",
  execMinMs: "its minimum",
  execMaxMs: "its maximum",
  writeDefaultMs: "yield window of `write_stdin` with input",
  writeMinMs: "its minimum",
  writeMaxMs: "its maximum",
  pollMinMs: "minimum yield window of `write_stdin` without input",
  pollMaxMs: "its maximum",
} satisfies Record<keyof YieldLimits, string>;

const SESSIONS = {
  maxSessions: "live exec sessions; one more ends the least recently used",
  protectedSessions: "most recently used exec sessions that are never ended",
} satisfies Record<keyof SessionLimits, string>;

const ARCHIVE = {
  memoryBytes: "output of an exec session in memory",
  fileBytes: "output of an exec session in a file",
} satisfies Record<keyof ArchiveLimits, string>;

const { newSession: _, ...RECONNECT_TIMES } = DEFAULT_RECONNECT_POLICY;

/** Rows of limits that are members of an object, by the section that they extend. */
const OBJECT_ROWS: Readonly<Record<string, readonly string[]>> = {
  "Processes and output": rows(EVENT_LOG, DEFAULT_EVENT_LOG_LIMITS, (name) =>
    name === "retainedBytes" ? "`--retained-output-bytes`" : "fixed",
  ),
  "Connections and messages": rows(CAPS, DEFAULT_SERVER_CAPS, (name) => `\`caps.${name}\` of \`ExecServer\``),
  "Client library": rows(RECONNECT, RECONNECT_TIMES, (name) => `\`reconnect.${name}\``),
  "Tools for models": [
    ...rows(YIELD, DEFAULT_YIELD_LIMITS, () => "`yield_time_ms`"),
    ...rows(SESSIONS, DEFAULT_SESSION_LIMITS, () => "fixed"),
    ...rows(ARCHIVE, DEFAULT_ARCHIVE_LIMITS, () => "fixed"),
  ],
};

export function limitsDocument(): string {
  const constants = numericConstants();
  const lines = [
    "# Limits",
    "",
    "Every limit and default of procwire, and the flag or option that changes it. Generated from the sources by `npm run limits-doc`.",
    "An embedded server takes limits, quotas and times in [ServerConfig](api.md#serverconfig), in milliseconds instead of seconds.",
    "",
    "Unless its row says otherwise, the server rejects a request above a limit with an error that names it.",
    "",
    "## Flags of `procwire serve`",
  ];
  for (const [title, options] of Object.entries(HELP_GROUPS)) {
    lines.push("", `### ${title}`, "", "| flag | meaning | default |", "|---|---|---|");
    for (const [name, { type, value, help }] of Object.entries(options)) {
      const [, meaning = help, byDefault = type === "boolean" ? "off" : "none"] =
        /^(.*?) \(default: (.*)\)$/.exec(help) ?? [];
      const unit = value === "BYTES" ? "BYTES" : value === "SECONDS" ? "SECONDS" : "";
      const shown = /^\d+$/.test(byDefault) ? format(unit, Number(byDefault)) : byDefault;
      lines.push(`| \`--${name}\` | ${meaning.replaceAll("|", "\\|")} | ${shown} |`);
    }
  }
  for (const [title, limits] of Object.entries(DOCUMENTED_LIMITS)) {
    lines.push("", `## ${title}`, "", "| limit | value | change with |", "|---|---|---|");
    for (const { file, constant, text, option } of limits) {
      const value = constants.get(`${file} ${constant}`);
      if (value === undefined) throw new Error(`limits-texts.ts: ${file}.ts has no numeric constant ${constant}`);
      lines.push(`| ${text} | ${format(constant, value)} | ${option ?? "fixed"} |`);
    }
    lines.push(...(OBJECT_ROWS[title] ?? []));
  }
  return `${lines.join("\n")}\n`;
}

/** Returns the numeric constants at the top level of the sources, by `FILE NAME`. */
export function numericConstants(): Map<string, number> {
  const found = new Map<string, number>();
  for (const path of globSync("src/**/*.ts", { exclude: ["src/web/**"] })) {
    const pattern = /^(?:export )?const ([A-Z][A-Z0-9_]*)(?:: [^=\n]+)? = ([\d_ *+()-]+);/gm;
    for (const [, name, expression = ""] of readFileSync(path, "utf8").matchAll(pattern))
      found.set(`${basename(path, ".ts")} ${name}`, evaluate(expression));
  }
  return found;
}

/** Evaluates sums and products of literals, such as `64 * 1024 - 24`. */
function evaluate(expression: string): number {
  return expression
    .replaceAll(/[_()]/g, "")
    .split(/(?=[+-])/)
    .map((term) => term.replaceAll(" ", ""))
    .reduce((sum, term) => sum + term.split("*").reduce((product, factor) => product * Number(factor), 1), 0);
}

function rows<K extends string>(
  texts: Readonly<Record<K, string>>,
  values: Readonly<Record<K, number | Cap>>,
  option: (name: K) => string,
): string[] {
  return (Object.keys(texts) as K[]).map((name) => {
    const value = values[name];
    const unit = name.replaceAll(/([A-Z])/g, "_$1").toUpperCase();
    const shown =
      typeof value === "number" ? format(unit, value) : `${format("", value.perOwner)} and ${format("", value.total)}`;
    return `| ${texts[name]} | ${shown} | ${option(name)} |`;
  });
}

/** Formats a value by the unit in its name: bytes, milliseconds, seconds, days, or a count. */
function format(name: string, value: number): string {
  if (name.includes("BYTES")) return bytes(value);
  if (name.endsWith("MS")) return duration(value);
  if (name.endsWith("SECONDS")) return duration(value * 1000);
  if (name.endsWith("DAYS")) return `${value} days`;
  if (name.endsWith("PORT")) return String(value);
  return value.toLocaleString("en-US");
}

function bytes(value: number): string {
  for (const [unit, size] of [
    ["GiB", 1024 ** 3],
    ["MiB", 1024 ** 2],
    ["MB", 1_000_000],
    ["KiB", 1024],
  ] as const)
    if (value >= size && value % size === 0) return `${value / size} ${unit}`;
  return `${value.toLocaleString("en-US")} bytes`;
}

function duration(ms: number): string {
  for (const [unit, size] of [
    ["days", 86_400_000],
    ["h", 3_600_000],
    ["min", 60_000],
    ["s", 1_000],
  ] as const)
    if (ms >= size * (unit === "days" ? 2 : 1) && ms % size === 0 && !(unit === "min" && ms < 120_000))
      return `${ms / size} ${unit}`;
  return `${ms} ms`;
}

if (import.meta.main) writeFileSync(LIMITS_DOCUMENT, limitsDocument());
