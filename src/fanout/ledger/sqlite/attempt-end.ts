import type { AttemptFailure, Report } from "../job-ledger.ts";
import { usageValues } from "../record-codec.ts";

/** What an attempt has left behind, however it ended. */
export type AttemptEnd = Pick<Report, "usage" | "transcript"> & Partial<AttemptFailure>;

/** It, as INSERT_ATTEMPT takes it. */
export function endValues({ usage, errorClass, message, transcript }: AttemptEnd) {
  return {
    ...usageValues(usage),
    errorClass: errorClass ?? null,
    message: message ?? null,
    transcript: transcript ?? "[]",
  };
}
