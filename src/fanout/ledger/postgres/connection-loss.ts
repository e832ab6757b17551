import { getErrorCode } from "../../../base/error-code.ts";
import { isLostConnectionText } from "./pg-compat.ts";

/**
 * Error codes of a lost connection. System codes include ENOTFOUND and EAI_AGAIN, because the name of a restarting
 * container does not resolve. Postgres codes: connection exceptions (08), shutdown, crash and start-up (57P01 to
 * 57P03), an ended idle session (57P05), and no free connection (53300).
 */
const LOST_CODE =
  /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND|08\w{3}|57P0[1235]|53300)$/;

/** Reports whether an error of a statement means that the database is unreachable, so that a retry can succeed. */
export function isLostConnection(error: unknown): boolean {
  return LOST_CODE.test(getErrorCode(error) ?? "") || (error instanceof Error && isLostConnectionText(error.message));
}
