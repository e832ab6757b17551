/**
 * `npm run specification`: measures the costs of docs/specification.md by counting, and prints each exceeded cost.
 * `npm run specification -- --write` writes them to the document. `--only files,calls,memory` selects sections.
 */
import { parseArgs } from "node:util";
import { ourKind } from "../server-under-test.ts";
import { fileCosts } from "./file-costs.ts";
import { runningCosts } from "./running-costs.ts";
import { type Costs, exceededCosts, format, type Section, writeCosts } from "./specification.ts";
import { systemCalls } from "./system-calls.ts";

const MEASURES: Readonly<Record<Section, () => Promise<Costs>>> = {
  calls: systemCalls,
  memory: runningCosts,
  files: fileCosts,
};

const { values } = parseArgs({
  options: { write: { type: "boolean", default: false }, only: { type: "string", default: "calls,memory,files" } },
});
// Builds the bundles if they are outdated.
ourKind();
for (const section of ["calls", "memory", "files"] as const) {
  if (!values.only.split(",").includes(section)) continue;
  const costs = await MEASURES[section]();
  for (const [name, value] of Object.entries(costs)) console.log(`${name}: ${format(value)}`);
  if (values.write) {
    writeCosts(section, costs);
    continue;
  }
  for (const line of exceededCosts(section, costs)) {
    console.error(`exceeded: ${line}`);
    process.exitCode = 1;
  }
}
