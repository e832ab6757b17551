/**
 * `npm run soak [-- --seconds 600] [--clients 12]`: a real server, real sockets, many clients with pipes and terminals,
 * connections that are cut at random bytes. Every byte is compared. Memory and descriptors of the server must stay
 * constant and be released at rest, no process or zombie may remain, and an idle server must use no processor time.
 */
import { parseArgs } from "node:util";
import { FaultProxy } from "../../test/support/faults/fault-proxy.ts";
import { randomFault, type SoakCounts, useServer } from "../../test/support/faults/soak-workload.ts";
import { serve } from "../../test/support/servers/serve.ts";
import {
  descendantsOf,
  type ProcessUsage,
  processorSeconds,
  readUsage,
} from "../../test/support/system/process-stats.ts";
import { until } from "../../test/support/system/until.ts";

/** Allowed growth from the median of the first third to that of the last: the collector's variation. */
const MEMORY_GROWTH = { factor: 1.25, bytes: 24 * 1024 * 1024 };
/** Allowed growth of the number of descriptors, because the number of open connections varies. */
const DESCRIPTOR_GROWTH = { factor: 1.3, count: 16 };
/** Share of one processor, in the seconds after all clients have left. */
const IDLE_SHARE = 0.05;
const IDLE_SECONDS = 5;
/** The server retains ended processes for 30 s, and returns their memory to the system some seconds after that. */
const REST_SECONDS = 45;
const SAMPLE_INTERVAL_MS = 500;
/**
 * Runs before the measured time: the server retains a process for 30 s after its exit, so memory rises for that long.
 */
const WARM_UP_SECONDS = 40;

const { values } = parseArgs({
  options: { seconds: { type: "string", default: "600" }, clients: { type: "string", default: "12" } },
});
const seconds = Number(values.seconds);
const clients = Number(values.clients);
const counts: SoakCounts = { clients: 0, processes: 0, bytesIn: 0, bytesOut: 0 };
const problems: string[] = [];

await using server = await serve("--detached-session-ttl", "10");
const pid = server.serverPid();
// The first process allocates resources that the server then keeps for all, such as the directory of its cgroups.
await using starter = await server.connect();
await starter.handshake();
await starter.start("first", ["true"]);
await starter.finished("first");
await starter.close();
const before = readUsage(pid);
const samples: ProcessUsage[] = [];
const proxy = await FaultProxy.before(server.url);
proxy.faultFor = () => (isDone() ? {} : randomFault());
const measuredFrom = Date.now() + WARM_UP_SECONDS * 1000;
const endsAt = measuredFrom + seconds * 1000;
let hasFailed = false;
const isDone = () => hasFailed || Date.now() >= endsAt;
const sampling = setInterval(() => {
  if (Date.now() >= measuredFrom) samples.push(readUsage(pid));
}, SAMPLE_INTERVAL_MS);

const results = await Promise.allSettled(
  Array.from({ length: clients }, (_, at) =>
    useServer(proxy.url, `c${at}`, isDone, counts).catch((error: unknown) => {
      hasFailed = true;
      throw error;
    }),
  ),
);
clearInterval(sampling);
for (const result of results)
  if (result.status === "rejected") problems.push(`a client failed: ${String(result.reason)}`);

const third = Math.floor(samples.length / 3);
const [first, last] = [samples.slice(0, third), samples.slice(-third)];
const memory = { first: median(first, "residentBytes"), last: median(last, "residentBytes") };
const descriptors = { first: median(first, "descriptors"), last: median(last, "descriptors") };
if (hasGrown(memory.first, memory.last)) problems.push(`memory grew from ${mib(memory.first)} to ${mib(memory.last)}`);
if (descriptors.last > descriptors.first * DESCRIPTOR_GROWTH.factor + DESCRIPTOR_GROWTH.count)
  problems.push(`descriptors grew from ${descriptors.first} to ${descriptors.last}`);

await proxy[Symbol.asyncDispose]();
await check("the server has no descendant", () => descendantsOf(pid).length === 0);
await check("every descriptor is closed", () => readUsage(pid).descriptors <= before.descriptors);
await new Promise((resolve) => setTimeout(resolve, REST_SECONDS * 1000));
const atRest = readUsage(pid).residentBytes;
if (hasGrown(before.residentBytes, atRest))
  problems.push(`memory at rest is ${mib(atRest)}, and was ${mib(before.residentBytes)} before`);
const usedBefore = processorSeconds(pid);
await new Promise((resolve) => setTimeout(resolve, IDLE_SECONDS * 1000));
const idle = (processorSeconds(pid) - usedBefore) / IDLE_SECONDS;
if (idle > IDLE_SHARE) problems.push(`an idle server used ${(idle * 100).toFixed(0)}% of a processor`);

process.stdout.write(
  `${seconds} s, ${clients} users at a time: ${counts.clients} clients, ${counts.processes} processes, ${proxy.cuts} cuts, ` +
    `${mib(counts.bytesIn)} in, ${mib(counts.bytesOut)} out; memory ${mib(memory.first)} -> ${mib(memory.last)}, ` +
    `at rest ${mib(before.residentBytes)} -> ${mib(atRest)}, descriptors ${descriptors.first} -> ${descriptors.last} (idle ${before.descriptors} -> ${readUsage(pid).descriptors}), ` +
    `idle ${(idle * 100).toFixed(1)}%\n`,
);
for (const problem of problems) process.stdout.write(`FAIL ${problem}\n`);
process.exitCode = problems.length === 0 ? 0 : 1;

async function check(what: string, condition: () => boolean): Promise<void> {
  try {
    await until(what, condition);
  } catch {
    const left = descendantsOf(pid).map(({ pid: child, state }) => `${child} ${state}`);
    problems.push(`failed: ${what} (${readUsage(pid).descriptors} descriptors; processes: ${left.join(", ")})`);
  }
}

function hasGrown(fromBytes: number, toBytes: number): boolean {
  return toBytes > fromBytes * MEMORY_GROWTH.factor + MEMORY_GROWTH.bytes;
}

function median(samples: ProcessUsage[], key: keyof ProcessUsage): number {
  const sorted = samples.map((sample) => sample[key]).sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

function mib(bytes: number): string {
  return `${(bytes / 1024 / 1024).toFixed(1)} MiB`;
}
