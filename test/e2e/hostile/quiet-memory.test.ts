import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, test } from "node:test";
import { WebSocket } from "ws";
import { NO_ADDON } from "../../native/started.ts";
import { sh, startParams } from "../../support/servers/raw-connection.ts";
import { residentBytes, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const MIB = 1024 * 1024;

/** A plain WebSocket, because the test client keeps all messages in memory. */
async function connectPlain(url: string) {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  await once(socket, "open");
  const counts = { closed: 0 };
  socket.on("message", (data: Buffer) => {
    if (data.length < 1000 && data.includes("process/closed")) counts.closed++;
  });
  const send = (message: object) => socket.send(JSON.stringify(message));
  send({ id: 1, method: "initialize", params: { clientName: "test" } });
  send({ method: "initialized", params: {} });
  const start = (id: string, script: string) =>
    send({ id: 2, method: "process/start", params: startParams(id, sh(script)) });
  return { socket, counts, start };
}

describe("the memory of a server", { skip: NO_ADDON }, () => {
  test("falls after the start, because the server unmaps the pages that only the start needed", async () => {
    await using server = await serve();
    const pid = server.serverPid();
    const before = residentBytes(pid);
    await until("the server to unmap pages of its program file", () => residentBytes(pid) < before - 5 * MIB);
    await using client = await server.connect();
    await client.handshake();
  });

  test("stays near its retention during much output, because sent output is freed at once", async () => {
    await using server = await serve();
    const pid = server.serverPid();
    const { socket, counts, start } = await connectPlain(server.url);
    const before = residentBytes(pid);
    start("p", "head -c 400000000 /dev/zero");
    let peak = 0;
    await until("the whole output", () => {
      peak = Math.max(peak, residentBytes(pid));
      return counts.closed === 1;
    });
    assert.ok(peak < before + 40 * MIB, `${before} grew to ${peak} bytes`);
    socket.terminate();
  });

  test("returns to the system once the sessions have ended", async () => {
    await using server = await serve("--detached-session-ttl", "0");
    const pid = server.serverPid();
    const { socket, counts, start } = await connectPlain(server.url);
    const before = residentBytes(pid);
    for (let n = 0; n < 60; n++) start(`p${n}`, "head -c 2200000 /dev/zero");
    await until("all processes to close", () => counts.closed === 60);
    const retained = residentBytes(pid);
    assert.ok(retained > before + 60 * MIB, `nothing to return: ${before} grew to ${retained} bytes`);
    socket.terminate();
    await until("the server to return memory to the system", () => residentBytes(pid) < before + 30 * MIB);
  });
});
