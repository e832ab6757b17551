/**
 * `npm run test:packages`: builds every package, then installs and runs them as a user does. Needs an npm registry for
 * zig, the checkers, Bun, Deno and the dependencies, and Debian's qemu for arm64 (`npm run setup:debian`).
 */
import { fileURLToPath } from "node:url";
import { makeRelease } from "../build/pack-all.ts";
import { installOnDemand } from "../setup/install-on-demand.ts";
import { runTests } from "./run-tests.ts";

process.chdir(fileURLToPath(new URL("../..", import.meta.url)));
// Tests run in a temporary home, but with the npm settings (registry) and npm cache of the user.
process.env.npm_config_userconfig ??= `${process.env.HOME}/.npmrc`;
process.env.npm_config_cache ??= `${process.env.HOME}/.npm`;
try {
  const problem = installOnDemand({ directory: "prebuild/runtimes", what: "Bun and Deno" });
  if (problem !== null) throw new Error(problem);
  await makeRelease();
} catch (error) {
  process.stderr.write(`\nPACKAGES NOT TESTED: the build failed: ${error}\n\n`);
  process.exit(1);
}
process.exitCode = runTests(["--test-timeout=600000", ...process.argv.slice(2), "test/packages/*.test.ts"]);
