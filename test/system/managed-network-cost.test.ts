import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { listenerSupportIfAvailable } from "../../src/host/native-support.ts";
import { buildSandboxCommand } from "../../src/sandbox/sandbox-command.ts";
import { sandboxPrograms } from "../../src/sandbox/sandbox-probe.ts";
import { noSandbox, READ_ONLY } from "../sandbox/sandbox-fixture.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const skip =
  noSandbox || skipUnless(spawnSync("strace", ["-V"]).status === 0, "strace is missing; run `npm run setup:debian`");

/** Counts the system calls of a sandboxed `true`. */
function countCalls(ports: readonly number[]): { total: number; executions: number; processes: number } {
  const programs = sandboxPrograms();
  const support = listenerSupportIfAvailable();
  assert.ok(programs && support);
  const directory = mkdtempSync(join(tmpdir(), "procwire-strace-"));
  try {
    const trace = join(directory, "trace");
    const listeners = ports.length > 0 ? { ports, support } : undefined;
    using command = buildSandboxCommand(READ_ONLY, { argv: ["/bin/true"], env: {}, listeners }, programs);
    const args = ["-f", "-qq", "-e", "signal=none", "-o", trace, command.file, ...command.argv.slice(1)];
    const ran = spawnSync("strace", args, {
      env: { PATH: process.env.PATH },
      stdio: ["ignore", "inherit", "inherit", ...command.descriptors],
    });
    command.channel?.close();
    assert.equal(ran.status, 0);
    // A call of one process that another one interrupts has two lines.
    const lines = readFileSync(trace, "utf8")
      .split("\n")
      .filter((line) => line !== "" && !line.includes(" resumed>") && !line.includes("+++"));
    return {
      total: lines.length,
      executions: lines.filter((line) => / execve\(/.test(line)).length,
      processes: new Set(lines.map((line) => line.split(" ")[0])).size,
    };
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

test("a managed network adds one exec, no process and few system calls to a sandbox", { skip }, () => {
  const plain = countCalls([]);
  const managed = countCalls([61128, 61080]);
  assert.equal(managed.processes, plain.processes);
  assert.equal(managed.executions, plain.executions + 1);
  assert.ok(managed.total <= plain.total + 60, `${managed.total} instead of ${plain.total} system calls`);
});
