import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { ExecServerError } from "../../src/protocol/exec-server-error.ts";
import { uriFromPath } from "../../src/protocol/path-uri.ts";
import { resolveSandbox } from "../../src/sandbox/resolve-sandbox.ts";
import { sandboxPrograms } from "../../src/sandbox/sandbox-probe.ts";
import { repetitions } from "../support/system/repetitions.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { noSandbox } from "./sandbox-fixture.ts";

/** A sandboxed command starts in the directory that was checked, or not at all. */

const ROUNDS = repetitions(150);
const skip =
  noSandbox || skipUnless(sandboxPrograms()?.sh != null, "no shell of this host can compare two directories");

/** Two directories, `sub` and `elsewhere`, each with a file that contains its name. */
function workspace(): Disposable & { path: string; identity: string } {
  const path = join("/var/tmp", `procwire-ws-${randomUUID()}`);
  for (const name of ["sub", "elsewhere"]) {
    mkdirSync(join(path, name), { recursive: true });
    writeFileSync(join(path, name, "name"), name);
  }
  const { dev, ino } = statSync(join(path, "sub"), { bigint: true });
  return {
    path,
    identity: `${dev}:${ino}`,
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true, maxRetries: 10 }),
  };
}

const writeIn = (path: string) => ({
  permissions: {
    type: "managed",
    file_system: {
      type: "restricted",
      entries: [
        { path: { type: "special", value: { kind: "root" } }, access: "read" },
        { path: { type: "path", path: uriFromPath(path) }, access: "write" },
      ],
    },
    network: "restricted",
  },
  workspaceRoots: [uriFromPath(path)],
  windowsSandboxLevel: "disabled",
});

/** Runs a command, or a script, in `sub` of a workspace; `meanwhile` runs between the check and the start. */
async function run(
  ws: ReturnType<typeof workspace>,
  command: string | string[],
  meanwhile: () => void = () => undefined,
  env: Record<string, string> = { PATH: "/usr/bin:/bin" },
) {
  await using backend = createLocalBackend({
    resolveSandbox: async (request, start) => {
      const resolved = await resolveSandbox(request, start);
      meanwhile();
      return resolved;
    },
  });
  const process = await backend.start({
    processId: randomUUID(),
    argv: typeof command === "string" ? ["/bin/sh", "-c", command] : command,
    cwd: join(ws.path, "sub"),
    cwdIdentity: ws.identity,
    env,
    tty: false,
    sandbox: writeIn(ws.path),
  });
  await process.closed;
  const { stdout, stderr } = await process.snapshot();
  return {
    stdout: Buffer.from(stdout).toString(),
    stderr: Buffer.from(stderr).toString(),
    exitCode: process.log.exit?.exitCode,
  };
}

const SWAPS: Record<string, (path: string) => void> = {
  "by a link": (path) => {
    renameSync(join(path, "sub"), join(path, "old"));
    symlinkSync("elsewhere", join(path, "sub"));
  },
  "by another directory": (path) => {
    renameSync(join(path, "sub"), join(path, "old"));
    renameSync(join(path, "elsewhere"), join(path, "sub"));
  },
};

for (const [how, swap] of Object.entries(SWAPS)) {
  test(`a sandboxed command does not start in a directory that was replaced ${how} after the check`, {
    skip,
  }, async () => {
    using ws = workspace();
    const ran = await run(ws, "cat name; touch ran", () => swap(ws.path));
    assert.equal(ran.stdout, "");
    assert.match(ran.stderr, /^cwd `.*\/sub`: directory changed since it was checked$/m);
    assert.equal(ran.exitCode, 126);
    for (const name of ["sub", "old", "elsewhere"]) assert.ok(!existsSync(join(ws.path, name, "ran")));
  });
}

test("a sandboxed command starts in the checked directory and hides the check from the command", { skip }, async () => {
  using ws = workspace();
  assert.deepEqual(await run(ws, "cat name"), { stdout: "sub", stderr: "", exitCode: 0 });
  // Descriptor 3 is the directory that ls reads.
  assert.equal((await run(ws, ["/bin/ls", "/proc/self/fd"])).stdout, "0\n1\n2\n3\n");
  for (const more of [{}, { PWD: "/elsewhere", OLDPWD: "/old", SHLVL: "7", _: "it" }]) {
    const env = { PATH: "/usr/bin:/bin", ...more };
    const { stdout } = await run(ws, ["/usr/bin/env"], undefined, env);
    const given = Object.entries(env).map((pair) => pair.join("="));
    assert.deepEqual(stdout.trim().split("\n").sort(), given.sort());
  }
});

test(`a sandboxed command starts only in the checked directory while it is replaced continuously, ${ROUNDS} times`, {
  skip,
  timeout: 600_000,
}, async () => {
  using ws = workspace();
  const swapping = "while :; do mv sub aside; ln -s elsewhere sub; rm sub; mv aside sub; sleep 0.01; done";
  const swapper = spawn("/bin/sh", ["-c", swapping], { cwd: ws.path, stdio: ["ignore", "pipe", "ignore"] });
  let ran = 0;
  let refused = 0;
  try {
    const round = async () => {
      const ended = await run(ws, "cat name").catch((error: unknown) => {
        if (error instanceof ExecServerError) return null;
        throw error;
      });
      // Bubblewrap itself may fail too; then there is no output of the command either.
      if (ended === null || ended.exitCode !== 0) {
        refused++;
        assert.equal(ended?.stdout ?? "", "");
        return;
      }
      ran++;
      assert.equal(ended.stdout, "sub");
    };
    while (ran + refused < ROUNDS || ran === 0) await round();
  } finally {
    swapper.kill("SIGKILL");
    // The pipe closes when the `mv` that the shell was running has exited too.
    swapper.stdout.resume();
    await once(swapper, "close");
  }
});
