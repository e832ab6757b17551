/** How long a call may wait before it gives the model what there is. All in milliseconds. */
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

/** The windows models know from Codex. A poll has nothing to answer to, so it is worth only when it waits a while. */
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

/** The window of a `write_stdin` with text. */
export function writeWindowMs(requested: number | undefined, limits: YieldLimits): number {
  return clamp(requested ?? limits.writeDefaultMs, limits.writeMinMs, limits.writeMaxMs);
}

/** The window of a `write_stdin` without text, which only looks. */
export function pollWindowMs(requested: number | undefined, limits: YieldLimits): number {
  return clamp(requested ?? limits.pollMinMs, limits.pollMinMs, limits.pollMaxMs);
}

function clamp(value: number, min: number, max: number): number {
  return Math.max(min, Math.min(max, value));
}
