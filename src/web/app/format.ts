import type { ExitReason, ProcessListing } from "../../exec/exec-process.ts";

export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function formatBytes(count: number): string {
  const at = count < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(count) / 10));
  const value = count / 1024 ** at;
  return `${at === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[at]}`;
}

export function formatCount(number: number): string {
  return number.toLocaleString("en");
}

const CENTS = new Intl.NumberFormat("en", { style: "currency", currency: "USD" });
/** Small amounts get enough digits not to look like zero. */
const FRACTIONS = new Intl.NumberFormat("en", {
  style: "currency",
  currency: "USD",
  maximumSignificantDigits: 2,
});

/** Returns an empty string if the price is unknown. */
export function formatUsd(usd: number | null): string {
  if (usd === null) return "";
  return (usd === 0 || usd >= 0.1 ? CENTS : FRACTIONS).format(usd);
}

type ExitInfo = Pick<ProcessListing, "exitCode" | "signal"> & {
  reason?: ExitReason | undefined;
  limit?: string | undefined;
};

/** Formats how and why a process ended. */
export function formatExit({ exitCode, signal, reason, limit }: ExitInfo): string {
  if (reason === "limit") return `terminated by the limit ${limit}`;
  if (reason === "timeout") return "terminated by its timeout";
  if (reason === "sessionExpired") return "terminated with its session";
  if (reason === "terminated") return "terminated";
  if (signal !== null) return `killed by ${signal}`;
  return exitCode === null ? "lost" : `exited with ${exitCode}`;
}

/** Formats the state of a process for lists. */
export function formatState({ running, status, ...ended }: ProcessListing): string {
  if (!running) return formatExit({ ...ended, reason: status?.exitReason, limit: status?.limit });
  if (status?.isHeld) return "paused by a slow reader";
  if (status?.awaits === "secret") return "waiting for a password";
  return status?.awaits === "key" ? "waiting for input" : "running";
}

const LIMIT_FORMATS: Readonly<Record<string, (value: number) => string>> = {
  wallTimeMs: (ms) => `${formatAge(ms)} of time`,
  cpuTimeMs: (ms) => `${formatAge(ms)} of CPU`,
  memoryBytes: (size) => `${formatBytes(size)} of memory`,
  processMemoryBytes: (size) => `${formatBytes(size)} of memory each`,
  openFiles: (files) => `${files} files`,
  processes: (processes) => `${processes} processes`,
  outputBytes: (size) => `${formatBytes(size)} of output`,
};

/** Formats the limits of a process. */
export function formatLimits(limits: NonNullable<ProcessListing["status"]>["limits"]): string {
  return Object.entries(limits ?? {})
    .map(([name, value]) => (value === undefined ? "" : (LIMIT_FORMATS[name]?.(value) ?? name)))
    .filter((text) => text !== "")
    .join(", ");
}

/** Formats a command as a user would type it, without control characters. */
export function formatCommand(argv: readonly string[]): string {
  return argv
    .map((arg) => (/^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replaceAll("'", "'\\''")}'`))
    .join(" ")
    .replace(/\p{Cc}/gu, "\u{fffd}");
}
