/** A disk of a few kilobytes, for programs that must bear a full one: a tmpfs that only they see. */

import { spawnSync } from "node:child_process";

const NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "--"];

/** Null when such a disk can be made here, else why not. */
export function whyNoSmallDisk(): string | null {
  const [program = "", ...args] = [...NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"];
  const { error, status, stderr } = spawnSync(program, args, { encoding: "utf8" });
  if (error) return `no small disk: ${error.message}`;
  return status === 0 ? null : `no small disk: ${stderr.trim()}`;
}

/**
 * The words before a command that make it see a disk of this size at the folder. What is left there at its end is the
 * last line of its stdout.
 */
export function onSmallDisk(folder: string, sizeBytes: number): string[] {
  const script = 'mount -t tmpfs -o "size=$1" none "$2" || exit 99; left=$2; shift 2; "$@"; end=$?';
  return [
    ...NAMESPACE,
    "sh",
    "-c",
    `${script}; echo $(ls -A "$left"); exit $end`,
    "sh",
    `${sizeBytes}`,
    folder,
  ];
}
