import type { AttemptFailure, Report } from "../job-ledger.ts";
import { usageValues } from "../record-codec.ts";

/** The record of an attempt's end, whatever its outcome. */
export type AttemptEnd = Pick<Report, "usage" | "transcript"> & Partial<AttemptFailure>;

/** Its values for INSERT_ATTEMPT. */
export function endValues({ usage, errorClass, message, transcript }: AttemptEnd) {
  return {
    ...usageValues(usage),
    errorClass: errorClass ?? null,
    message: message ?? null,
    transcript: transcript ?? "[]",
  };
}
