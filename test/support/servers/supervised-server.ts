/** `procwire serve --supervised` as a user starts it, and the programs it consists of. */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import {
  closeSync,
  copyFileSync,
  cpSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";
import type { ExecServerClient as Client, ExecServerClientOptions } from "../../../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import { loadAddon } from "../../../src/native/load-addon.ts";
import { nativeFileCandidates } from "../../../src/native/native-files.ts";
import { nameOf } from "../system/process-stats.ts";
import { skipUnless } from "../system/skip-unless.ts";
import { until } from "../system/until.ts";
import { childrenOf, PROCWIRE, ServeChild } from "./serve.ts";

const SUPERVISOR = nativeFileCandidates("supervisor").next().value ?? "";
const WATCHDOG = nativeFileCandidates("watchdog").next().value ?? "";

/** Why tests of the supervisor are skipped; false when they are not. */
export const NO_SUPERVISOR: string | false = SUPERVISOR ? false : "THE SUPERVISOR IS NOT TESTED: it was not built";

/** Short delays, so that a test with many lost connections is fast. The reconnect deadline is the default. */
const RECONNECT = { firstDelayMs: 5, maxDelayMs: 50 };

export class SupervisedServer implements AsyncDisposable {
  readonly serve: ServeChild;

  constructor(serve: ServeChild) {
    this.serve = serve;
  }

  /** Starts a server whose supervisor restarts it without delay, unlike the default. */
  static async start(...args: string[]): Promise<SupervisedServer> {
    return SupervisedServer.below(SUPERVISOR, ...args);
  }

  /** Starts a server below another build of the supervisor. */
  static async below(supervisor: string, ...args: string[]): Promise<SupervisedServer> {
    return SupervisedServer.#start(args, [WATCHDOG, "--", supervisor, "--max-backoff-ms", "0", PROCWIRE, "serve"]);
  }

  /**
   * Starts a server whose program names `DIRECTORY/supervisor` as its supervisor. Each call of `installSupervisor`
   * replaces that file, as an upgrade does.
   */
  static async upgradable(directory: string, ...args: string[]): Promise<SupervisedServer> {
    const supervisor = join(directory, "supervisor");
    const program = join(directory, "procwire");
    const answer = `[ "$PROCWIRE_SUPERVISOR" = locate ] && { echo "${supervisor}"; exit; }`;
    writeFileSync(program, `#!/bin/sh\n${answer}\nexec ${PROCWIRE} "$@"\n`, { mode: 0o755 });
    installSupervisor(directory);
    const below = [supervisor, "--max-backoff-ms", "0", "--upgradable", program, "serve"];
    return SupervisedServer.#start(args, [WATCHDOG, "--forward-state", "--", ...below]);
  }

  /** Starts a server that is killed if it does not exit within a second of SIGTERM. */
  static async impatient(...args: string[]): Promise<SupervisedServer> {
    return SupervisedServer.#start(args, [
      WATCHDOG,
      "--shutdown-timeout-ms",
      "1000",
      "--",
      SUPERVISOR,
      PROCWIRE,
      "serve",
    ]);
  }

  static async asShipped(...args: string[]): Promise<SupervisedServer> {
    return SupervisedServer.#start(args);
  }

  static async #start(args: string[], command?: [string, ...string[]]): Promise<SupervisedServer> {
    const listen = args.includes("--listen") ? [] : ["--listen", "ws://127.0.0.1:0"];
    const options = command ? { command } : {};
    return new SupervisedServer(await new ServeChild([...listen, "--supervised", ...args], options).listening());
  }

  get url(): string {
    return this.serve.url;
  }

  get watchdogPids(): [upper: number, lower: number] {
    const upper = this.serve.child.pid;
    assert.ok(upper !== undefined);
    return [upper, childrenOf(upper).find((pid) => childrenOf(pid).length > 0) ?? 0];
  }

  /** Pid of the supervisor, which runs below both watchdogs. */
  get supervisorPid(): number {
    return childrenOf(this.watchdogPids[1])[0] ?? 0;
  }

  /** Returns the pid of the current server: the child of the supervisor that is not a persistent process. */
  async serverPid(persistentPids: readonly (number | null)[]): Promise<number> {
    let found: number | undefined;
    await until("the supervisor has a server", () => {
      found = childrenOf(this.supervisorPid).find((pid) => !persistentPids.includes(pid));
      return found !== undefined;
    });
    return found ?? 0;
  }

  async killServer(persistentPids: readonly (number | null)[], signal: NodeJS.Signals = "SIGKILL"): Promise<number> {
    const pid = await this.serverPid(persistentPids);
    process.kill(pid, signal);
    return pid;
  }

  connect(options: ExecServerClientOptions = {}): Promise<Client> {
    return NodeExecServerClient.connectWebSocket({ url: this.url, reconnect: RECONNECT, ...options });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.serve[Symbol.asyncDispose]();
  }
}

/** Replaces `DIRECTORY/supervisor` by another file with the supervisor of this build, or with `file`. */
export function installSupervisor(directory: string, file: string = SUPERVISOR): void {
  const target = join(directory, "supervisor");
  copyFileSync(file, `${target}.new`);
  renameSync(`${target}.new`, target);
}

const CC = process.env.CC ?? "cc";
const root = join(import.meta.dirname, "..", "..", "..");

/** Why tests that compile a program are skipped; false when they are not. */
export const NO_COMPILER: string | false = skipUnless(
  spawnSync(CC, ["--version"]).status === 0,
  "there is no C compiler",
);

export function compile(output: string, cwd: string, ...args: string[]): string {
  execFileSync(CC, ["-I.", ...args, "-o", output], { cwd, stdio: "pipe" });
  return output;
}

/** Builds the supervisor with one line of a source changed. Returns the path of the executable. */
export function buildAlteredSupervisor(directory: string, file: string, line: string, changed: string): string {
  const copy = join(directory, "native");
  cpSync(join(root, "native"), copy, { recursive: true, filter: (path) => !path.endsWith("/build") });
  const path = join(copy, "programs", file);
  const text = readFileSync(path, "utf8");
  assert.ok(text.includes(`\n${line}\n`));
  writeFileSync(path, text.replace(line, changed));
  // The compiler flags match native/recipe.mjs.
  const recipe = readFileSync(join(copy, "recipe.mjs"), "utf8");
  const sources = /supervisor: \[([^\]]*)\]/.exec(recipe)?.[1]?.match(/programs\/[\w-]+\.c/g) ?? [];
  return compile(join(directory, `supervisor-${file}`), copy, ...sources);
}

function layout() {
  const loaded = loadAddon();
  assert.ok(loaded.type === "loaded");
  return loaded.addon.segmentLayout;
}

/**
 * The state segment of a persistent process. Tests change it to create a state that a kill leaves only at a rare
 * moment.
 */
export class StateSegment implements Disposable {
  readonly #fd: number;

  private constructor(fd: number) {
    this.#fd = fd;
  }

  /**
   * Waits for the segment, because the supervisor may receive it shortly after the server responds to the start.
   */
  static async of(supervisorPid: number, pid: number | null): Promise<StateSegment> {
    let found: StateSegment | null = null;
    await until(`the supervisor has the memory of ${pid}`, () => {
      found = StateSegment.#find(supervisorPid, pid);
      return found !== null;
    });
    return found ?? assert.fail();
  }

  static #find(supervisorPid: number, pid: number | null): StateSegment | null {
    for (const fd of StateSegment.filesOf(supervisorPid)) {
      const memory = new StateSegment(openSync(`/proc/${supervisorPid}/fd/${fd}`, "r+"));
      if (memory.#number(layout().pidAt) === pid) return memory;
      memory[Symbol.dispose]();
    }
    return null;
  }

  /** Returns the descriptors of all state segments that a supervisor holds. */
  static filesOf(supervisorPid: number): string[] {
    const directory = `/proc/${supervisorPid}/fd`;
    return readdirSync(directory).filter((fd) => nameOf(`${directory}/${fd}`).includes("memfd:procwire-state"));
  }

  /** 1 while the server reads output that it has not committed yet. */
  get intent(): number {
    return this.#number(layout().readInProgressAt);
  }

  set intent(value: number) {
    this.#put(layout().readInProgressAt, value);
  }

  /** Sequence number that the server reserved for the exit. */
  set exitSeq(value: number) {
    this.#put(layout().exitSeqAt, value);
  }

  set version(value: number) {
    this.#put(layout().versionAt, value);
  }

  /** Creates the state after a kill between the acceptance of the last write and the storage of its write id. */
  forgetLastWriteId(): void {
    const { idCountAt, idsAt, writeIds, writeIdBytes, writeIdAt } = layout();
    const last = this.#number(idCountAt) - 1;
    const at = this.#number(idsAt) + (last % writeIds) * writeIdBytes;
    writeSync(this.#fd, this.#bytes(at, writeIdBytes), 0, writeIdBytes, writeIdAt);
    this.#put(idCountAt, last);
  }

  #bytes(at: number, length: number): Buffer {
    const bytes = Buffer.alloc(length);
    assert.equal(readSync(this.#fd, bytes, 0, length, at), length);
    return bytes;
  }

  #number(at: number): number {
    return this.#bytes(at, 4).readUInt32LE();
  }

  #put(at: number, value: number): void {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32LE(value);
    writeSync(this.#fd, bytes, 0, 4, at);
  }

  [Symbol.dispose](): void {
    closeSync(this.#fd);
  }
}

export function persistentParams(processId: string, script: string, more: Partial<StartParams> = {}): StartParams {
  return {
    processId,
    argv: ["/bin/sh", "-c", script],
    cwd: "/",
    env: { PATH: process.env.PATH ?? "/usr/bin:/bin" },
    tty: false,
    pipeStdin: true,
    lifetime: "persistent",
    ...more,
  };
}
