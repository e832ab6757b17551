import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../system/until.ts";
import { PROCWIRE, scratchDirectory } from "./serve.ts";

/** A runtime directory of a test's own; the server that was started there on demand is ended with it. */
export class OwnServerPlace implements AsyncDisposable {
  readonly #scratch = scratchDirectory();
  readonly directory = join(this.#scratch.path, "runtime");
  readonly folder = this.#scratch.path;

  /** An `exec:` URL that leads to it; `before` is shell code. */
  url(before = ""): string {
    return `exec:${before} PROCWIRE_RUNTIME_DIR='${this.directory}' exec '${PROCWIRE}' connect`;
  }

  log(): string {
    return readFileSync(join(this.directory, "server.log"), "utf8");
  }

  /** Watchdogs and all: every program whose command line names the directory's socket. */
  serverPids(): number[] {
    const mark = `unix://${join(this.directory, "server.sock")}`;
    return readdirSync("/proc")
      .filter((name) => /^\d+$/.test(name) && commandLine(name).includes(mark))
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
    // Its watchdog was quicker.
  }
}
