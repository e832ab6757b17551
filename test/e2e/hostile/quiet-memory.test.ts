import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, test } from "node:test";
import { WebSocket } from "ws";
import { NO_ADDON } from "../../native/started.ts";
import { sh, startParams } from "../../support/servers/raw-connection.ts";
import { residentBytes, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const MIB = 1024 * 1024;

describe("the memory of a server", { skip: NO_ADDON }, () => {
  test("returns to the system once the server is idle after much output", async () => {
    await using server = await serve();
    const pid = server.serverPid();
    // A plain WebSocket, because the test client keeps all messages in memory.
    const socket = new WebSocket(server.url, { perMessageDeflate: false });
    await once(socket, "open");
    const before = residentBytes(pid);
    let isClosed = false;
    socket.on("message", (data: Buffer) => {
      if (data.length < 1000 && data.includes("process/closed")) isClosed = true;
    });
    const send = (message: object) => socket.send(JSON.stringify(message));
    send({ id: 1, method: "initialize", params: { clientName: "test" } });
    send({ method: "initialized", params: {} });
    send({ id: 2, method: "process/start", params: startParams("p", sh("head -c 400000000 /dev/zero")) });
    let peak = 0;
    await until("the whole output", () => {
      peak = Math.max(peak, residentBytes(pid));
      return isClosed;
    });
    assert.ok(peak > before + 40 * MIB, `nothing to give back: ${before} grew to ${peak} bytes`);
    await until("the server to return memory to the system", () => residentBytes(pid) < before + 30 * MIB);
    socket.terminate();
  });
});
