import type { AttemptFailure, Report } from "../job-ledger.ts";
import { usageValues } from "../record-codec.ts";

/** The end of an attempt, for any outcome. */
export type AttemptEnd = Pick<Report, "usage" | "transcript"> & Partial<AttemptFailure>;

/** Returns the parameters of INSERT_ATTEMPT. */
export function attemptEndValues({ usage, errorClass, message, transcript }: AttemptEnd) {
  return {
    ...usageValues(usage),
    errorClass: errorClass ?? null,
    message: message ?? null,
    transcript: transcript ?? "[]",
  };
}
