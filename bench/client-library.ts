/**
 * Measures the cost of the client library: reads the same output through `for await`, and as raw socket bytes in a Node
 * program that parses nothing. The second is the floor for any program on Node's sockets.
 *
 *   node bench/client-library.ts [--mib 512] [--rounds 3] [--no-write]
 */
import { connect } from "node:net";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { NodeExecServerClient } from "../src/client/node/node-client.ts";
import { alignedTable, describeMachine, median, replaceSection } from "./report.ts";
import { ourKind, ServerUnderTest } from "./server-under-test.ts";

const MIB = 1024 * 1024;
const { values: flags } = parseArgs({
  options: {
    mib: { type: "string", default: "512" },
    rounds: { type: "string", default: "3" },
    "no-write": { type: "boolean", default: false },
  },
});
const mib = Number(flags.mib);
const start = {
  argv: ["head", "-c", String(mib * MIB), "/dev/zero"],
  env: { PATH: "/usr/bin:/bin" },
  tty: false,
};

interface Cost {
  mibPerSecond: number;
  cpuPerGib: number;
}

const ways: Record<string, (url: string) => Promise<void>> = {
  "raw socket, bytes only counted": readRawSocket,
  "`for await` over `events()`": readEvents,
};

const kind = ourKind();
const costsByWay: Record<string, Cost[]> = {};
for (let round = 0; round < Number(flags.rounds); round++) {
  for (const [name, read] of Object.entries(ways)) {
    const server = await ServerUnderTest.start(kind);
    try {
      const cost = await measure(() => read(server.url));
      costsByWay[name] = [...(costsByWay[name] ?? []), cost];
      console.error(name, cost);
    } finally {
      await server.stop();
    }
  }
}

const rows = Object.entries(costsByWay).map(([name, costs]) => {
  const rate = median(costs.map((cost) => cost.mibPerSecond)) ?? 0;
  const cpu = median(costs.map((cost) => cost.cpuPerGib)) ?? 0;
  return [name, `${Math.round(rate)} MiB/s`, `${cpu.toFixed(2)} s`];
});
const table = alignedTable(["way", "rate", "client CPU per GiB"], rows);
console.log(table);
if (!flags["no-write"]) {
  const { cores, loadAtStart, node } = describeMachine();
  const date = new Date().toISOString().slice(0, 10);
  const text = `${mib} MiB of output over a loopback WebSocket, ${cores} cores, Node ${node}, load ${loadAtStart}, ${date}.\n\n${table}`;
  replaceSection(join(import.meta.dirname, "../docs/performance.md"), "client", text, "# Performance\n");
}

async function measure(read: () => Promise<void>): Promise<Cost> {
  const cpu = process.cpuUsage();
  const startedAt = performance.now();
  await read();
  const seconds = (performance.now() - startedAt) / 1000;
  const { user, system } = process.cpuUsage(cpu);
  return { mibPerSecond: mib / seconds, cpuPerGib: ((user + system) / 1e6 / mib) * 1024 };
}

async function readEvents(url: string): Promise<void> {
  await using client = await NodeExecServerClient.connectWebSocket({ url });
  const child = await client.start({ ...start, processId: "bench", cwd: "/tmp" });
  let bytes = 0;
  for await (const event of child.events({ lossless: true })) {
    if (event.type === "output") bytes += event.chunk.byteLength;
    if (event.type === "gap" || event.type === "failed") throw new Error(`the run is broken: ${JSON.stringify(event)}`);
  }
  if (bytes !== mib * MIB) throw new Error(`${bytes} of ${mib * MIB} bytes came`);
}

/** Sends only the messages that start the process, then counts the received bytes. */
async function readRawSocket(url: string): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname);
  const frame = (message: unknown) => {
    const payload = Buffer.from(JSON.stringify(message));
    const head = Buffer.from([0x81, 0x80 | 126, payload.length >> 8, payload.length & 0xff, 0, 0, 0, 0]);
    return Buffer.concat([head, payload]);
  };
  socket.write(
    `GET / HTTP/1.1\r\nHost: ${hostname}:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
  );
  socket.write(frame({ id: 1, method: "initialize", params: { clientName: "bench" } }));
  socket.write(frame({ method: "initialized" }));
  socket.write(frame({ id: 2, method: "process/start", params: { ...start, processId: "bench", cwd: "file:///tmp" } }));
  // Base64 takes four bytes for three.
  const expected = (mib * MIB * 4) / 3;
  let bytes = 0;
  await new Promise<void>((resolve, reject) => {
    socket.on("error", reject);
    socket.on("close", () => reject(new Error(`the connection ended after ${bytes} bytes`)));
    socket.on("data", (chunk) => {
      bytes += chunk.length;
      if (bytes >= expected) resolve();
    });
  });
  socket.destroy();
}
