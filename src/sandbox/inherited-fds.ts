import { closeSync, constants, openSync, readlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";

const { O_DIRECTORY, O_RDWR } = constants;
/** Linux flags that Node does not define. */
const O_PATH = 0o10000000;
const O_TMPFILE = 0o20000000 | O_DIRECTORY;

/**
 * Returns a descriptor of a file with these bytes. The file has no name, so no other process can open it, not even a
 * sandboxed command of the same user that may write to the same directory.
 */
export function openAnonymousFile(bytes: Uint8Array): number {
  const fd = openUnnamed();
  try {
    // Positioned writes keep the offset at 0, where the reader starts.
    for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, bytes.length - at, at);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function openUnnamed(): number {
  let problem: unknown;
  for (const directory of ["/dev/shm", tmpdir(), "/var/tmp"]) {
    try {
      return openSync(directory, O_TMPFILE | O_RDWR, 0o600);
    } catch (error) {
      problem = error;
    }
  }
  throw new Error("create unnamed temporary file: no directory supports O_TMPFILE; set TMPDIR to a local file system", {
    cause: problem,
  });
}

/** Returns a second descriptor of the same directory, for a caller that closes the descriptors it passes on. */
export function duplicateFd(directory: number): number {
  return openSync(`/proc/self/fd/${directory}`, O_PATH | O_DIRECTORY);
}

/** Returns a descriptor through which a child can execute the file, and do nothing else. */
export function openExecutable(path: string): number {
  return openSync(path, O_PATH);
}

/**
 * Opens a path that must not contain symbolic links. Throws if it now resolves to another path. The descriptor refers to
 * the same file even if the path is renamed later.
 */
export function openPath(path: string): number {
  // Follows links, so that the resolved path can be compared.
  const fd = openSync(path, O_PATH);
  try {
    const resolved = readlinkSync(`/proc/self/fd/${fd}`);
    if (resolved !== path) throw new Error(`open \`${path}\`: it resolves to \`${resolved}\``);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
