import { LIMIT_NAMES, type processLimits } from "../../protocol/process-schemas.ts";
import type { Infer } from "../../protocol/schema.ts";

export type { LimitName } from "../../protocol/process-schemas.ts";
export type ProcessLimits = Infer<typeof processLimits>;

/** Both at once: of each limit the smaller one. Undefined when nothing is limited. */
export function tightest(one: ProcessLimits = {}, other: ProcessLimits = {}): ProcessLimits | undefined {
  const limits: ProcessLimits = {};
  for (const name of LIMIT_NAMES) {
    const values = [one[name], other[name]].filter((value) => value !== undefined);
    if (values.length > 0) limits[name] = Math.min(...values);
  }
  return Object.keys(limits).length === 0 ? undefined : limits;
}
