import { clamp } from "../../base/clamp.ts";

/** Limits of yield windows: how long a call waits before it returns partial output. In milliseconds. */
export interface YieldLimits {
  execDefaultMs: number;
  execMinMs: number;
  execMaxMs: number;
  writeDefaultMs: number;
  writeMinMs: number;
  writeMaxMs: number;
  pollMinMs: number;
  pollMaxMs: number;
}

/** The limits of Codex. A poll waits longer, because a short one would rarely return output. */
export const DEFAULT_YIELD_LIMITS: YieldLimits = {
  execDefaultMs: 10_000,
  execMinMs: 250,
  execMaxMs: 30_000,
  writeDefaultMs: 250,
  writeMinMs: 250,
  writeMaxMs: 30_000,
  pollMinMs: 5_000,
  pollMaxMs: 300_000,
};

export function execWindowMs(requested: number | undefined, limits: YieldLimits): number {
  return clamp(requested ?? limits.execDefaultMs, limits.execMinMs, limits.execMaxMs);
}

/** Returns the yield window of a `write_stdin` with text. */
export function writeWindowMs(requested: number | undefined, limits: YieldLimits): number {
  return clamp(requested ?? limits.writeDefaultMs, limits.writeMinMs, limits.writeMaxMs);
}

/** Returns the yield window of a `write_stdin` without text, which only polls. */
export function pollWindowMs(requested: number | undefined, limits: YieldLimits): number {
  return clamp(requested ?? limits.pollMinMs, limits.pollMinMs, limits.pollMaxMs);
}
