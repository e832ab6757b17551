import { spawnSync } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SandboxPolicy } from "../../src/sandbox/bubblewrap.ts";
import { raiseWalls } from "../../src/sandbox/sandbox-command.ts";
import { sandboxPrograms } from "../../src/sandbox/sandbox-probe.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

/** Why tests behind real walls cannot run here, or false when they can. */
export const noWalls: string | false = skipUnless(
  sandboxPrograms() !== null,
  "bubblewrap does not work here; run `npm run setup:debian`, and allow user namespaces",
);

export const READ_ONLY: SandboxPolicy = {
  roots: [{ path: "/", access: "read" }],
  cwd: "/",
  network: false,
  tmp: "shared",
  devices: "minimal",
};

/** A command behind the walls of a policy, as `spawn` takes it. Dispose of it once it has started. */
export function walled(policy: SandboxPolicy, argv: readonly string[]) {
  const programs = sandboxPrograms();
  if (!programs) throw new Error("no sandbox here");
  const walls = raiseWalls(policy, { argv, env: { PATH: "/usr/bin:/bin" } }, programs);
  const { file, argv: words, env, descriptors } = walls;
  return { file, args: words.slice(1), env, descriptors, [Symbol.dispose]: () => walls[Symbol.dispose]() };
}

/** Runs a shell script behind the walls of a policy. */
export function runBehind(policy: SandboxPolicy, script: string, args: readonly string[] = []) {
  using command = walled(policy, ["/bin/sh", "-c", script, "sh", ...args]);
  const ran = spawnSync(command.file, command.args, {
    encoding: "utf8",
    timeout: 20_000,
    env: command.env,
    stdio: ["ignore", "pipe", "pipe", ...command.descriptors],
  });
  return { status: ran.status, signal: ran.signal, stdout: ran.stdout, stderr: ran.stderr };
}

/** A directory of its own, gone when disposed of. */
export function scratch(): Disposable & { path: string } {
  const path = realpathSync(mkdtempSync(join(tmpdir(), "procwire-walls-")));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}
