/**
 * Compares procwire's client for the Responses API with the official client: the same streamed calls, to the same
 * server on loopback, each client in a separate process.
 *
 *   node bench/fanout/responses-clients.ts [--calls N] [--width N] [--rounds N]
 *
 * Installs the official client (`openai`) into bench/fanout/official-client/ on its first run; it is not a dependency
 * of the project. Prints processor time, peak memory and the time it takes to load each client.
 */

import { execFileSync, fork, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";

const OFFICIAL = path.join(import.meta.dirname, "official-client");
const CALLER = path.join(import.meta.dirname, "responses-caller.ts");
const CLIENTS = ["ours", "official"] as const;

const { values: flags } = parseArgs({
  options: {
    calls: { type: "string", default: "10000" },
    width: { type: "string", default: "64" },
    rounds: { type: "string", default: "3" },
  },
});

/** Cost of one run of a client; responses-caller.ts prints it as one line of JSON. */
export interface ClientCost {
  loadMs: number;
  wallSeconds: number;
  cpuSeconds: number;
  peakRssMb: number;
}

if (!existsSync(path.join(OFFICIAL, "node_modules/openai"))) {
  console.error("installing the official client into bench/fanout/official-client/ …");
  execFileSync("npm", ["install", "--prefix", OFFICIAL, "--no-audit", "--no-fund", "--no-package-lock"], {
    stdio: ["ignore", "ignore", "inherit"],
  });
}

const server = fork(path.join(import.meta.dirname, "mock-server.ts"), ["0"], { execArgv: [] });
try {
  const [url] = await once(server, "message");
  console.log("client     round   load ms   wall s    CPU s   RSS MB");
  for (let round = 1; round <= Number(flags.rounds); round++) {
    for (const client of CLIENTS) console.log(line(client, round, run(client, String(url))));
  }
} finally {
  server.disconnect();
}

function run(client: (typeof CLIENTS)[number], url: string): ClientCost {
  const { status, stdout, stderr } = spawnSync(process.execPath, [CALLER, client, url, flags.calls, flags.width], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`the ${client} client went wrong: ${stderr}`);
  return JSON.parse(stdout);
}

function line(client: string, round: number, cost: ClientCost): string {
  return [
    client.padEnd(9),
    `${round}`.padStart(6),
    cost.loadMs.toFixed(0).padStart(9),
    cost.wallSeconds.toFixed(2).padStart(8),
    cost.cpuSeconds.toFixed(2).padStart(8),
    cost.peakRssMb.toFixed(0).padStart(8),
  ].join(" ");
}
