import { constants } from "node:os";
import { ERRNO_MESSAGES } from "../base/errno-messages.ts";

/** Returns the name of an error number, for example `ENOENT` for 2. */
export function errnoName(errno: number): string {
  return NAMES.get(errno) ?? `E${errno}`;
}

/** Returns the text of a system error in the wording of the wire protocol: `No such file or directory (os error 2)`. */
export function errnoMessage(errno: number): string {
  const name = errnoName(errno);
  return `${ERRNO_MESSAGES[name] ?? name} (os error ${errno})`;
}

/** Creates the error for a process whose output could not be read completely. */
export function outputReadError(errno: number): Error {
  return new Error(`failed to read the output of the process: ${errnoMessage(errno)}`);
}

// EAGAIN and EWOULDBLOCK share a number. The first name in Node's table is the usual one, except for these two.
const NAMES = new Map<number, string>();
for (const [name, errno] of Object.entries(constants.errno)) if (!NAMES.has(errno)) NAMES.set(errno, name);
NAMES.set(constants.errno.EAGAIN, "EAGAIN");
