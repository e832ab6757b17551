import { LIMIT_NAMES, type processLimits } from "../../protocol/process-schemas.ts";
import type { Infer } from "../../protocol/schema.ts";

export type { LimitName } from "../../protocol/process-schemas.ts";
export interface ProcessLimits extends Infer<typeof processLimits> {}

/** Returns the smaller value of each limit, or undefined if there is no limit. */
export function mergeLimits(first: ProcessLimits = {}, second: ProcessLimits = {}): ProcessLimits | undefined {
  const limits: ProcessLimits = {};
  for (const name of LIMIT_NAMES) {
    const values = [first[name], second[name]].filter((value) => value !== undefined);
    if (values.length > 0) limits[name] = Math.min(...values);
  }
  return Object.keys(limits).length === 0 ? undefined : limits;
}
