/**
 * `npm test` and the other suites: Node's test runner in an empty temporary home directory.
 *
 * Many tests start login shells, which read the profile in the user's home. A slow or broken profile (a version manager
 * that waits for a lock, for example) would fail these tests, so all tests see an empty home.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const COMPILE_CACHE = resolve("test/support/system/compile-cache.mjs");

/** Runs Node's test runner with these arguments, prints the slowest tests behind its summary, and returns its exit code. */
export function runTests(args: readonly string[]): number {
  const home = mkdtempSync(join(tmpdir(), "procwire-home-"));
  const slowest = `${home}.slowest`;
  try {
    const options = [`--import=${COMPILE_CACHE}`, "--test", ...reporters(args, slowest)];
    const { status } = spawnSync(process.execPath, [...options, ...args], {
      stdio: "inherit",
      env: { ...process.env, HOME: home },
    });
    if (existsSync(slowest)) process.stdout.write(readFileSync(slowest));
    return status ?? 1;
  } finally {
    for (const path of [home, slowest]) rmSync(path, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Returns the default reporters, or none if the arguments name reporters. */
function reporters(args: readonly string[], slowest: string): string[] {
  if (args.some((arg) => arg.startsWith("--test-reporter"))) return [];
  return [
    ...["--test-reporter=spec", "--test-reporter-destination=stdout"],
    ...[`--test-reporter=${join(import.meta.dirname, "slowest-tests.ts")}`],
    ...[`--test-reporter-destination=${slowest}`],
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) process.exitCode = runTests(process.argv.slice(2));
