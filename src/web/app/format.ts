import type { ExitReason, ProcessListing } from "../../exec/exec-process.ts";

/** Formats numbers, durations and states for users. */

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

/** Nothing where the price is not known. */
export function formatUsd(usd: number | null): string {
  if (usd === null) return "";
  return (usd === 0 || usd >= 0.1 ? CENTS : FRACTIONS).format(usd);
}

type Ended = Pick<ProcessListing, "exitCode" | "signal"> & {
  reason?: ExitReason | undefined;
  limit?: string | undefined;
};

/** How and why a process ended. */
export function formatExit({ exitCode, signal, reason, limit }: Ended): string {
  if (reason === "limit") return `ended by its limit ${limit}`;
  if (reason === "timeout") return "ended: its time was over";
  if (reason === "sessionExpired") return "ended with its session";
  if (reason === "terminated") return "ended on request";
  if (signal !== null) return `ended by ${signal}`;
  return exitCode === null ? "lost" : `exited with ${exitCode}`;
}

/** A process's state, as lists show it. */
export function formatState({ running, status, ...ended }: ProcessListing): string {
  if (!running) return formatExit({ ...ended, reason: status?.exitReason, limit: status?.limit });
  if (status?.isHeld) return "held back by a slow reader";
  if (status?.awaits === "secret") return "waits for a password";
  return status?.awaits === "key" ? "waits for input" : "running";
}

const LIMIT_WORDS: Readonly<Record<string, (value: number) => string>> = {
  wallTimeMs: (ms) => `${formatAge(ms)} of time`,
  cpuTimeMs: (ms) => `${formatAge(ms)} of CPU`,
  memoryBytes: (size) => `${formatBytes(size)} of memory`,
  processMemoryBytes: (size) => `${formatBytes(size)} of memory each`,
  openFiles: (files) => `${files} files`,
  processes: (processes) => `${processes} processes`,
  outputBytes: (size) => `${formatBytes(size)} of output`,
};

/** A process's limits, in short. */
export function limitsText(limits: NonNullable<ProcessListing["status"]>["limits"]): string {
  return Object.entries(limits ?? {})
    .map(([name, value]) => (value === undefined ? "" : (LIMIT_WORDS[name]?.(value) ?? name)))
    .filter((text) => text !== "")
    .join(", ");
}

/** A command line as it would be typed, without control characters. */
export function commandLine(argv: readonly string[]): string {
  return argv
    .map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`))
    .join(" ")
    .replace(/\p{Cc}/gu, "\u{fffd}");
}
