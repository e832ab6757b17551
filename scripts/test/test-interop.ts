/**
 * `npm run test:interop`: the real Codex CLI, the official MCP conformance suite and the SDKs that the tools are adapted to,
 * installed on demand below `interop/`, against this package and the other way round.
 */
import { fileURLToPath } from "node:url";
import { installOnDemand } from "../setup/install-on-demand.ts";
import { runTests } from "./run-tests.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
process.chdir(root);

const PLACES = [
  { folder: "interop", what: "the real Codex CLI" },
  { folder: "interop/conformance", what: "the MCP conformance suite" },
  { folder: "interop/sdks", what: "the OpenAI Agents SDK and the AI SDK" },
];

const problem = PLACES.map(installOnDemand).find((reason) => reason !== null) ?? null;
if (problem === null) {
  process.exitCode = runTests([...process.argv.slice(2), "interop/*.test.ts"]);
} else {
  process.stderr.write(`\nINTEROP WAS NOT TESTED: ${problem}\nNothing here was checked against others.\n\n`);
  process.exitCode = 1;
}
