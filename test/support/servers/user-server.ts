import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../system/until.ts";
import { PROCWIRE, scratchDirectory } from "./serve.ts";

/** A temporary runtime directory. Disposal ends the per-user server that was started in it. */
export class UserServerDirectory implements AsyncDisposable {
  readonly #scratch = scratchDirectory();
  readonly runtimeDirectory = join(this.#scratch.path, "runtime");
  readonly directory = this.#scratch.path;

  /** Returns an `exec:` URL of that server; `before` is shell code. */
  url(before = ""): string {
    return `exec:${before} PROCWIRE_RUNTIME_DIR='${this.runtimeDirectory}' exec '${PROCWIRE}' connect`;
  }

  log(): string {
    return readFileSync(join(this.runtimeDirectory, "server.log"), "utf8");
  }

  /** Returns the pids of the server, its supervisor and its watchdogs: all command lines that name its socket. */
  serverPids(): number[] {
    const socketUrl = `unix://${join(this.runtimeDirectory, "server.sock")}`;
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name) && commandLine(name).includes(socketUrl))
      .map(Number);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const pid of this.serverPids()) end(pid);
    await until("the server has ended", () => this.serverPids().length === 0);
    this.#scratch[Symbol.dispose]();
  }
}

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "latin1");
  } catch {
    return "";
  }
}

function end(pid: number): void {
  try {
    process.kill(pid, "SIGTERM");
  } catch {
    // The watchdog has already ended it.
  }
}
