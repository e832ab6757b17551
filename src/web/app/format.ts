import { formatAge } from "../../base/text/format-age.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";

export { formatAge };

/** Formats a measured duration: true to 10 ms below a minute, otherwise as an age. */
export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms / 10) * 10} ms`;
  // Rounded first: 59.996 s is a minute.
  const hundredths = Math.round(ms / 10);
  if (hundredths < 6000) return `${(hundredths / 100).toFixed(2)} s`;
  return formatAge(Math.round(ms / 1000) * 1000);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function formatBytes(count: number): string {
  const at = count < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log2(count) / 10));
  const value = count / 1024 ** at;
  return `${at === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[at]}`;
}

/** Formats rows per second; slow jobs get rows per minute. Empty without a rate. */
export function formatRate(perSecond: number): string {
  if (perSecond <= 0) return "";
  if (perSecond < 0.1) return `${(perSecond * 60).toFixed(1)} rows/min`;
  return `${perSecond.toFixed(perSecond < 100 ? 1 : 0)} rows/s`;
}

export function formatCount(number: number): string {
  return number.toLocaleString("en");
}

/** Formats a count with its noun, such as `1 row` or `2,000 rows`. */
export function formatQuantity(number: number, noun: string, plural = `${noun}s`): string {
  return `${formatCount(number)} ${number === 1 ? noun : plural}`;
}

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Formats a large count in few characters, such as `349K`. */
export function formatCompact(number: number): string {
  return COMPACT.format(number);
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
