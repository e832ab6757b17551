/**
 * `npm run test:packages`: builds every package, then installs and runs them as a user does. Needs an npm registry for
 * zig, the checkers, Bun, Deno and the dependencies, and Debian's qemu for arm64 (`npm run setup:debian`).
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { installOnDemand } from "../setup/install-on-demand.ts";
import { runTests } from "./run-tests.ts";

process.chdir(fileURLToPath(new URL("../..", import.meta.url)));
// Tests run in a temporary home, but with the npm settings (registry) and npm cache of the user.
process.env.npm_config_userconfig ??= `${process.env.HOME}/.npmrc`;
process.env.npm_config_cache ??= `${process.env.HOME}/.npm`;
try {
  const problem = installOnDemand({ directory: "prebuild/runtimes", what: "Bun and Deno" });
  if (problem !== null) throw new Error(problem);
  process.env.PACK_ALL_OUTPUT = JSON.stringify(await packAll());
} catch (error) {
  process.stderr.write(`\nPACKAGES NOT TESTED: the build failed: ${error}\n\n`);
  process.exit(1);
}
process.exitCode = runTests(["--test-timeout=600000", ...process.argv.slice(2), "test/packages/*.test.ts"]);

/** Runs `pack:all` as a user does. Prints its output while it runs, and returns it for `pack-all.test.ts`. */
async function packAll(): Promise<{ stdout: string; stderr: string }> {
  const child = spawn(process.execPath, ["scripts/build/pack-all.ts"], { stdio: ["ignore", "pipe", "pipe"] });
  const output = { stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      output[name] += text;
      process[name].write(text);
    });
  }
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`pack:all exited with ${code}`);
  return output;
}
