import { closeSync, constants, fstatSync, openSync, readlinkSync } from "node:fs";
import { errorMessage } from "../base/error-message.ts";
import { invalidRequest } from "../protocol/errors.ts";

/** Linux's O_PATH, which Node does not define. It opens a directory without read permission. */
const O_PATH = 0o10000000;

/** An open directory. The descriptor refers to the same directory even if its path is renamed or replaced. */
export interface VerifiedDirectory extends Disposable {
  readonly fd: number;
}

/**
 * Opens the directory at `path` if its identity is `device:inode` and the path contains no symbolic link. The check is
 * made on the open descriptor, which is then used for the start. A check of the path alone would be a race: before the
 * start, any user with write access could replace the directory or insert a link.
 */
export function openVerifiedDirectory(path: string, identity: string): VerifiedDirectory {
  const refuse = (why: string) => invalidRequest(`cwd \`${path}\`: directory changed since it was checked (${why})`);
  let fd: number;
  try {
    fd = openSync(path, O_PATH | constants.O_DIRECTORY);
  } catch (error) {
    throw refuse(errorMessage(error));
  }
  try {
    const { dev, ino } = fstatSync(fd, { bigint: true });
    const resolved = readlinkSync(`/proc/self/fd/${fd}`);
    if (resolved !== path) throw refuse(`it resolves to \`${resolved}\``);
    if (`${dev}:${ino}` !== identity) throw refuse(`expected device:inode ${identity}, found ${dev}:${ino}`);
    return { fd, [Symbol.dispose]: () => closeSync(fd) };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
