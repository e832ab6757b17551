/** `npm run test:interop`: the real Codex CLI, installed on demand below `interop/`, against this package and the other way round. */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);

const problem = installed() ? null : install();
if (problem === null) {
  const { status } = spawnSync(process.execPath, ["--test", ...process.argv.slice(2), "interop/*.test.ts"], {
    stdio: "inherit",
  });
  process.exitCode = status ?? 1;
} else {
  process.stderr.write(
    `\nINTEROP WAS NOT TESTED: ${problem}\nNothing here was checked against the real Codex CLI.\n\n`,
  );
  process.exitCode = 1;
}

/** The version that is there is the one that is pinned. */
function installed(): boolean {
  const name = "@openai/codex";
  const wanted: unknown = JSON.parse(readFileSync("interop/package.json", "utf8")).dependencies[name];
  const manifest = `interop/node_modules/${name}/package.json`;
  if (!existsSync(manifest) || !existsSync("interop/node_modules/.bin/codex")) return false;
  return JSON.parse(readFileSync(manifest, "utf8")).version === wanted;
}

/** Null when it worked, else why not. */
function install(): string | null {
  process.stderr.write("installing the real Codex CLI below interop/\n");
  const { status, signal, error } = spawnSync("npm", ["ci", "--prefix", "interop"], { stdio: "inherit" });
  if (status === 0) return null;
  const how = error?.message ?? (signal ? `it was ended by ${signal}` : `it exited with ${status}`);
  return `\`npm ci --prefix interop\` failed (${how}); it needs an npm registry that has @openai/codex 0.166.0`;
}
