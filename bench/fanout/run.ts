/**
 * Compares the fan-out with the original it derives from, against the same model on the same machine in the same run.
 *
 *   node bench/fanout/run.ts [--rounds N] [--peer] [--only NAME,NAME] [--from-source] [--no-write]
 *
 * `--peer` installs the original (`@openai/codex@0.115.0`) into bench/fanout/peer/ and runs it too; once installed, it
 * always runs. Prints a table and writes bench/fanout/results.json. A slow result is not a failure; a wrong result is.
 */

import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { describeMachine } from "../report.ts";
import { type Measured, measure } from "./measure.ts";
import type { MockStats } from "./mock-server.ts";

const ROOT = path.join(import.meta.dirname, "../..");
const PEER = path.join(import.meta.dirname, "peer");
const RESULTS = path.join(import.meta.dirname, "results.json");

const { values: flags } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    peer: { type: "boolean", default: false },
    only: { type: "string" },
    "from-source": { type: "boolean", default: false },
    "no-write": { type: "boolean", default: false },
  },
});

interface Scenario {
  name: string;
  /** `exec`: an agent spawns the job, as in the test of the original. `fanout`: the command starts it. */
  how: "exec" | "fanout";
  rows: number;
  latencyMs: number;
  /** Maximum values for procwire; the original has none. */
  target: { wallSeconds?: number; peakRssMb?: number; peakDescriptors?: number; peakInFlight?: number };
  peer: boolean;
}

const WIDTH = 64;

const SCENARIOS: readonly Scenario[] = [
  { name: "seed-100", how: "exec", rows: 100, latencyMs: 0, target: { wallSeconds: 1.5 }, peer: true },
  {
    name: "seed-100-slow",
    how: "exec",
    rows: 100,
    latencyMs: 500,
    target: { peakInFlight: WIDTH },
    peer: true,
  },
  { name: "rows-100", how: "fanout", rows: 100, latencyMs: 0, target: { wallSeconds: 1.5 }, peer: false },
  { name: "rows-1000", how: "fanout", rows: 1_000, latencyMs: 0, target: { wallSeconds: 5 }, peer: false },
  {
    name: "rows-10000",
    how: "fanout",
    rows: 10_000,
    latencyMs: 0,
    target: { wallSeconds: 40, peakRssMb: 250, peakDescriptors: 200 },
    peer: false,
  },
  {
    name: "rows-512-slow",
    how: "fanout",
    rows: 512,
    latencyMs: 500,
    target: { peakInFlight: WIDTH },
    peer: false,
  },
];

/** The same value as in the test of the original. */
const INSTRUCTION =
  "Write a playful 2-line poem about the cat named {name}. Return a JSON object with keys name and poem. Call report_agent_job_result exactly once and then stop.";
const PROMPT = "Use spawn_agents_on_csv on the provided CSV and do not do work yourself.";
/** No case should take this long; a longer run hangs. */
const TIMEOUT_SECONDS = 180;
const HEADER = "scenario       who         rows  latency  done   exit   wall s   CPU s  RSS MB   fds  in flight";

interface Outcome extends Omit<Measured, "stderr"> {
  peakInFlight: number;
  rowsCalled: number;
  rowsCompleted: number;
}

interface Result {
  scenario: string;
  who: "ours" | "original";
  rows: number;
  latencyMs: number;
  median: Outcome;
  missed: string[];
}

const results: Result[] = [];
const machine = describeMachine();
const hasPeer = preparePeer();
for (const scenario of selectScenarios()) {
  const contestants = hasPeer && scenario.peer ? (["ours", "original"] as const) : (["ours"] as const);
  const rounds = new Map<Result["who"], Outcome[]>();
  for (let round = 0; round < Number(flags.rounds); round++) {
    for (const who of contestants) {
      // The original takes long enough that one round is enough.
      if (who === "original" && round > 0) continue;
      rounds.set(who, [...(rounds.get(who) ?? []), await runOnce(scenario, who)]);
    }
  }
  for (const [who, outcomes] of rounds) {
    const median = medianOutcome(outcomes);
    const missed = who === "ours" ? missedTargets(scenario, median) : [];
    results.push({
      scenario: scenario.name,
      who,
      rows: scenario.rows,
      latencyMs: scenario.latencyMs,
      median,
      missed,
    });
    console.error(tableLine(results.at(-1)));
  }
}
console.log([HEADER, ...results.map(tableLine)].join("\n"));
if (!hasPeer) console.log("\nthe original is not installed; --peer installs and runs it");
const missed = results.flatMap((result) => result.missed.map((what) => `${result.scenario}: ${what}`));
console.log(missed.length === 0 ? "\nno target missed" : `\nmissed: ${missed.join("; ")}`);
if (!flags["no-write"] && flags.only === undefined) {
  const date = new Date().toISOString().slice(0, 10);
  writeFileSync(RESULTS, `${JSON.stringify({ date, machine, width: WIDTH, results }, null, 2)}\n`);
}

async function runOnce(scenario: Scenario, who: Result["who"]): Promise<Outcome> {
  const directory = mkdtempSync(path.join(tmpdir(), "procwire-bench-fanout-"));
  const input = path.join(directory, "in.csv");
  const output = path.join(directory, "out.csv");
  const names = Array.from({ length: scenario.rows }, (_, index) => `cat_${index + 1}\n`);
  writeFileSync(input, `name\n${names.join("")}`);
  const spawnArguments = JSON.stringify({
    csv_path: input,
    instruction: INSTRUCTION,
    output_csv_path: output,
    max_concurrency: WIDTH,
  });
  const mock = fork(path.join(import.meta.dirname, "mock-server.ts"), [`${scenario.latencyMs}`, spawnArguments], {
    execArgv: [],
  });
  try {
    const [url] = await once(mock, "message");
    const { stderr, ...measured } = await measure(buildCommand(scenario, who, url, input, output), {
      cwd: directory,
      env: buildEnvironment(directory, url),
      timeoutSeconds: TIMEOUT_SECONDS,
    });
    mock.send("stats");
    const [stats]: MockStats[] = await once(mock, "message");
    const rowsCompleted = existsSync(output) ? readFileSync(output, "utf8").split(",completed,").length - 1 : 0;
    if (who === "ours" && (measured.exitCode !== 0 || rowsCompleted !== scenario.rows)) {
      throw new Error(`${scenario.name} failed: exit ${measured.exitCode}, ${rowsCompleted} rows\n${stderr}`);
    }
    return {
      ...measured,
      peakInFlight: stats?.peakInFlight ?? 0,
      rowsCalled: stats?.rows ?? 0,
      rowsCompleted,
    };
  } finally {
    mock.disconnect();
    rmSync(directory, { recursive: true, force: true });
  }
}

function buildCommand(scenario: Scenario, who: Result["who"], url: string, input: string, output: string): string[] {
  const exec = ["-c", "features.enable_fanout=true", "-c", `agents.max_threads=${WIDTH}`, "--skip-git-repo-check"];
  if (who === "original") {
    const provider = `{name="mock",base_url="${url}",wire_api="responses"}`;
    const quiet = ["-c", "check_for_update_on_startup=false", "-c", "analytics.enabled=false"];
    const model = ["-c", `model_providers.mock=${provider}`, "-c", 'model_provider="mock"', "-m", "gpt-5"];
    return [path.join(PEER, "node_modules/.bin/codex"), "exec", ...exec, ...model, ...quiet, PROMPT];
  }
  const ours = flags["from-source"]
    ? [process.execPath, path.join(ROOT, "src/cli/procwire.ts")]
    : [path.join(ROOT, "bin/procwire")];
  if (scenario.how === "exec") return [...ours, "exec", ...exec, PROMPT];
  const options = ["--instruction", INSTRUCTION, "--output", output, "--concurrency", `${WIDTH}`];
  return [...ours, "fanout", input, ...options];
}

/** A temporary home, and no network except loopback. */
function buildEnvironment(directory: string, url: string): NodeJS.ProcessEnv {
  const codexHome = path.join(directory, "codex-home");
  mkdirSync(codexHome, { recursive: true });
  const nowhere = "http://127.0.0.1:9";
  return {
    PATH: process.env.PATH,
    HOME: directory,
    CODEX_HOME: codexHome,
    OPENAI_BASE_URL: url,
    OPENAI_API_KEY: "dummy",
    HTTPS_PROXY: nowhere,
    HTTP_PROXY: nowhere,
    NO_PROXY: "127.0.0.1,localhost",
  };
}

function preparePeer(): boolean {
  const installed = existsSync(path.join(PEER, "node_modules/.bin/codex"));
  if (installed || !flags.peer) return installed;
  console.error("installing the original into bench/fanout/peer/ …");
  execFileSync("npm", ["install", "--prefix", PEER, "--no-audit", "--no-fund", "--no-package-lock"], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  return true;
}

function selectScenarios(): readonly Scenario[] {
  const names = flags.only?.split(",");
  return names ? SCENARIOS.filter(({ name }) => names.includes(name)) : SCENARIOS;
}

/** Returns the whole outcome of the round with the median wall time, so that its values belong together. */
function medianOutcome(outcomes: readonly Outcome[]): Outcome {
  const sorted = outcomes.toSorted((a, b) => a.wallSeconds - b.wallSeconds);
  const middle = sorted[Math.floor((sorted.length - 1) / 2)];
  if (!middle) throw new Error("no rounds");
  return middle;
}

function missedTargets({ target }: Scenario, median: Outcome): string[] {
  const exceeded = (["wallSeconds", "peakRssMb", "peakDescriptors"] as const).filter(
    (what) => target[what] !== undefined && median[what] >= (target[what] ?? 0),
  );
  const under = target.peakInFlight !== undefined && median.peakInFlight < target.peakInFlight ? ["peakInFlight"] : [];
  return [...exceeded, ...under];
}

function tableLine(result: Result | undefined): string {
  if (!result) return "";
  const { median } = result;
  return [
    result.scenario.padEnd(14),
    result.who.padEnd(9),
    `${result.rows}`.padStart(6),
    `${result.latencyMs}`.padStart(8),
    `${median.rowsCompleted}`.padStart(5),
    `${median.timedOut ? "killed" : median.exitCode}`.padStart(6),
    median.wallSeconds.toFixed(2).padStart(8),
    median.cpuSeconds.toFixed(2).padStart(7),
    median.peakRssMb.toFixed(0).padStart(7),
    `${median.peakDescriptors}`.padStart(5),
    `${median.peakInFlight}`.padStart(10),
  ].join(" ");
}
