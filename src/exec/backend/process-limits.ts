import { LIMIT_NAMES, type processLimits } from "../../protocol/process-schemas.ts";
import type { Infer } from "../../protocol/schema.ts";

export type { LimitName } from "../../protocol/process-schemas.ts";
export interface ProcessLimits extends Infer<typeof processLimits> {}

/** Returns the smaller value of each limit, or undefined if there is no limit. */
export function mergeLimits(first: ProcessLimits = {}, second: ProcessLimits = {}): ProcessLimits | undefined {
  let limits: ProcessLimits | undefined;
  for (const name of LIMIT_NAMES) {
    const limit = smallerOf(first[name], second[name]);
    if (limit !== undefined) limits = { ...limits, [name]: limit };
  }
  return limits;
}

function smallerOf(first: number | undefined, second: number | undefined): number | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  return Math.min(first, second);
}
