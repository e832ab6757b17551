/** `procwire serve` as a child process, like a user starts it. The URL is read from stdout. */

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { until, WAIT_TIMEOUT_MS } from "../system/until.ts";
import { lineWire, WireClient, webSocketWire } from "./raw-connection.ts";

export const PROCWIRE = fileURLToPath(new URL("../../../bin/procwire", import.meta.url));

export interface Exit {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export class ServeChild implements AsyncDisposable {
  readonly child: ChildProcess;
  /** Resolves when the program has exited and its streams have ended. */
  readonly exited: Promise<Exit>;
  stdout = "";
  stderr = "";
  url = "";

  constructor(
    args: string[],
    options: {
      env?: Record<string, string>;
      stdin?: "pipe" | "ignore";
      cwd?: string;
      /** The command that runs instead of `procwire serve`. */
      command?: [program: string, ...args: string[]];
    } = {},
  ) {
    const [program, ...before] = options.command ?? [PROCWIRE, "serve"];
    this.child = spawn(program, [...before, ...args], {
      stdio: [options.stdin ?? "ignore", "pipe", "pipe"],
      env: { ...process.env, ...options.env },
      ...(options.cwd && { cwd: options.cwd }),
    });
    this.child.stderr?.setEncoding("utf8");
    this.child.stderr?.on("data", (text: string) => {
      this.stderr += text;
    });
    this.exited = new Promise((resolve) => this.child.on("close", (code, signal) => resolve({ code, signal })));
  }

  /** Waits for the URL on stdout, and for the line on stderr that was written before it. */
  async listening(): Promise<this> {
    const { stdout } = this.child;
    assert.ok(stdout);
    stdout.setEncoding("utf8");
    stdout.on("data", (text: string) => {
      this.stdout += text;
    });
    await until(
      `a URL on stdout (stderr: ${this.stderr})`,
      () => [this.stdout, this.stderr].every((text) => text.includes("\n")),
      this.exited,
    );
    this.url = this.stdout.trim();
    return this;
  }

  /** Opens a new connection to the listening server. */
  async connect(headers: Record<string, string> = {}): Promise<WireClient> {
    return new WireClient(await webSocketWire(this.url, headers));
  }

  /** Returns the connection of a server on stdio. */
  overStdio(): WireClient {
    const { stdin, stdout } = this.child;
    assert.ok(stdin && stdout);
    return new WireClient(
      lineWire(
        stdout,
        stdin,
        this.exited.then(({ code }) => code),
      ),
    );
  }

  /** Returns the pid of the serving program: below two watchdogs if there are any, otherwise this child itself. */
  serverPid(): number {
    const pid = this.child.pid;
    assert.ok(pid !== undefined);
    const below = childrenOf(pid)[0];
    return below === undefined ? pid : (childrenOf(below)[0] ?? below);
  }

  /** Returns the pid of the watchdog that is the server's parent. The other watchdog is this child itself. */
  lowerWatchdogPid(): number {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${this.serverPid()}/status`, "utf8"))?.[1]);
  }

  /** Sends the signal and waits for the exit. */
  async stop(signal: NodeJS.Signals = "SIGTERM"): Promise<Exit> {
    if (this.child.exitCode === null && this.child.signalCode === null) this.child.kill(signal);
    return this.exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const timer = setTimeout(() => this.child.kill("SIGKILL"), WAIT_TIMEOUT_MS);
    await this.stop();
    clearTimeout(timer);
  }
}

export function serve(...args: string[]): Promise<ServeChild> {
  return new ServeChild(["--listen", "ws://127.0.0.1:0", ...args]).listening();
}

/** A temporary directory that is removed after the test. */
export function scratchDirectory(): { path: string } & Disposable {
  const path = mkdtempSync(join(tmpdir(), "procwire-test-"));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 10 }) };
}

/** Creates a named pipe. */
export function makePipe(path: string): void {
  execFileSync("sh", ["-c", 'mkfifo "$1"', "sh", path]);
}

export function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8").trim();
  return text === "" ? [] : text.split(" ").map(Number);
}

/** Returns the resident set of a process in bytes. */
export function residentBytes(pid: number): number {
  const kilobytes = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1];
  return Number(kilobytes) * 1024;
}

/** Reports whether a process of this id exists and is not a zombie. */
export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch {
    return false;
  }
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return !/\) Z /.test(stat);
  } catch {
    return false;
  }
}

/** Returns the processor time of a process in clock ticks of ten milliseconds. */
export function cpuTicks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

/** Returns the pids of all other processes that have `variable` in their environment. */
export function withEnvironment(variable: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .filter((name) => {
      try {
        return readFileSync(`/proc/${name}/environ`, "latin1").includes(variable);
      } catch {
        return false;
      }
    })
    .map(Number);
}
