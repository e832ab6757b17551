/**
 * `npm run test:interop`: the real Codex CLI, the official MCP conformance suite and the SDKs that the tools are adapted to,
 * installed on demand below `interop/`, against this package and the other way round.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { runTests } from "./run-tests.ts";

const root = fileURLToPath(new URL("..", import.meta.url));
process.chdir(root);

const PLACES = [
  { folder: "interop", name: "@openai/codex", what: "the real Codex CLI" },
  {
    folder: "interop/conformance",
    name: "@modelcontextprotocol/conformance",
    what: "the MCP conformance suite",
  },
  { folder: "interop/sdks", name: "@openai/agents", what: "the OpenAI Agents SDK and the AI SDK" },
];

type Place = (typeof PLACES)[number];

const problem = PLACES.map((place) => (installed(place) ? null : install(place))).find(Boolean) ?? null;
if (problem === null) {
  process.exitCode = runTests([...process.argv.slice(2), "interop/*.test.ts"]);
} else {
  process.stderr.write(`\nINTEROP WAS NOT TESTED: ${problem}\nNothing here was checked against others.\n\n`);
  process.exitCode = 1;
}

/** Whether the pinned version is installed. */
function installed({ folder, name }: Place): boolean {
  const wanted: unknown = JSON.parse(readFileSync(`${folder}/package.json`, "utf8")).dependencies[name];
  const manifest = `${folder}/node_modules/${name}/package.json`;
  if (!existsSync(manifest)) return false;
  return JSON.parse(readFileSync(manifest, "utf8")).version === wanted;
}

/** Null when the install worked, else the reason why not. */
function install({ folder, name, what }: Place): string | null {
  process.stderr.write(`installing ${what} below ${folder}/\n`);
  const { status, signal, error } = spawnSync("npm", ["ci", "--prefix", folder], { stdio: "inherit" });
  if (status === 0) return null;
  const how = error?.message ?? (signal ? `it was ended by ${signal}` : `it exited with ${status}`);
  return `\`npm ci --prefix ${folder}\` failed (${how}); it needs an npm registry that has ${name}`;
}
