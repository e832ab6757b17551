import { isObject } from "../../../agent/api/response-events.ts";

/**
 * Codes of the system (the name of a container that restarts is unknown meanwhile), and of Postgres: connection exceptions (08), shutdown, crash and start-up (57P01 to 57P03), an idle
 * session that was ended (57P05), and no connection left (53300).
 */
const LOST =
  /^(ECONNREFUSED|ECONNRESET|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|EAI_AGAIN|ENOTFOUND|08\w{3}|57P0[1235]|53300)$/;

/** Messages of the driver that come without a code. */
const LOST_TEXT =
  /^(Connection terminated|timeout exceeded when trying to connect|timeout expired|Client has encountered a connection error|Client was closed)/;

export function isLostConnection(error: unknown): boolean {
  return LOST.test(codeOf(error)) || (error instanceof Error && LOST_TEXT.test(error.message));
}

function codeOf(error: unknown): string {
  return isObject(error) && typeof error.code === "string" ? error.code : "";
}
