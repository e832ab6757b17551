/** Makes system calls of a running program fail, with strace's `inject`. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { until } from "../system/until.ts";

/** Returns why strace cannot be used on this host, or null. */
export function whyNoStrace(): string | null {
  const { error, status, stderr } = spawnSync("strace", ["-f", "-o", "/dev/null", "true"], {
    encoding: "utf8",
  });
  if (error) return `strace cannot be run: ${error.message}`;
  return status === 0 ? null : `strace does not work here: ${stderr.trim()}`;
}

export interface Injection {
  syscall: string;
  error: string;
  /** The call of each thread that fails, counted from the injection of the fault; `1+` is every call. */
  when: number | "1+";
  /** Limits the fault to descriptors of this file or pipe, named as in `/proc/PID/fd`. */
  path?: string;
}

/** Injects a fault into every thread of a program, but not into its later children. */
export class InjectedFault implements AsyncDisposable {
  readonly #strace: ChildProcess;
  readonly #exited: Promise<void>;
  #text = "";

  private constructor(strace: ChildProcess) {
    this.#strace = strace;
    strace.stderr?.setEncoding("utf8");
    strace.stderr?.on("data", (text: string) => {
      this.#text += text;
    });
    this.#exited = new Promise((resolve) => strace.on("close", () => resolve()));
  }

  static async into(pid: number, { syscall, error, when, path }: Injection): Promise<InjectedFault> {
    const threads = readdirSync(`/proc/${pid}/task`);
    const inject = `inject=${syscall}:error=${error}:when=${when}`;
    const only = path === undefined ? [] : ["-P", path];
    const attach = threads.flatMap((thread) => ["-p", thread]);
    const args = ["-e", `trace=${syscall}`, "-e", inject, ...only, ...attach];
    const fault = new InjectedFault(spawn("strace", args, { stdio: ["ignore", "ignore", "pipe"] }));
    await until(
      `strace is attached to ${threads.length} threads: ${fault.#text}`,
      () => fault.#text.split(" attached").length > threads.length,
      fault.#exited,
    );
    return fault;
  }

  /** Number of calls that the fault made fail so far. */
  get injected(): number {
    return this.#text.split("(INJECTED)").length - 1;
  }

  /** Stops the fault. */
  async [Symbol.asyncDispose](): Promise<void> {
    const { pid } = this.#strace;
    assert.ok(pid !== undefined);
    this.#strace.kill("SIGINT");
    await this.#exited;
  }
}
