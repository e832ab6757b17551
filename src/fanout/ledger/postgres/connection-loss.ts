import { getErrorCode } from "../../../base/error-code.ts";

/**
 * Error codes of a lost connection. System codes include ENOTFOUND and EAI_AGAIN, because the name of a restarting
 * container does not resolve. Postgres codes: connection exceptions (08), shutdown, crash and start-up (57P01 to
 * 57P03), an ended idle session (57P05), and no free connection (53300).
 */
const LOST_CODE =
  /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND|08\w{3}|57P0[1235]|53300)$/;

/** Driver messages without a code. */
const LOST_TEXT =
  /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|Client has encountered a connection error|Client was closed)/;

export function isLostConnection(error: unknown): boolean {
  return LOST_CODE.test(getErrorCode(error) ?? "") || (error instanceof Error && LOST_TEXT.test(error.message));
}
