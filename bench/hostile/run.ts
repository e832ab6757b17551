/**
 * `npm run bench:hostile`: the cost of hostile clients for the server and its other clients, compared with the real Codex
 * server in the same run. Memory is the resident set of the server's own processes; waiting is the longest
 * `environment/status` of another client meanwhile.
 *
 *   npm run bench:hostile -- [--only pings,files] [--ours-only] [--write]
 *   npm run bench:hostile -- --mix [--seconds 600] [--seed N] [--ours-only]    random attacks on one server
 *   npm run bench:hostile -- --in-turn [--ours-only]                           all attacks in turn on one server
 */
import { once } from "node:events";
import { rmSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import { describeMachine, replaceSection } from "../report.ts";
import { ourKind, peerKind, type ServerKind, ServerUnderTest, temporaryHome } from "../server-under-test.ts";
import { type Attack, attacks } from "./attacks.ts";
import { Bystander } from "./bystander.ts";
import { runMix } from "./mix.ts";

const DOCUMENT = join(import.meta.dirname, "../../docs/reliability.md");
const SAMPLE_INTERVAL_MS = 50;
/** Time that a server may take to release memory after its peers have disconnected. */
const SETTLE_MS = 5_000;
const ATTACK_TIMEOUT_MS = 120_000;

const { values: flags } = parseArgs({
  options: {
    only: { type: "string" },
    "ours-only": { type: "boolean", default: false },
    write: { type: "boolean", default: false },
    mix: { type: "boolean", default: false },
    "in-turn": { type: "boolean", default: false },
    seconds: { type: "string", default: "600" },
    seed: { type: "string", default: "1" },
  },
});

interface Measurement {
  startMib: number;
  peakMib: number;
  afterMib: number;
  longestWaitMs: number;
}

const chosen = attacks.filter(({ name }) => flags.only === undefined || flags.only.split(",").includes(name));
if (chosen.length === 0) throw new Error(`unknown attack ${flags.only}`);
const scratch = temporaryHome();
writeFileSync(join(scratch, "60mb"), Buffer.alloc(60_000_000, "x"));
writeFileSync(join(scratch, "380mib"), "");
truncateSync(join(scratch, "380mib"), 380 * 1024 * 1024);

const kinds: ServerKind[] = [ourKind()];
if (!flags["ours-only"]) kinds.push(peerKind(temporaryHome()));
if (flags.mix || flags["in-turn"]) await mixAll();
else await measureAll();
rmSync(scratch, { recursive: true, force: true });

async function measureAll(): Promise<void> {
  const lines = ["| attack | peak memory | memory 5 s after | longest wait of another client |", "|---|---|---|---|"];
  for (const attack of chosen) {
    const byServer: Record<string, Measurement> = {};
    for (const kind of kinds) byServer[kind.name] = await measure(attack, kind);
    const cell = (key: keyof Measurement, unit: string) => {
      const values = (["ours", "peer"] as const).map((name) => byServer[name]?.[key]);
      return `${values.map((value) => (value === undefined ? "-" : Math.round(value))).join(" / ")} ${unit}`;
    };
    lines.push(
      `| ${attack.label} | ${cell("peakMib", "MiB")} | ${cell("afterMib", "MiB")} | ${cell("longestWaitMs", "ms")} |`,
    );
    console.log(lines.at(-1));
  }
  if (flags.write && chosen.length === attacks.length && !flags["ours-only"]) {
    const { cores, cpu, node } = describeMachine();
    const description = `${cores} cores (${cpu}), Node ${node}`;
    replaceSection(DOCUMENT, "hostile", `Machine: ${description}.\n\n${lines.join("\n")}`, "# Reliability\n");
  }
}

/** Fails if the memory of procwire exceeds its bound, so that CI can run a short mix. */
async function mixAll(): Promise<void> {
  for (const kind of kinds) {
    const { seconds, seed, "in-turn": inTurn } = flags;
    const result = await runMix({ kind, scratch, seconds: Number(seconds), seed: Number(seed), inTurn });
    const [start, peak, after, max] = [result.startMib, result.peakMib, result.afterMib, result.maxMib].map(Math.round);
    const wait = `longest wait of another client ${Math.round(result.longestWaitMs)} ms`;
    console.log(
      `${kind.name}: ${result.attacks} attacks, ${start} MiB at start, peak ${peak} MiB, ${after} MiB after 40 s, ${wait}`,
    );
    if (kind.name !== "ours" || result.peakMib <= result.maxMib) continue;
    console.error(`the memory exceeded ${max} MiB: the memory at start plus 1.25 times the budget`);
    process.exitCode = 1;
  }
}

async function measure(attack: Attack, kind: ServerKind): Promise<Measurement> {
  const more = kind.name === "ours" ? (attack.ourFlags ?? []) : [];
  const server = await ServerUnderTest.start({ ...kind, command: [...kind.command, ...more] });
  const bystander = await Bystander.connect(server.url);
  const measurement: Measurement = { startMib: server.rssMib(), peakMib: 0, afterMib: 0, longestWaitMs: 0 };
  const sampling = setInterval(() => {
    measurement.peakMib = Math.max(measurement.peakMib, server.rssMib());
  }, SAMPLE_INTERVAL_MS);
  const worker = new Worker(new URL("./attacker.ts", import.meta.url), {
    workerData: { name: attack.name, url: server.url, scratch },
  });
  try {
    const timeout = AbortSignal.timeout(ATTACK_TIMEOUT_MS);
    await once(worker, "message", { signal: timeout }).catch(() => console.error(`${attack.name}: timed out`));
    await worker.terminate();
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    measurement.afterMib = server.rssMib();
    measurement.longestWaitMs = await bystander.longestWaitMs();
    return measurement;
  } finally {
    clearInterval(sampling);
    await worker.terminate();
    bystander.close();
    await server.stop();
  }
}
