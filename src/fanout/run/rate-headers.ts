import type { ResponseHeaders } from "../../agent/api/model-api.ts";
import { firstHeaderValue } from "../../agent/api/model-error.ts";

/** Maximum wait that a rate-limit header can cause. */
const MAX_HEADER_HOLD_MS = 60_000;

/**
 * Returns how long the rate limit is exhausted according to the headers; 0: not exhausted or unknown. The reset time is
 * the time until the whole bucket is full. If the size of the bucket is known, the result is the time until one call
 * fits.
 */
export function exhaustedForMs(headers: ResponseHeaders): number {
  let ms = 0;
  for (const resource of ["requests", "tokens"]) {
    if (firstHeaderValue(headers[`x-ratelimit-remaining-${resource}`]) !== "0") continue;
    const resetMs = parseDuration(firstHeaderValue(headers[`x-ratelimit-reset-${resource}`]) ?? "");
    if (resetMs === undefined) continue;
    const size = resource === "requests" ? Number(firstHeaderValue(headers["x-ratelimit-limit-requests"])) : null;
    ms = Math.max(ms, Math.min(MAX_HEADER_HOLD_MS, size !== null && size >= 1 ? resetMs / size : resetMs));
  }
  return ms;
}

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses `120ms`, `1.5s`, `6m0s`, `1h2m3s`, or plain seconds. */
export function parseDuration(text: string): number | undefined {
  if (/^\d+(\.\d+)?$/.test(text)) return Number(text) * 1_000;
  if (!/^(\d+(\.\d+)?(ms|s|m|h|d))+$/.test(text)) return undefined;
  let total = 0;
  for (const [, amount, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)) {
    total += Number(amount) * (UNIT_MS[unit ?? ""] ?? 0);
  }
  return total;
}
