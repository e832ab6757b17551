/** Reads command lines as JSON, runs each of them and captures its output, and prints all results as JSON. */

import { readFileSync } from "node:fs";
import { main } from "../../../src/cli/main.ts";

const commandLines: string[][] = JSON.parse(readFileSync(0, "utf8"));
const print = process.stdout.write.bind(process.stdout);
const outcomes: { code: number; stdout: string; stderr: string }[] = [];
for (const argv of commandLines) {
  const outcome = { code: 0, stdout: "", stderr: "" };
  process.stdout.write = (chunk) => {
    outcome.stdout += String(chunk);
    return true;
  };
  process.stderr.write = (chunk) => {
    outcome.stderr += String(chunk);
    return true;
  };
  outcome.code = await main(argv);
  outcomes.push(outcome);
}
print(JSON.stringify(outcomes));
