import { UsageError } from "../usage-error.ts";

const UNITS = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Parses a duration such as `90s`, `15m`, `2h` or `1d`, in milliseconds. A number without a unit counts seconds. */
export function parseDuration(flag: string, text: string): number {
  const ms = durationMs(text);
  if (ms !== null) return ms;
  throw new UsageError(`invalid --${flag} \`${text}\`; expected a duration such as 90s, 15m, 2h or 1d`);
}

/** A point in time: a duration before now, or a time since the epoch in milliseconds. */
export type Since = { type: "agoMs"; ms: number } | { type: "epochMs"; ms: number };

/** Parses a duration or an RFC 3339 time. A time without a zone is local. */
export function parseSince(flag: string, text: string): Since {
  const agoMs = durationMs(text);
  if (agoMs !== null) return { type: "agoMs", ms: agoMs };
  const epochMs = Date.parse(text);
  const isTime = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d|$)/.test(text) && !Number.isNaN(epochMs);
  if (isTime) return { type: "epochMs", ms: epochMs };
  throw new UsageError(
    `invalid --${flag} \`${text}\`; expected a duration such as 90s, 15m, 2h or 1d, or a time such as 2026-01-31T09:30:00Z`,
  );
}

function durationMs(text: string): number | null {
  const [, number, unit = "s"] = /^(\d+(?:\.\d+)?)([smhd])?$/.exec(text) ?? [];
  return number === undefined ? null : Number(number) * UNITS[unit as keyof typeof UNITS];
}
