/**
 * `npm run bench:hostile -- --mix`: one server, several hostile clients at a time, chosen at random. With `--in-turn`,
 * all hostile clients one after another. The resident memory must stay below the memory after the first `initialize` plus
 * 1.25 times the memory budget.
 */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import { type ServerKind, ServerUnderTest } from "../server-under-test.ts";
import { type Attack, attacks } from "./attacks.ts";
import { Bystander } from "./bystander.ts";
import { describeMemory } from "./memory-profile.ts";

const MIB = 1024 * 1024;
const BUDGET_MIB = 512;
const BUDGET_FACTOR = 1.25;
const SAMPLE_INTERVAL_MS = 50;
const MAX_CONCURRENT = 3;
/** Growth of the peak after which the run prints the attacks that are running. */
const REPORT_STEP_MIB = 40;
const ATTACK_TIMEOUT_MS = 120_000;
/** Sessions end 30 s after their connections, and the server returns their memory after that. */
const SETTLE_MS = 40_000;

export interface MixOptions {
  kind: ServerKind;
  scratch: string;
  seconds: number;
  seed: number;
  inTurn: boolean;
}

export interface MixResult {
  startMib: number;
  peakMib: number;
  /** 40 s after the last client disconnected. */
  afterMib: number;
  longestWaitMs: number;
  /** Memory that the server may use. */
  maxMib: number;
  attacks: number;
}

export async function runMix(options: MixOptions): Promise<MixResult> {
  const { kind, scratch, seconds, inTurn } = options;
  const budget = kind.name === "ours" ? ["--memory-budget-bytes", String(BUDGET_MIB * MIB), "--metrics"] : [];
  const server = await ServerUnderTest.start({ ...kind, command: [...kind.command, ...budget] });
  const bystander = await Bystander.connect(server.url);
  await bystander.initialized;
  const startMib = server.rssMib();
  let [peakMib, reportedMib, count] = [startMib, startMib, 0];
  const running = new Set<string>();
  const sampling = setInterval(() => {
    peakMib = Math.max(peakMib, server.rssMib());
    if (peakMib <= reportedMib + REPORT_STEP_MIB) return;
    reportedMib = peakMib;
    console.error(`${kind.name}: ${Math.round(peakMib)} MiB during ${[...running].join(", ")}`);
    if (kind.name === "ours") void describeMemory(server).then(console.error, () => undefined);
  }, SAMPLE_INTERVAL_MS);
  const run = async (attack: Attack) => {
    count++;
    running.add(attack.name);
    await runAttack(attack.name, server.url, scratch);
    running.delete(attack.name);
  };
  try {
    if (inTurn) for (const attack of attacks) await run(attack);
    else {
      const random = randomNumbers(options.seed);
      const until = performance.now() + seconds * 1000;
      const slot = async () => {
        while (performance.now() < until) await run(attacks[Math.floor(random() * attacks.length)] as Attack);
      };
      await Promise.all(Array.from({ length: MAX_CONCURRENT }, slot));
    }
    await new Promise((resolve) => setTimeout(resolve, SETTLE_MS));
    const afterMib = server.rssMib();
    const longestWaitMs = await bystander.longestWaitMs();
    const maxMib = startMib + BUDGET_MIB * BUDGET_FACTOR;
    return { startMib, peakMib, afterMib, longestWaitMs, maxMib, attacks: count };
  } finally {
    clearInterval(sampling);
    bystander.close();
    await server.stop();
  }
}

async function runAttack(name: string, url: string, scratch: string): Promise<void> {
  const worker = new Worker(new URL("./attacker.ts", import.meta.url), { workerData: { name, url, scratch } });
  const timeout = AbortSignal.timeout(ATTACK_TIMEOUT_MS);
  await once(worker, "message", { signal: timeout }).catch((error: unknown) => console.error(`${name}: ${error}`));
  await worker.terminate();
}

/** Returns a generator of numbers from 0 to 1 (mulberry32), so that a run can be repeated with its seed. */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
