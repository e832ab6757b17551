import { constants } from "node:os";
import { SYSTEM_ERROR_TEXTS } from "../base/errno-messages.ts";
import { ErrorCode, RequestError } from "../protocol/errors.ts";

/** The wire's words for a system error, `No such file or directory (os error 2)`, from its name (`ENOENT`). */
export function osErrorText(errnoName: string): string {
  const number = errnoNumbers.get(errnoName);
  const text = SYSTEM_ERROR_TEXTS[errnoName] ?? errnoName;
  return number === undefined ? text : `${text} (os error ${number})`;
}

/** What a failed system call answers with; anything that is no system error is passed on as it is. */
export function osRequestError(error: unknown): unknown {
  const name = errnoName(error);
  if (name === null) return error;
  return new RequestError(codeOf(name), osErrorText(name), { cause: error });
}

/** The errno name of an error that a system call ended with, or null when it is some other error. */
export function errnoName(error: unknown): string | null {
  if (!(error instanceof Error) || !("code" in error) || typeof error.code !== "string") return null;
  return errnoNumbers.has(error.code) ? error.code : null;
}

/** Runs file system calls and turns their failure into an answer. */
export async function answeringOsErrors<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw osRequestError(error);
  }
}

function codeOf(name: string): number {
  if (name === "ENOENT") return ErrorCode.notFound;
  if (name === "EACCES" || name === "EPERM" || name === "EINVAL") return ErrorCode.invalidRequest;
  return ErrorCode.internal;
}

const errnoNumbers: ReadonlyMap<string, number> = new Map(Object.entries(constants.errno));
