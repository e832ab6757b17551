import { closeSync, constants, openSync, readlinkSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";

const { O_DIRECTORY, O_RDWR } = constants;
/** Linux's; Node does not name them. */
const O_PATH = 0o10000000;
const O_TMPFILE = 0o20000000 | O_DIRECTORY;

/**
 * A descriptor from which exactly these bytes can be read. The file has no name: nobody who may write to the same folder,
 * a walled command of the same user among them, can open it.
 */
export function openData(bytes: Uint8Array): number {
  const fd = openUnnamed();
  try {
    // At a position of its own, so that the reader begins at the first byte.
    for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, bytes.length - at, at);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

function openUnnamed(): number {
  let problem: unknown;
  for (const folder of ["/dev/shm", tmpdir(), "/var/tmp"]) {
    try {
      return openSync(folder, O_TMPFILE | O_RDWR, 0o600);
    } catch (error) {
      problem = error;
    }
  }
  throw new Error("no folder of this machine can hold a file without a name (O_TMPFILE)", { cause: problem });
}

/** A second descriptor of the same directory, for whoever closes what it passes on. */
export function copyOf(directory: number): number {
  return openSync(`/proc/self/fd/${directory}`, O_PATH | O_DIRECTORY);
}

/**
 * Holds what is at a path that is free of links; throws when the path leads elsewhere by now. A descriptor stays what it is
 * whatever is renamed afterwards.
 */
export function openPlace(path: string): number {
  // Links are followed, so that what was opened tells where the path leads.
  const fd = openSync(path, O_PATH);
  try {
    const leadsTo = readlinkSync(`/proc/self/fd/${fd}`);
    if (leadsTo !== path) throw new Error(`\`${path}\` leads to \`${leadsTo}\` now`);
    return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}
