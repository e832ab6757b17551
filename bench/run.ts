/**
 * bench/: compares this server with the real Codex server on one machine. `npm run bench` starts both, takes turns, and
 * writes medians to `bench/results/latest.json` and `docs/performance.md`. A small native client generates the load, so
 * that the client does not dominate the measurement. A slow result is not a failure; a wrong result is.
 *
 *   npm run bench -- [--only echo,upload] [--rounds N] [--ours-only] [--no-write] [--list]
 *   npm run bench -- --beside CHECKOUT     another built checkout in place of the Codex server, to measure a change
 * prose-ok-file: beside -- the name of the option
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildClient, type Measured, runClient } from "./native-client.ts";
import { buildRow, describeMachine, markdownTable, median, plainTable, type Row, replaceSection } from "./report.ts";
import { type Scenario, scenarios } from "./scenarios.ts";
import {
  checkoutKind,
  ourKind,
  peerKind,
  type ServerKind,
  type ServerName,
  ServerUnderTest,
  temporaryHome,
} from "./server-under-test.ts";

const ROOT = join(import.meta.dirname, "..");
const DOCUMENT = join(ROOT, "docs/performance.md");
const RESULTS = join(ROOT, "bench/results/latest.json");

const { values: flags } = parseArgs({
  options: {
    only: { type: "string" },
    rounds: { type: "string" },
    "ours-only": { type: "boolean", default: false },
    beside: { type: "string" },
    "no-write": { type: "boolean", default: false },
    list: { type: "boolean", default: false },
  },
});

type Rounds = Record<ServerName, Measured[]>;

if (flags.list) {
  for (const { name, metrics } of scenarios) console.log(`${name.padEnd(20)} ${metrics[0]?.label ?? ""}`);
} else {
  await bench(selectScenarios(flags.only));
}

async function bench(selection: Scenario[]): Promise<void> {
  const machine = describeMachine();
  const client = buildClient();
  const kinds: ServerKind[] = [ourKind()];
  if (flags.beside !== undefined) kinds.unshift(checkoutKind(flags.beside));
  else if (!flags["ours-only"]) kinds.unshift(peerKind(temporaryHome()));
  console.error(`${machine.cores} cores, load ${machine.loadAtStart}; ${selection.length} scenarios`);
  const limits = await runClient(client, ["limits"]);
  const rows: Row[] = [];
  const raw: Record<string, Rounds> = {};
  for (const scenario of selection) {
    const startedAt = performance.now();
    const { rounds, limits: own } = await runScenario(scenario, kinds, client);
    raw[scenario.name] = rounds;
    Object.assign(limits, medians(own));
    const added = scenario.metrics.map((metric) => buildRow(scenario.name, metric, rounds, limits));
    rows.push(...added);
    const clientCpu = kinds.map(({ name }) => `${name} ${rounds[name].at(-1)?.clientCpu?.toFixed(2) ?? "-"}`);
    const took = ((performance.now() - startedAt) / 1000).toFixed(0);
    console.error(`\n${scenario.name} (${took} s; client CPU s: ${clientCpu.join(", ")})\n${plainTable(added)}`);
  }
  console.log(`\n${plainTable(rows)}`);
  const missed = rows.filter(({ met }) => met === false);
  console.log(missed.length === 0 ? "\nno target missed" : `\nmissed: ${missed.map(({ label }) => label).join("; ")}`);
  if (flags["no-write"] || flags["ours-only"] || flags.beside !== undefined) return;
  // A run of some scenarios replaces neither the table nor its numbers.
  if (selection.length < scenarios.length) return;

  const date = new Date().toISOString().slice(0, 10);
  mkdirSync(join(RESULTS, ".."), { recursive: true });
  writeFileSync(RESULTS, `${JSON.stringify({ date, machine, limits, rows, rounds: raw }, null, 2)}\n`);
  const description = `${machine.cores} cores (${machine.cpu}), ${machine.memoryGib} GiB, Linux ${machine.kernel} ${machine.arch}, Node ${machine.node}, load at start ${machine.loadAtStart}, ${date}`;
  replaceSection(DOCUMENT, "table", `Machine: ${description}.\n\n${markdownTable(rows)}`, "# Performance\n");
}

/** Runs both servers in every round, so that both see the same load of the host. */
async function runScenario(scenario: Scenario, kinds: ServerKind[], client: string) {
  const rounds: Rounds = { peer: [], ours: [] };
  const limits: Measured[] = [];
  const reusedServers = new Map<ServerName, ServerUnderTest>();
  try {
    for (let round = 0; round < Number(flags.rounds ?? scenario.rounds); round++) {
      if (scenario.limits) limits.push(await runClient(client, scenario.limits));
      // The first server of a round warms the caches for the other, so the order alternates.
      for (const kind of round % 2 === 0 ? kinds : kinds.toReversed()) {
        const flags = kind.name === "ours" ? (scenario.oursFlags ?? []) : [];
        const withFlags = { ...kind, command: [...kind.command, ...flags] };
        const server = reusedServers.get(kind.name) ?? (await ServerUnderTest.start(withFlags));
        if (!scenario.fresh) reusedServers.set(kind.name, server);
        try {
          rounds[kind.name].push(await scenario.run({ client, kind, server }));
        } finally {
          if (scenario.fresh) await server.stop();
        }
      }
    }
  } finally {
    for (const server of reusedServers.values()) await server.stop();
  }
  return { rounds, limits };
}

function medians(rounds: Measured[]): Measured {
  const keys = Object.keys(rounds[0] ?? {});
  return Object.fromEntries(keys.map((key) => [key, median(rounds.map((measured) => measured[key])) ?? 0]));
}

/** Returns the scenarios with these names or name prefixes. */
function selectScenarios(only: string | undefined): Scenario[] {
  if (only === undefined) return scenarios;
  const names = only.split(",");
  const selected = scenarios.filter(({ name }) =>
    names.some((named) => name === named || name.startsWith(`${named}-`)),
  );
  if (selected.length === 0) throw new Error(`unknown scenario ${only}; --list prints the names`);
  return selected;
}
