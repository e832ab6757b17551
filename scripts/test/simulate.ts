/**
 * `npm run simulate -- --seeds N [--seed S] [--trace]`: N runs of the simulator from seed S on. A run that violates a guarantee
 * prints its seed and its last events, and belongs in test/simulation/failed-seeds.ts.
 */
import { parseArgs } from "node:util";
import { type Outcome, simulate } from "../../test/simulation/simulation.ts";

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "2000" },
    seed: { type: "string", default: "1" },
    trace: { type: "boolean", default: false },
    /** Maximum number of failing seeds. */
    failures: { type: "string", default: "5" },
  },
});

const first = Number(values.seed);
const count = Number(values.seeds);
const total = { connections: 0, faults: 0, processes: 0, bytes: 0, steps: 0, simulatedMs: 0 };
let failures = 0;
let seed = first;
let current = first;
process.on("unhandledRejection", (error) => {
  process.stdout.write(`seed ${current}: unhandled rejection: ${error instanceof Error ? error.stack : error}\n`);
  process.exit(1);
});

for (; seed < first + count && failures < Number(values.failures); seed++) {
  current = seed;
  const outcome = await simulate(seed);
  for (const key of ["connections", "faults", "processes", "bytes"] as const) total[key] += outcome.counts[key];
  total.steps += outcome.steps;
  total.simulatedMs += outcome.simulatedMs;
  if (outcome.faults.length > 0) failures++;
  if (outcome.faults.length > 0 || values.trace) print(outcome);
}

const hours = (total.simulatedMs / 3_600_000).toFixed(1);
process.stdout.write(
  `${seed - first} seeds, ${failures} failed: ${total.steps} steps, ${hours} simulated hours, ` +
    `${total.connections} connections, ${total.faults} network faults, ${total.processes} processes, ` +
    `${(total.bytes / 1e6).toFixed(1)} MB of output\n`,
);
process.exitCode = failures === 0 ? 0 : 1;

function print(outcome: Outcome): void {
  const lines = outcome.trace.map((line) => `  ${line}\n`).join("");
  const result = outcome.faults.length === 0 ? "" : ` FAILED: ${outcome.faults.join("; ")}`;
  process.stdout.write(`seed ${outcome.seed}${result}\n${lines}`);
}
