import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { clientTarball, tarball } from "../../scripts/build/pack-all.ts";
import { PackageRegistry } from "./package-registry.ts";

/** Programs on the PATH: no compiler. */
const PROGRAMS = ["sh", "uname", "readlink", "test", "cat"];

export interface ProjectOptions {
  /** More arguments of `npm install`. */
  npmArgs?: readonly string[];
  /** Packages of the project, by name, as tarballs. Default: `procwire` and `procwire-client`, on which it depends. */
  tarballs?: Readonly<Record<string, string>>;
  optionalDependencies?: Record<string, string>;
  /** Returns the command prefix that runs Node; called once the packages are installed. */
  node?: (project: string) => readonly string[];
  /** Whether the compilers of this machine are on PATH. */
  compiler?: boolean;
}

export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** A project that contains only the packed package, installed without scripts. */
export class InstalledProject implements AsyncDisposable {
  readonly path: string;
  readonly #env: Record<string, string>;
  readonly #children: ChildProcess[] = [];

  private constructor(path: string, env: Record<string, string>) {
    this.path = path;
    this.#env = env;
  }

  static async install(options: ProjectOptions = {}): Promise<InstalledProject> {
    const path = mkdtempSync(join(tmpdir(), "procwire-installed-"));
    await using registry = await PackageRegistry.open();
    const manifest = {
      private: true,
      type: "module",
      dependencies: Object.fromEntries(
        Object.entries(options.tarballs ?? { procwire: tarball(null), "procwire-client": clientTarball() }).map(
          ([name, packed]) => [name, `file:${resolve(packed)}`],
        ),
      ),
      optionalDependencies: options.optionalDependencies ?? {},
    };
    writeFileSync(join(path, "package.json"), JSON.stringify(manifest));
    const args = [
      "install",
      "--ignore-scripts",
      "--no-package-lock",
      "--prefer-offline",
      `--@procwire:registry=${registry.url}`,
    ];
    await promisify(execFile)("npm", [...args, ...(options.npmArgs ?? [])], { cwd: path });
    const bin = join(path, "programs");
    mkdirSync(bin);
    for (const name of PROGRAMS) symlinkSync(`/bin/${name}`, join(bin, name));
    const node = options.node?.(path) ?? [process.execPath];
    writeFileSync(join(bin, "node"), `#!/bin/sh\nexec ${node.join(" ")} "$@"\n`, { mode: 0o755 });
    const PATH = options.compiler ? `${bin}:${process.env.PATH}` : bin;
    return new InstalledProject(path, { PATH, HOME: path, TERM: "xterm" });
  }

  /** The platform packages that npm chose. */
  get platforms(): string[] {
    const scope = this.file("@procwire");
    return existsSync(scope) ? readdirSync(scope) : [];
  }

  /** A file of an installed package. */
  file(...parts: string[]): string {
    return join(this.path, "node_modules", ...parts);
  }

  /** Runs a program of the project to its end. */
  async run(program: string, ...args: string[]): Promise<Ran> {
    const child = spawn(program, args, { cwd: this.path, env: this.#env, stdio: ["ignore", "pipe", "pipe"] });
    const text = { stdout: "", stderr: "" };
    for (const stream of ["stdout", "stderr"] as const)
      child[stream].setEncoding("utf8").on("data", (chunk: string) => {
        text[stream] += chunk;
      });
    const [code] = await once(child, "close");
    return { code, ...text };
  }

  /** The installed CLI. */
  procwire(...args: string[]): Promise<Ran> {
    return this.run(this.file(".bin", "procwire"), ...args);
  }

  /** Runs a module of the project. */
  script(source: string): Promise<Ran> {
    writeFileSync(join(this.path, "script.js"), source);
    return this.run(join(this.path, "programs", "node"), "script.js");
  }

  /** Starts a server with the installed CLI. Returns its URL. */
  async serve(): Promise<string> {
    const server = spawn(this.file(".bin", "procwire"), ["serve", "--listen", "ws://127.0.0.1:0"], {
      cwd: this.path,
      env: this.#env,
      stdio: ["ignore", "pipe", "inherit"],
    });
    this.#children.push(server);
    for await (const line of createInterface({ input: server.stdout })) return line;
    throw new Error("the server ended before it said where it listens");
  }

  /** Version of an installed package, from its manifest. */
  versionOf(name: string): string {
    return JSON.parse(readFileSync(this.file(name, "package.json"), "utf8")).version;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill();
      await once(child, "exit");
    }
    rmSync(this.path, { recursive: true, force: true, maxRetries: 10 });
  }
}

/** Returns the health report of a server. */
export async function healthOf(url: string): Promise<{ status: string; degraded: string[] }> {
  const response = await fetch(`${url.replace("ws:", "http:")}/healthz`);
  return (await response.json()) as { status: string; degraded: string[] };
}

/** Source of a program that runs a command on a terminal with the library, and prints its result. */
export const TERMINAL_BY_LIBRARY = `
import { Environment } from "procwire";
await using environment = await Environment.create(null);
const { stdout, exitCode } = await environment.run(["sh", "-c", "test -t 0 && echo a terminal"], { tty: true });
console.log(process.arch, exitCode, stdout.trim());
`;
