/** A tmpfs of a few kilobytes for tests of a full disk. Only programs of the test see it. */

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { closeSync, ftruncateSync, openSync, rmSync, writeSync } from "node:fs";

const NAMESPACE = ["--user", "--map-root-user", "--mount", "--"];

/** Returns why the disk cannot be created on this host, or null. */
export function whyNoSmallDisk(): string | null {
  const mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"];
  const { error, status, stderr } = spawnSync("unshare", [...NAMESPACE, ...mount], { encoding: "utf8" });
  if (error) return `no small disk: ${error.message}`;
  return status === 0 ? null : `no small disk: ${stderr.trim()}`;
}

export class SmallDisk implements AsyncDisposable {
  #supervisor: ChildProcess;
  #directory: string;

  private constructor(supervisor: ChildProcess, directory: string) {
    this.#supervisor = supervisor;
    this.#directory = directory;
  }

  /** Mounts a disk over this directory. */
  static async at(directory: string, sizeBytes: number): Promise<SmallDisk> {
    // `cat` keeps the namespace alive until its stdin ends, which happens at the latest when this process exits.
    const script = 'mount -t tmpfs -o "size=$1,mode=755" none "$2" && echo ready && exec cat';
    const args = [...NAMESPACE, "sh", "-c", script, "sh", `${sizeBytes}`, directory];
    const supervisor = spawn("unshare", args, { stdio: ["pipe", "pipe", "inherit"] });
    await Promise.race([
      once(supervisor.stdout, "data"),
      once(supervisor, "exit").then(() => Promise.reject(new Error("the small disk could not be made"))),
    ]);
    return new SmallDisk(supervisor, directory);
  }

  /** Returns the arguments that precede a command to run it on the disk, in this working directory. */
  under(cwd: string): string[] {
    const enter = ["nsenter", `--target=${this.#supervisor.pid}`, "--user", "--mount", "--preserve-credentials"];
    return [...enter, "--", "env", `--chdir=${cwd}`];
  }

  /** Path by which this process reaches the directory. */
  get directory(): string {
    return `/proc/${this.#supervisor.pid}/root${this.#directory}`;
  }

  /** Fills the disk completely. */
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
    return `${this.directory}/filler`;
  }
}
