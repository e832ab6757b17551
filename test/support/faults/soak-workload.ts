/** Clients that use pipes and terminals over breaking connections and compare every byte and exit code. */

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import type { ExecServerClient as UniversalClient } from "../../../src/client/exec-server-client.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import type { Fault } from "./fault-proxy.ts";

export interface SoakCounts {
  clients: number;
  processes: number;
  bytesIn: number;
  bytesOut: number;
}

/** Shorter reconnect delays than on a real network, so that many cuts fit into a minute. */
const FAST_RECONNECT = { firstDelayMs: 5, maxDelayMs: 100 };
/** Minimum time between two rounds, so that the retained output does not depend on the speed of the machine. */
const ROUND_MS = 1000;
const PATH = process.env.PATH ?? "/usr/bin:/bin";

/** Connects, works, disconnects and reconnects until the end. Rejects at the first wrong byte. */
export async function useServer(url: string, name: string, isOver: () => boolean, counts: SoakCounts): Promise<void> {
  for (let visit = 0; !isOver(); visit++) {
    const client = await connectWithRetries(url, isOver);
    if (!client) return;
    counts.clients++;
    try {
      for (let round = 0; round < 5 && !isOver(); round++) {
        const due = new Promise((resolve) => setTimeout(resolve, ROUND_MS));
        const id = (kind: string) => `${name}-${visit}-${round}-${kind}`;
        await Promise.all([
          echo(client, id("echo"), counts),
          flood(client, id("flood"), counts),
          terminal(client, id("terminal"), counts),
          exit(client, id("exit"), round, counts),
          due,
        ]);
      }
    } finally {
      await client.close();
    }
  }
}

/** Returns a random fault: usually a cut in either direction, from the first byte of the handshake on. */
export function randomFault(): Fault {
  if (Math.random() < 0.2) return {};
  return {
    cutAfter: {
      bytes: Math.floor(Math.exp(Math.random() * Math.log(2_000_000))),
      direction: Math.random() < 0.6 ? "toClient" : "toServer",
    },
    side: Math.random() < 0.3 ? "client" : "both",
    reset: Math.random() < 0.5,
    ...(Math.random() < 0.1 && { pieceBytes: 1 + Math.floor(Math.random() * 2000) }),
  };
}

/** Retries the first connection, which the client itself does not retry. */
async function connectWithRetries(url: string, isOver: () => boolean): Promise<UniversalClient | null> {
  while (!isOver()) {
    try {
      return await NodeExecServerClient.connectWebSocket({ url, reconnect: FAST_RECONNECT });
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
  return null;
}

async function echo(client: UniversalClient, processId: string, counts: SoakCounts): Promise<void> {
  const child = await client.start(params(processId, ["cat"], { pipeStdin: true }));
  const sent = createHash("sha256");
  const reading = collect(child, processId);
  for (let n = 0; n < 20; n++) {
    const data = randomBytes(1 + Math.floor(Math.random() * 8000));
    sent.update(data);
    counts.bytesIn += data.length;
    assert.deepEqual(await child.write(data), { status: "accepted" });
  }
  assert.deepEqual(await child.closeStdin(), { status: "accepted" });
  const { exitCode, bytes, digest } = await reading;
  counts.bytesOut += bytes;
  counts.processes++;
  assert.deepEqual({ exitCode, digest }, { exitCode: 0, digest: sent.digest("hex") }, processId);
}

async function flood(client: UniversalClient, processId: string, counts: SoakCounts): Promise<void> {
  const size = 1 + Math.floor(Math.random() * 600_000);
  const argv = ["/bin/sh", "-c", `yes ${processId} | head -c ${size}`];
  const expected = Buffer.alloc(size, `${processId}\n`);
  const child = await client.start(params(processId, argv));
  const { bytes, digest } = await collect(child, processId);
  counts.bytesOut += bytes;
  counts.processes++;
  assert.equal(digest, createHash("sha256").update(expected).digest("hex"), processId);
}

async function terminal(client: UniversalClient, processId: string, counts: SoakCounts): Promise<void> {
  const lines = 1 + Math.floor(Math.random() * 2000);
  const child = await client.start(params(processId, ["seq", "1", String(lines)], { tty: true }));
  const { bytes, digest, exitCode } = await collect(child, processId);
  const text = Array.from({ length: lines }, (_, at) => `${at + 1}\r\n`).join("");
  counts.bytesOut += bytes;
  counts.processes++;
  assert.deepEqual(
    { digest, exitCode },
    { digest: createHash("sha256").update(text).digest("hex"), exitCode: 0 },
    processId,
  );
}

async function exit(client: UniversalClient, processId: string, code: number, counts: SoakCounts): Promise<void> {
  const child = await client.start(params(processId, ["/bin/sh", "-c", `sleep 0.02; exit ${code}`]));
  const { exitCode } = await child.wait();
  counts.processes++;
  assert.equal(exitCode, code, processId);
  await collect(child, processId);
}

type Started = Awaited<ReturnType<UniversalClient["start"]>>;

async function collect(
  child: Started,
  processId: string,
): Promise<{ bytes: number; digest: string; exitCode: number | null }> {
  const hash = createHash("sha256");
  let bytes = 0;
  let exitCode: number | null = null;
  for await (const event of child.events({ lossless: true })) {
    assert.ok(event.type !== "gap" && event.type !== "failed", `${processId}: ${JSON.stringify(event)}`);
    if (event.type === "exited") exitCode = event.exitCode;
    if (event.type !== "output") continue;
    hash.update(event.chunk);
    bytes += event.chunk.length;
  }
  return { bytes, digest: hash.digest("hex"), exitCode };
}

function params(processId: string, argv: string[], options: Partial<StartParams> = {}): StartParams {
  return { processId, argv, cwd: "/", env: { PATH }, tty: false, ...options };
}
