import { spawnSync } from "node:child_process";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SandboxPolicy } from "../../src/sandbox/bubblewrap.ts";
import { buildSandboxCommand } from "../../src/sandbox/sandbox-command.ts";
import { sandboxPrograms } from "../../src/sandbox/sandbox-probe.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

/** The reason to skip tests with a real sandbox; false if this host supports them. */
export const noSandbox: string | false = skipUnless(
  sandboxPrograms() !== null,
  "bubblewrap does not work on this host; run `npm run setup:debian` and allow user namespaces",
);

export const READ_ONLY: SandboxPolicy = {
  roots: [{ path: "/", access: "read" }],
  cwd: "/",
  network: false,
  tmp: "shared",
  devices: "minimal",
};

/** Builds a sandboxed command for `spawn`. Dispose it after the start. */
export function sandboxedCommand(policy: SandboxPolicy, argv: readonly string[]) {
  const programs = sandboxPrograms();
  if (!programs) throw new Error("this host has no sandbox");
  const built = buildSandboxCommand(policy, { argv, env: { PATH: "/usr/bin:/bin" } }, programs);
  const { file, argv: sandboxArgv, env, descriptors } = built;
  return {
    file,
    args: sandboxArgv.slice(1),
    env,
    descriptors,
    [Symbol.dispose]: () => built[Symbol.dispose](),
  };
}

/** Runs a shell script in a sandbox. */
export function runSandboxed(policy: SandboxPolicy, script: string, args: readonly string[] = []) {
  using command = sandboxedCommand(policy, ["/bin/sh", "-c", script, "sh", ...args]);
  const ran = spawnSync(command.file, command.args, {
    encoding: "utf8",
    timeout: 120_000,
    env: command.env,
    stdio: ["ignore", "pipe", "pipe", ...command.descriptors],
  });
  return { status: ran.status, signal: ran.signal, stdout: ran.stdout, stderr: ran.stderr };
}

/** A temporary directory that is removed on disposal. */
export function scratch(): Disposable & { path: string } {
  const path = realpathSync(mkdtempSync(join(tmpdir(), "procwire-sandbox-")));
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 10 }) };
}
