/** A disk of a few kilobytes, for tests of a full disk: a tmpfs that only the test's programs see. */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, ftruncateSync, openSync, rmSync, writeSync } from "node:fs";

const NAMESPACE = ["--user", "--map-root-user", "--mount", "--"];

/** Null when such a disk can be made here, else why not. */
export function whyNoSmallDisk(): string | null {
  const mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"];
  const { error, status, stderr } = spawnSync("unshare", [...NAMESPACE, ...mount], { encoding: "utf8" });
  if (error) return `no small disk: ${error.message}`;
  return status === 0 ? null : `no small disk: ${stderr.trim()}`;
}

export class SmallDisk implements AsyncDisposable {
  #supervisor: ChildProcess;
  #folder: string;

  private constructor(supervisor: ChildProcess, folder: string) {
    this.#supervisor = supervisor;
    this.#folder = folder;
  }

  /** Mounts a disk over this directory. */
  static async at(folder: string, sizeBytes: number): Promise<SmallDisk> {
    // It lives until its stdin ends, so also no longer than this process.
    const script = 'mount -t tmpfs -o "size=$1" none "$2" && echo ready && exec cat';
    const args = [...NAMESPACE, "sh", "-c", script, "sh", `${sizeBytes}`, folder];
    const supervisor = spawn("unshare", args, { stdio: ["pipe", "pipe", "inherit"] });
    await Promise.race([
      once(supervisor.stdout, "data"),
      once(supervisor, "exit").then(() => Promise.reject(new Error("the small disk could not be made"))),
    ]);
    return new SmallDisk(supervisor, folder);
  }

  /** The words before a command that make it see the disk, in this working directory. */
  under(cwd: string): string[] {
    const enter = ["nsenter", `--target=${this.#supervisor.pid}`, "--user", "--mount", "--preserve-credentials"];
    return [...enter, "--", "env", `--chdir=${cwd}`];
  }

  /** The directory as this process can reach it. */
  get folder(): string {
    return `/proc/${this.#supervisor.pid}/root${this.#folder}`;
  }

  /** Leaves no room. */
  fill(): void {
    const fd = openSync(this.#filler, "w");
    const block = Buffer.alloc(4096, 1);
    let sizeBytes = 0;
    try {
      for (;;) sizeBytes += writeSync(fd, block);
    } catch {
      ftruncateSync(fd, sizeBytes);
    } finally {
      closeSync(fd);
    }
  }

  makeRoom(): void {
    rmSync(this.#filler);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const ended = once(this.#supervisor, "exit");
    this.#supervisor.stdin?.end();
    await ended;
  }

  get #filler(): string {
    return `${this.folder}/filler`;
  }
}
