/**
 * Measures the fan-out at its limits: a gigabyte of input, a hundred thousand rows, four workers on one database, an
 * unannounced rate limit, and answer reuse for the same rows.
 *
 *   node bench/fanout/large.ts [--only NAME,NAME] [--scale 0.01] [--no-write]
 *
 * `--scale` makes every case smaller, to try it out. Prints one line for each case and writes
 * bench/fanout/large-results.json. A slow result is not a failure; a wrong result is.
 */

import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import {
  createWriteStream,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { loadavg, tmpdir } from "node:os";
import path from "node:path";
import { finished } from "node:stream/promises";
import { setTimeout as wait } from "node:timers/promises";
import { parseArgs } from "node:util";
import { postgresMissing, startPostgres } from "../../test/support/servers/postgres.ts";
import { describeMachine } from "../report.ts";
import type { LargeStats } from "./large-mock.ts";
import { measure } from "./measure.ts";

const ROOT = path.join(import.meta.dirname, "../..");
const RESULTS = path.join(import.meta.dirname, "large-results.json");
const PROGRAM = path.join(ROOT, "bin/procwire");
/** No case should take this long; a longer run hangs. */
const TIMEOUT_SECONDS = 1_200;

const { values: flags } = parseArgs({
  options: {
    only: { type: "string" },
    scale: { type: "string", default: "1" },
    "no-write": { type: "boolean", default: false },
  },
});
const scale = Number(flags.scale);

type Measurements = Readonly<Record<string, number>>;

/** A temporary directory, and a model in a separate process. */
interface Bench {
  directory: string;
  url: string;
  env: NodeJS.ProcessEnv;
  stats(): Promise<LargeStats>;
}

const CASES: Readonly<Record<string, (bench: Bench) => Promise<Measurements>>> = {
  "input-1gb": (bench) => largeInput(bench, 1_000_000, 999),
  "input-1gb-short": (bench) => largeInput(bench, 5_000_000, 189),
  "input-200mb-tiny": (bench) => largeInput(bench, 5_000_000, 39),
  "rows-100000": manyRows,
  "reuse-100000": reusedRows,
  "workers-4": fourWorkers,
  "rate-600": unknownRate,
};
/** Options of the model in cases in which it does not respond immediately. */
const MODEL_OPTIONS: Readonly<Record<string, string[]>> = {
  "input-1gb": ["hang"],
  "input-1gb-short": ["hang"],
  "input-200mb-tiny": ["hang"],
  "rate-600": ["bucket", "600"],
};

const selected = flags.only?.split(",") ?? Object.keys(CASES);
const results: Record<string, Measurements> = existsSync(RESULTS)
  ? JSON.parse(readFileSync(RESULTS, "utf8")).results
  : {};
for (const name of selected) {
  const run = CASES[name];
  if (!run) throw new Error(`unknown case ${name}; expected ${Object.keys(CASES).join(", ")}`);
  const measured = await inBench(MODEL_OPTIONS[name] ?? [], run);
  // Times depend on the load of the machine; counts, memory and disk do not.
  const measurements = { ...measured, load: Math.round(loadavg()[0] ?? 0) };
  results[name] = measurements;
  console.log(
    name.padEnd(14),
    Object.entries(measurements)
      .map(([what, value]) => `${what} ${value}`)
      .join(", "),
  );
  if (!flags["no-write"])
    writeFileSync(RESULTS, `${JSON.stringify({ machine: describeMachine(), results }, null, 2)}\n`);
}

/** For a gigabyte of input, in long rows or short ones: the time to the first model call, and the space on disk. */
async function largeInput({ directory, env, stats }: Bench, rows: number, charsPerRow: number): Promise<Measurements> {
  const input = path.join(directory, "in.csv");
  const bytes = await writeTable(input, Math.round(rows * scale), charsPerRow);
  const startedAt = performance.now();
  const child = spawn(
    PROGRAM,
    ["fanout", input, "--instruction", "{text}", "--output", path.join(directory, "out.csv")],
    {
      cwd: directory,
      env,
      stdio: "ignore",
    },
  );
  try {
    while ((await stats()).requests === 0) await wait(20);
    const firstRequestSeconds = (performance.now() - startedAt) / 1000;
    console.error(`first request after ${firstRequestSeconds.toFixed(1)} s; the rest is being read`);
    while (!(await isRead(directory, env))) await wait(1_000);
    const readSeconds = (performance.now() - startedAt) / 1000;
    const disk = directoryBytes(path.join(directory, ".procwire"));
    return rounded({ inputMb: bytes / 1e6, firstRequestSeconds, readSeconds, diskShare: disk / bytes });
  } finally {
    child.kill("SIGKILL");
    await once(child, "exit");
  }
}

async function manyRows(bench: Bench): Promise<Measurements> {
  const rows = await writeRows(bench, "in.csv");
  return { rows, ...(await runToEnd(bench, "in.csv")) };
}

/** Runs the same rows with another command in another order. No row calls the model. */
async function reusedRows(bench: Bench): Promise<Measurements> {
  const rows = await writeRows(bench, "in.csv");
  await runToEnd(bench, "in.csv");
  const lines = readFileSync(path.join(bench.directory, "in.csv"), "utf8").slice(0, -1).split("\n");
  writeFileSync(path.join(bench.directory, "again.csv"), `${[lines[0], ...lines.slice(1).reverse()].join("\n")}\n`);
  const before = (await bench.stats()).requests;
  const measurements = await runToEnd(bench, "again.csv");
  const calls = (await bench.stats()).requests - before;
  if (calls !== 0) throw new Error(`${calls} calls were made for rows with known answers`);
  return { rows, calls, ...measurements };
}

async function fourWorkers(bench: Bench): Promise<Measurements> {
  const missing = await postgresMissing();
  if (missing) throw new Error(missing);
  const rows = await writeRows(bench, "in.csv");
  const postgres = await startPostgres();
  const workers: ChildProcess[] = [];
  try {
    const database = ["--database-url", await postgres.createDatabase()];
    for (let index = 0; index < 3; index++) {
      const args = ["fanout", "worker", ...database, "--concurrency", "16"];
      workers.push(spawn(PROGRAM, args, { cwd: bench.directory, env: bench.env, stdio: "ignore" }));
    }
    const measurements = await runToEnd(bench, "in.csv", database);
    const calls = (await bench.stats()).requests;
    if (calls !== rows) throw new Error(`${calls} calls were made for ${rows} rows`);
    return { rows, rowsPerSecond: Math.round(rows / (measurements.wallSeconds ?? 1)), ...measurements };
  } finally {
    for (const worker of workers) worker.kill("SIGKILL");
    await postgres.close();
  }
}

/** Measures how much of an unannounced limit is used, and how many calls are rejected. */
async function unknownRate(bench: Bench): Promise<Measurements> {
  const rows = await writeRows(bench, "in.csv", 2_400);
  const { wallSeconds = 1 } = await runToEnd(bench, "in.csv", ["--concurrency", "64"]);
  const { requests, refused } = await bench.stats();
  // The token bucket of the mock is full at the start.
  const allowed = 600 + wallSeconds * 10;
  return rounded({ rows, wallSeconds, used: rows / allowed, refusedShare: refused / requests });
}

async function runToEnd(bench: Bench, input: string, more: string[] = []): Promise<Measurements> {
  const args = [
    "fanout",
    input,
    "--instruction",
    "{text}",
    "--output",
    `${input}.out.csv`,
    "--concurrency",
    "64",
    ...more,
  ];
  const { directory: cwd, env } = bench;
  const measured = await measure([PROGRAM, ...args], { cwd, env, timeoutSeconds: TIMEOUT_SECONDS });
  if (measured.exitCode !== 0) throw new Error(`exit ${measured.exitCode}\n${measured.stderr}`);
  const { wallSeconds, cpuSeconds, peakRssMb } = measured;
  return rounded({ wallSeconds, cpuSeconds, peakRssMb });
}

async function inBench(model: string[], run: (bench: Bench) => Promise<Measurements>): Promise<Measurements> {
  const directory = mkdtempSync(path.join(tmpdir(), "procwire-large-"));
  const mock = fork(path.join(import.meta.dirname, "large-mock.ts"), model);
  try {
    const [url] = await once(mock, "message");
    const stats = async (): Promise<LargeStats> => {
      mock.send("stats");
      const [counts] = await once(mock, "message");
      return counts;
    };
    const env = { PATH: process.env.PATH, HOME: directory, OPENAI_BASE_URL: url, OPENAI_API_KEY: "dummy" };
    return await run({ directory, url, env, stats });
  } finally {
    mock.disconnect();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function writeRows({ directory }: Bench, name: string, rows = 100_000): Promise<number> {
  const count = Math.max(1, Math.round(rows * scale));
  await writeTable(path.join(directory, name), count, 40);
  return count;
}

/** Writes a table and resolves to its size in bytes. */
async function writeTable(file: string, rows: number, chars: number): Promise<number> {
  const stream = createWriteStream(file);
  stream.write("text\n");
  for (let row = 0; row < rows; ) {
    let chunk = "";
    for (const end = Math.min(rows, row + 10_000); row < end; row++) chunk += `${`${row} `.padEnd(chars, "lorem ")}\n`;
    if (!stream.write(chunk)) await once(stream, "drain");
  }
  stream.end();
  await finished(stream);
  return statSync(file).size;
}

/** Reports whether the job has read its whole table. */
async function isRead(directory: string, env: NodeJS.ProcessEnv): Promise<boolean> {
  const child = spawn(PROGRAM, ["jobs", "list", "--json"], {
    cwd: directory,
    env,
    stdio: ["ignore", "pipe", "ignore"],
  });
  let text = "";
  child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
    text += chunk;
  });
  await once(child, "close");
  return text !== "" && JSON.parse(text.split("\n")[0] ?? "").is_reading === false;
}

function directoryBytes(directory: string): number {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(path.join(entry.parentPath, entry.name)).size, 0);
}

function rounded(values: Measurements): Measurements {
  return Object.fromEntries(Object.entries(values).map(([what, value]) => [what, Math.round(value * 1000) / 1000]));
}
