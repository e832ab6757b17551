import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";

export type ServerName = "peer" | "ours";

/** Command and environment of a server. */
export interface ServerKind {
  name: ServerName;
  command: string[];
  env: NodeJS.ProcessEnv;
}

const ROOT = join(import.meta.dirname, "..");
const LISTEN = ["--listen", "ws://127.0.0.1:0"];
const START_TIMEOUT_MS = 20_000;
const STOP_TIMEOUT_MS = 5_000;
/** Maximum characters of the stderr of a server that exited unexpectedly. */
const MAX_STDERR_CHARS = 4_000;

/** The procwire server from the bundle, because users run the bundle; rebuilt if it is older than its sources. */
export function ourKind(): ServerKind {
  if (!bundleIsFresh()) {
    console.error("building the bundle …");
    execFileSync("npm", ["run", "-s", "build"], { cwd: ROOT, stdio: ["ignore", "ignore", "inherit"] });
  }
  return { name: "ours", command: [join(ROOT, "bin/procwire"), "serve", ...LISTEN], env: process.env };
}

/** Another built checkout of procwire, in place of the Codex server. */
export function checkoutKind(checkout: string): ServerKind {
  return { name: "peer", command: [join(checkout, "bin/procwire"), "serve", ...LISTEN], env: process.env };
}

/** The Codex server, installed from its lockfile into `interop/` if it is missing; with a temporary home. */
export function peerKind(home: string): ServerKind {
  const interop = join(ROOT, "interop");
  if (findPeer(interop) === null) {
    const locked = existsSync(join(interop, "package-lock.json"));
    console.error("installing the peer into interop/ …");
    execFileSync("npm", [locked ? "ci" : "install", "--prefix", interop, "--no-audit", "--no-fund"], {
      stdio: ["ignore", "ignore", "inherit"],
    });
  }
  const binary = findPeer(interop);
  if (binary === null) throw new Error("the peer was installed but its binary was not found in interop/");
  const codexHome = join(home, ".codex");
  mkdirSync(codexHome, { recursive: true });
  const env = { PATH: process.env.PATH, HOME: home, CODEX_HOME: codexHome };
  return { name: "peer", command: [binary, "exec-server", ...LISTEN], env };
}

/** Reports whether no source is newer than the bundles. `bin/main.cjs` compares only the sources of the command. */
function bundleIsFresh(): boolean {
  const stamp = statSync(join(ROOT, "dist/stamp"), { throwIfNoEntry: false });
  if (stamp === undefined) return false;
  const sources = readdirSync(join(ROOT, "src"), { recursive: true, withFileTypes: true });
  return sources.every((entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs <= stamp.mtimeMs);
}

/** A temporary directory that is removed when the benchmark ends. */
export function temporaryHome(): string {
  const home = mkdtempSync(join(tmpdir(), "procwire-bench-"));
  process.on("exit", () => rmSync(home, { recursive: true, force: true }));
  return home;
}

/** The native binary: the script that npm links to would add a Node process to each start. */
function findPeer(interop: string): string | null {
  const scope = join(interop, "node_modules/@openai");
  const packages = existsSync(scope) ? readdirSync(scope).filter((name) => name.startsWith("codex-")) : [];
  for (const name of packages) {
    const vendor = join(scope, name, "vendor");
    for (const target of existsSync(vendor) ? readdirSync(vendor) : []) {
      const binary = join(vendor, target, "bin/codex");
      if (existsSync(binary)) return binary;
    }
  }
  return null;
}

/** A running server. Costs cover the server, its watchdogs and its supervisor, not the processes of clients. */
export class ServerUnderTest {
  readonly name: ServerName;
  readonly url: string;
  #child: ChildProcess;
  #pids: number[];
  #isStopping = false;

  static async start(kind: ServerKind): Promise<ServerUnderTest> {
    const [program = "", ...args] = kind.command;
    const child = spawn(program, args, { env: kind.env, stdio: ["ignore", "pipe", "pipe"] });
    const stderr = collectTail(child.stderr);
    const timer = setTimeout(() => child.kill("SIGKILL"), START_TIMEOUT_MS);
    try {
      for await (const line of createInterface({ input: child.stdout })) {
        return new ServerUnderTest(kind.name, child, line, stderr);
      }
    } finally {
      clearTimeout(timer);
    }
    throw new Error(`${kind.command.join(" ")} printed no URL`);
  }

  private constructor(name: ServerName, child: ChildProcess, url: string, stderr: () => string) {
    this.name = name;
    this.url = url;
    this.#child = child;
    // The server has started no process for a client yet, so all of its descendants are part of it.
    this.#pids = processTree(child.pid ?? 0);
    child.once("close", (code, signal) => {
      if (!this.#isStopping) console.error(`${name}: the server exited with ${signal ?? code}: ${stderr()}`);
    });
  }

  /** Returns the user and system time of all its processes. */
  cpuSeconds(): number {
    return sum(this.#pids.map((pid) => (statField(pid, 14) + statField(pid, 15)) / TICKS_PER_SECOND));
  }

  rssMib(): number {
    return sum(this.#pids.map((pid) => (statField(pid, 24) * PAGE_BYTES) / MIB));
  }

  /** Returns the process with the most memory: the server without its watchdog. */
  get largestPid(): number {
    return this.#pids.reduce((a, b) => (statField(b, 24) > statField(a, 24) ? b : a));
  }

  async stop(): Promise<void> {
    this.#isStopping = true;
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const exited = new Promise((resolve) => this.#child.once("exit", resolve));
    this.#child.kill("SIGTERM");
    const timer = setTimeout(() => this.#child.kill("SIGKILL"), STOP_TIMEOUT_MS);
    await exited;
    clearTimeout(timer);
  }
}

/** Reads a stream to its end. The returned function returns the last characters read so far. */
function collectTail(stream: Readable): () => string {
  let tail = "";
  stream.setEncoding("utf8").on("data", (text: string) => {
    tail = (tail + text).slice(-MAX_STDERR_CHARS);
  });
  return () => tail.trim();
}

/** Values of all supported Linux hosts. */
const TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4096;
const MIB = 1024 * 1024;

function processTree(root: number): number[] {
  const tree = [root];
  const parents = readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => ({ pid: Number(name), parent: statField(Number(name), 4) }));
  for (const pid of tree) tree.push(...parents.filter(({ parent }) => parent === pid).map(({ pid: child }) => child));
  return tree;
}

/** Returns a field of /proc/PID/stat by its number in proc(5); 0 if the process does not exist. */
function statField(pid: number, field: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name may contain blanks and parentheses, so counting starts after its end.
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[field - 3] ?? 0);
  } catch {
    return 0;
  }
}

function sum(numbers: number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
