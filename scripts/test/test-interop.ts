/**
 * `npm run test:interop`: the real Codex CLI, the official MCP conformance suite and the SDKs that the tools are adapted to,
 * installed on demand below `interop/`, against this package, and this package against them.
 */
import { existsSync, rmdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { installOnDemand } from "../setup/install-on-demand.ts";
import { runTests } from "./run-tests.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
process.chdir(root);

const PACKAGES = [
  { directory: "interop", what: "the real Codex CLI" },
  { directory: "interop/conformance", what: "the MCP conformance suite" },
  { directory: "interop/sdks", what: "the OpenAI Agents SDK and the AI SDK" },
];

/** Mount points that the sandbox of the real Codex leaves in a writable `/tmp`. Later tests would take them for their own. */
const leftMountPoints = ["/tmp/.git", "/tmp/.codex", "/tmp/.agents"].filter((path) => !existsSync(path));

const problem = PACKAGES.map(installOnDemand).find((reason) => reason !== null) ?? null;
if (problem === null) {
  process.exitCode = runTests([...process.argv.slice(2), "interop/*.test.ts"]);
  for (const path of leftMountPoints) if (existsSync(path)) rmdirSync(path);
} else {
  process.stderr.write(`\nNOT TESTED AGAINST OTHER PROGRAMS: ${problem}\n\n`);
  process.exitCode = 1;
}
