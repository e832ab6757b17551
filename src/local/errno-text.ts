import { constants } from "node:os";
import { SYSTEM_ERROR_TEXTS } from "../base/errno-messages.ts";

/** The name of a system error's number: `ENOENT` for 2. */
export function errnoName(errno: number): string {
  return NAMES.get(errno) ?? `E${errno}`;
}

/** A system error as the wire words it: `No such file or directory (os error 2)`. */
export function errnoText(errno: number): string {
  const name = errnoName(errno);
  return `${SYSTEM_ERROR_TEXTS[name] ?? name} (os error ${errno})`;
}

/** The error of a process whose output could not be read, so that part of it is unknown. */
export function unreadableOutput(errno: number): Error {
  return new Error(`failed to read the output of the process: ${errnoText(errno)}`);
}

// EAGAIN and EWOULDBLOCK share a number, as do others: the first name in Node's table is the usual one, but not for these.
const NAMES = new Map<number, string>();
for (const [name, errno] of Object.entries(constants.errno)) if (!NAMES.has(errno)) NAMES.set(errno, name);
NAMES.set(constants.errno.EAGAIN, "EAGAIN");
