/**
 * The fixture of the escape suite: `procwire serve` as its users start it, as root and as an ordinary user, and
 * commands in the sandbox of a wire request.
 */

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { chmodSync, chownSync, existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import { startParams, type WireClient } from "../support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild } from "../support/servers/serve.ts";
import { commandAs, USERS, type User } from "../support/system/users.ts";

export type Json = Record<string, unknown>;

/** Why the sandbox of a user cannot be tested here, or false. Throws if the tests must run. */
function findSkipReason(user: User): string | false {
  const reason = noSandbox === false ? findSkipReasonAs(user) : noSandbox;
  if (reason !== false && process.env.CI) assert.fail(reason);
  return reason;
}

function findSkipReasonAs(user: User): string | false {
  const runs = (...argv: string[]) => {
    const [file = "", ...args] = [...commandAs(user), ...argv];
    return spawnSync(file, args, { stdio: "ignore" }).status === 0;
  };
  if (!runs("test", "-x", PROCWIRE)) return `SKIPPED: ${user.name} cannot run ${PROCWIRE}`;
  if (!runs("bwrap", "--ro-bind", "/", "/", "true")) return `SKIPPED: ${user.name} gets no user namespace here`;
  return false;
}

const SKIPS = new Map(USERS.map((user) => [user, findSkipReason(user)]));

/** Why a sandbox cannot be tested as this user, or false. */
export const skipFor = (user: User): string | false => SKIPS.get(user) ?? false;

/** Defines one test of an escape attempt per kind of user. */
export function testEscape(
  title: string,
  body: (fixture: Fixture, t: TestContext) => Promise<void>,
  options: FixtureOptions & { users?: readonly User[] } = {},
): void {
  for (const user of options.users ?? USERS) {
    test(`${title}, as ${user.name}`, { skip: skipFor(user) }, async (t) => {
      await using fixture = await Fixture.prepare(user, options);
      await body(fixture, t);
    });
  }
}

export interface FixtureOptions {
  listen?: "tcp" | "unix";
  serveArgs?: (directory: string) => string[];
  headers?: Record<string, string>;
  env?: Record<string, string>;
  serveEnv?: (directory: string) => Record<string, string>;
  /** Arguments that precede the command of the server, such as those of `nsenter`. */
  under?: readonly string[];
}

export class Fixture implements AsyncDisposable {
  readonly user: User;
  /** A directory that the user owns, outside of /tmp; it contains the workspaces. */
  readonly directory: string;
  readonly server: ServeChild;
  readonly client: WireClient;
  #started = 0;

  private constructor(user: User, directory: string, server: ServeChild, client: WireClient) {
    this.user = user;
    this.directory = directory;
    this.server = server;
    this.client = client;
  }

  static async prepare(user: User, options: FixtureOptions): Promise<Fixture> {
    const { listen = "tcp", serveArgs = () => [], headers = {}, env = {}, serveEnv = () => ({}), under = [] } = options;
    const directory = realpathSync(mkdtempSync("/var/tmp/procwire-escape-"));
    chownSync(directory, user.uid, user.uid);
    const [program = "", ...before] = [...under, ...commandAs(user), PROCWIRE, "serve"];
    const url = listen === "tcp" ? "ws://127.0.0.1:0" : `unix://${join(directory, "server.sock")}`;
    const server = new ServeChild(["--listen", url, ...serveArgs(directory)], {
      command: [program, ...before],
      env: { HOME: directory, ...env, ...serveEnv(directory) },
      cwd: directory,
    });
    await server.listening();
    const client = await server.connect(headers);
    await client.handshake();
    return new Fixture(user, directory, server, client);
  }

  /** Creates a directory of the user, below the fixture's directory. */
  makeDirectory(name: string): string {
    const path = join(this.directory, name);
    mkdirSync(path, { recursive: true });
    chownSync(path, this.user.uid, this.user.uid);
    return path;
  }

  /** Runs a command in the sandbox of a wire request, over a real connection. */
  async run(sandbox: Json | null, argv: string[], more: Json = {}) {
    const processId = `p${this.#started++}`;
    const cwd = uriFromPath(this.directory);
    await this.client.start(processId, argv, { cwd, sandbox, ...more });
    return this.client.finished(processId);
  }

  script(sandbox: Json, script: string, more: Json = {}) {
    return this.run(sandbox, ["/bin/bash", "-c", script], more);
  }

  /** Runs `attempt.c` in a sandbox. Returns `ok` or the name of the errno. */
  async attempt(sandbox: Json, ...args: string[]): Promise<string> {
    const { output, exitCode } = await this.run(sandbox, [attemptProgram(), ...args]);
    return output.trim() || `ended with ${exitCode}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.close();
    await this.server[Symbol.asyncDispose]();
    rmSync(this.directory, { recursive: true, force: true, maxRetries: 10 });
  }
}

const special = (kind: string, more: Json = {}) => ({ type: "special", value: { kind, ...more } });
export const READ_ROOT = { path: special("root"), access: "read" };
export const at = (path: string, access: string, more: Json = {}) => ({
  path: { type: "path", path: uriFromPath(path) },
  access,
  ...more,
});
export const WORKSPACE = { path: special("project_roots"), access: "write" };

/** A sandbox request in its wire format. */
export function intent(entries: Json[], more: { network?: "restricted" | "enabled" } & Json = {}): Json {
  const { network = "restricted", ...rest } = more;
  return {
    permissions: { type: "managed", file_system: { type: "restricted", entries }, network },
    windowsSandboxLevel: "disabled",
    ...rest,
  };
}

/** The sandbox request of `codex exec -s workspace-write`, without parts that are irrelevant here. */
export const workspaceWrite = (workspace: string, more: Parameters<typeof intent>[1] = {}) =>
  intent([READ_ROOT, WORKSPACE], {
    cwd: uriFromPath(workspace),
    workspaceRoots: [uriFromPath(workspace)],
    ...more,
  });

export const readOnly = () => intent([READ_ROOT]);

const COMPILER = process.env.CC ?? "cc";

export function compile(...args: string[]): void {
  execFileSync(COMPILER, args);
}

let attempt: string | null = null;
/**
 * A directory outside of /tmp, which may be private. Programs are compiled once; every machine that runs these tests
 * has a compiler, since the addon needs it.
 */
export function attemptProgram(): string {
  if (attempt !== null) return attempt;
  const directory = mkdtempSync("/var/tmp/procwire-attempt-");
  chmodSync(directory, 0o755);
  process.once("exit", () => rmSync(directory, { recursive: true, force: true, maxRetries: 10 }));
  attempt = join(directory, "attempt");
  const source = fileURLToPath(new URL("./attempt.c", import.meta.url));
  compile("-O1", "-o", attempt, source);
  assert.ok(existsSync(attempt));
  return attempt;
}

export { startParams };
