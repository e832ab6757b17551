import { closeSync, constants, fstatSync, openSync, readlinkSync } from "node:fs";
import { messageOf } from "../base/error-message.ts";
import { invalidRequest } from "../protocol/errors.ts";

/** Linux's O_PATH, which Node does not name: opens a directory without permission to read it. */
const O_PATH = 0o10000000;

/** A directory held open: it stays what it is, whatever is renamed or linked in the meantime. */
export interface HeldDirectory extends Disposable {
  readonly fd: number;
}

/**
 * Opens the directory at a path if it is the one that is meant (`device:inode`) and no link is on the way. Between a
 * check of a path and a start in it, anyone who may write there can put another directory or a link in its place; here
 * the opened descriptor itself is checked and then used, so there is no such race.
 */
export function openExactDirectory(path: string, identity: string): HeldDirectory {
  const refuse = (why: string) =>
    invalidRequest(`cwd \`${path}\` is no longer the directory that was meant: ${why}`);
  let fd: number;
  try {
    fd = openSync(path, O_PATH | constants.O_DIRECTORY);
  } catch (error) {
    throw refuse(messageOf(error));
  }
  try {
    const { dev, ino } = fstatSync(fd, { bigint: true });
    const leadsTo = readlinkSync(`/proc/self/fd/${fd}`);
    if (leadsTo !== path) throw refuse(`it leads to \`${leadsTo}\``);
    if (`${dev}:${ino}` !== identity) throw refuse("another one is in its place");
    return { fd, [Symbol.dispose]: () => closeSync(fd) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
