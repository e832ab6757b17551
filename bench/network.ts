/**
 * `node bench/network.ts [--rounds N] [--mib N]`: the cost of the managed network. Downloads through the proxy of a process and
 * through tinyproxy alternate, so that the load of the machine affects both; without tinyproxy, only the direct download is the
 * reference. Then the memory and the wake-ups of 1,000 idle tunnels, and the start of a sandboxed process with and without.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { intent, READ_ROOT } from "../test/escape/inside.ts";
import { policy } from "../test/support/network/network-config.ts";
import { sh, type WireClient } from "../test/support/servers/raw-connection.ts";
import { residentBytes, type ServeChild, scratchDirectory, serve } from "../test/support/servers/serve.ts";
import { until } from "../test/support/system/until.ts";
import { ourKind } from "./server-under-test.ts";

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "9" }, mib: { type: "string", default: "512" } },
});
const rounds = Number(values.rounds);
const mib = Number(values.mib);
const IDLE_CONNECTIONS = 1000;
const IDLE_MS = 15_000;
const STARTS = 60;
const IDLE = fileURLToPath(new URL("../test/support/network/idle-connections.mjs", import.meta.url));
const sandbox = intent([READ_ROOT]);
const managed = {
  ...{ sandbox, enforceManagedNetwork: true },
  networkProxy: { proxy: policy({ domains: { "127.0.0.1": "allow" } }) },
};

function quantile(numbers: readonly number[], share: number): number {
  const sorted = numbers.toSorted((one, other) => one - other);
  return sorted[Math.floor(sorted.length * share)] ?? Number.NaN;
}

const median = (numbers: readonly number[]) => quantile(numbers, 0.5);

/** Sends `mib` to every client that requests a path, and nothing to others. */
async function startOrigin(): Promise<number> {
  const block = Buffer.alloc(1 << 20, "x");
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${mib * block.length}\r\nConnection: close\r\n\r\n`);
      let left = mib;
      const send = () => {
        while (left-- > 0) if (!socket.write(block)) return;
        socket.end();
      };
      socket.on("drain", send);
      send();
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  server.unref();
  return (server.address() as AddressInfo).port;
}

async function startTinyproxy(directory: string): Promise<{ url: string; child: ChildProcess } | null> {
  if (spawnSync("tinyproxy", ["-v"]).error) return null;
  const reserved = createServer().listen(0, "127.0.0.1");
  await once(reserved, "listening");
  const { port } = reserved.address() as AddressInfo;
  await new Promise((resolve) => reserved.close(resolve));
  const file = join(directory, "tinyproxy.conf");
  writeFileSync(file, `Port ${port}\nListen 127.0.0.1\nMaxClients 100\nTimeout 600\nAllow 127.0.0.1\nLogLevel Error\n`);
  const child = spawn("tinyproxy", ["-d", "-c", file], { stdio: "ignore" });
  await until("tinyproxy", () => canConnect(port), once(child, "exit"));
  return { url: `http://127.0.0.1:${port}`, child };
}

function canConnect(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("connect", () => resolve(true)).once("error", () => resolve(false));
    socket.once("connect", () => socket.destroy());
  });
}

let started = 0;
async function run(client: WireClient, argv: string[], more: Record<string, unknown>): Promise<string> {
  const processId = `p${started++}`;
  await client.start(processId, argv, { env: process.env, ...more });
  return (await client.finished(processId)).output;
}

/** Rates in MiB/s, by way. */
async function measureDownloads(client: WireClient, tinyproxy: string | null): Promise<void> {
  const url = `http://127.0.0.1:${await startOrigin()}/`;
  for (const [title, option] of [
    ["GET", ""],
    ["CONNECT", "-p "],
  ] as const) {
    const curl = `curl -s -o /dev/null -w '%{size_download} %{speed_download}' ${option}`;
    const ways: Record<string, () => Promise<string>> = {
      direct: () => run(client, sh(`${curl} --noproxy '*' ${url}`), {}),
      procwire: () => run(client, sh(`${curl} --noproxy '' ${url}`), managed),
    };
    if (tinyproxy !== null) ways.tinyproxy = () => run(client, sh(`${curl} --noproxy '' -x ${tinyproxy} ${url}`), {});
    const rates: Record<string, number[]> = {};
    for (let round = 0; round < rounds; round++)
      for (const [way, download] of Object.entries(ways)) {
        const [size, rate] = (await download()).split(" ").map(Number);
        if (size !== mib << 20) throw new Error(`${way} received ${size} bytes`);
        rates[way] = [...(rates[way] ?? []), (rate ?? Number.NaN) / (1 << 20)];
      }
    const found = Object.entries(rates).map(([way, list]) => `${way} ${Math.round(median(list))} MiB/s`);
    const ratio = median((rates.procwire ?? []).map((rate, round) => rate / (rates.tinyproxy?.[round] ?? Number.NaN)));
    const text = tinyproxy === null ? "tinyproxy is not installed" : `${ratio.toFixed(2)}x tinyproxy (target: 0.8x)`;
    console.log(`download by ${title}: ${found.join(", ")}; ${text}`);
  }
}

/** Voluntary context switches of the main thread in a window, which contains a heartbeat of the connection. */
async function countWakeUps(pid: number): Promise<number> {
  const count = () =>
    Number(/^voluntary_ctxt_switches:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  // The server returns freed memory to the system some seconds after its last work.
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  const before = count();
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
  return count() - before;
}

async function measureIdle(client: WireClient, pid: number): Promise<void> {
  const origin = createServer((socket) => socket.on("error", () => undefined).resume()).listen(0, "127.0.0.1");
  await once(origin, "listening");
  const target = `127.0.0.1:${(origin.address() as AddressInfo).port}`;
  const argv = [process.execPath, IDLE, `${IDLE_CONNECTIONS}`, target];
  await client.start("idle", argv, { ...managed, pipeStdin: true, env: process.env });
  const wakeUps = await countWakeUps(pid);
  const bytes: number[] = [];
  // The first round warms the allocator.
  for (let round = 0; round < 3; round++) {
    const before = residentBytes(pid);
    const seen = client.output("idle").length;
    await client.write("idle", "open\n");
    await until("the tunnels", () => client.output("idle").slice(seen).includes("open\n"));
    bytes.push((residentBytes(pid) - before) / IDLE_CONNECTIONS);
    if (round === 0)
      console.log(
        `idle: ${await countWakeUps(pid)} wake-ups in ${IDLE_MS / 1000} s with ${IDLE_CONNECTIONS} tunnels, ${wakeUps} without`,
      );
    await client.write("idle", "close\n");
    await until("their close", () => client.output("idle").slice(seen).includes("closed\n"));
  }
  const kib = Math.round((bytes[0] ?? 0) / 1024);
  console.log(
    `idle: ${kib} KiB resident per tunnel, the first time (target: 32 KiB); then ${bytes
      .slice(1)
      .map((more) => Math.round(more / 1024))
      .join(" and ")} KiB`,
  );
  await client.call("process/terminate", { processId: "idle" });
  origin.close();
}

async function measureStarts(client: WireClient): Promise<void> {
  const [plain, withNetwork]: [number[], number[]] = [[], []];
  const measure = async (more: Record<string, unknown>) => {
    const startedAt = performance.now();
    await run(client, ["/bin/true"], more);
    return performance.now() - startedAt;
  };
  for (let count = -5; count < STARTS; count++) {
    const measured = [await measure({ sandbox }), await measure(managed)] as const;
    // The first starts load code.
    if (count < 0) continue;
    plain.push(measured[0]);
    withNetwork.push(measured[1]);
  }
  const more = median(withNetwork.map((ms, index) => ms - (plain[index] ?? Number.NaN)));
  const both = (share: number) => [plain, withNetwork].map((list) => quantile(list, share).toFixed(1)).join(" and ");
  console.log(
    `start + exit in a sandbox without and with a managed network: median ${both(0.5)} ms, best tenth ${both(0.1)} ms`,
  );
  console.log(`start + exit: ${more.toFixed(1)} ms more, median of the pairs (target: 3 ms)`);
}

ourKind();
if (execFileSync("curl", ["--version"]).length === 0) throw new Error("curl is missing");
using scratch = scratchDirectory();
const tinyproxy = await startTinyproxy(scratch.path);
const server: ServeChild = await serve();
try {
  const client = await server.connect();
  await client.handshake();
  await measureDownloads(client, tinyproxy?.url ?? null);
  await measureIdle(client, server.serverPid());
  await measureStarts(client);
  await client.close();
} finally {
  await server[Symbol.asyncDispose]();
  tinyproxy?.child.kill();
}
process.exit();
