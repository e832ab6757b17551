/**
 * `npm test` and the other suites: Node's test runner in a home directory of its own.
 *
 * Many tests start login shells, which read what the user's home holds. A slow or broken profile there (a version manager
 * that waits for a lock, say) would fail tests of ours, so all of them see an empty home.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** Runs Node's test runner with these arguments and gives its exit code. */
export function runTests(args: readonly string[]): number {
  const home = mkdtempSync(join(tmpdir(), "procwire-home-"));
  try {
    const { status } = spawnSync(process.execPath, ["--test", ...args], {
      stdio: "inherit",
      env: { ...process.env, HOME: home },
    });
    return status ?? 1;
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = runTests(process.argv.slice(2));
