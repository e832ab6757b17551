import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ExecServerClient } from "../../../src/client/exec-server-client.ts";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { ScriptedServer } from "../scripted-server.ts";

const START: StartParams = { processId: "p", argv: ["true"], cwd: "/", env: {}, tty: false };

async function settle(): Promise<void> {
  for (let turn = 0; turn < 500; turn++) await Promise.resolve();
}

describe("a remote process", { timeout: 120_000 }, () => {
  it("reads output from the server that its own log has evicted", async () => {
    await using server = new ExecServer(createLocalHost());
    await using client = await ExecServerClient.connectInProcess(server, {
      logLimits: { retainedBytes: 64 * 1024 },
    });
    const process = await client.start({ ...START, argv: ["head", "-c", "500000", "/dev/zero"] });
    await process.wait();
    const events = [];
    for await (const event of process.events()) events.push(event);
    const [gap] = events;
    assert.ok(gap?.type === "gap");
    const filled = await process.read({ afterSeq: gap.fromSeq - 1 });
    assert.equal(filled.gap, undefined);
    const bytes = filled.chunks.reduce((sum, { chunk }) => sum + chunk.length, 0);
    assert.equal(bytes, 500_000);
  });

  it("knows its pid, and is told when its server can no longer follow it", async () => {
    const server = new ScriptedServer();
    const client = await ExecServerClient.connect(server.open);
    const process = await client.start(START);
    server.current.notify("process/started", { processId: "p", pid: 4711 });
    server.current.notify("process/failed", { processId: "p", message: "its reader broke" });
    const events = [];
    for await (const event of process.events()) events.push(event);
    assert.deepEqual(events, [{ type: "failed", message: "its reader broke" }]);
    assert.equal(process.pid, 4711);
    const read = await process.read({ waitMs: 60_000 });
    assert.deepEqual([read.failure, read.closed], ["its reader broke", true]);
    await client.close();
  });

  it("stops taking input for a slow lossless reader where there are no acknowledgements, but not while a call waits", async () => {
    const server = new ScriptedServer();
    server.answers.initialize = () => ({ sessionId: "S" });
    const client = await ExecServerClient.connect(server.open);
    const process = await client.start(START);
    const events = process.events({ lossless: true });
    const first = events.next();
    const send = (seq: number) =>
      server.current.notify("process/output", {
        processId: "p",
        seq,
        stream: "stdout",
        chunk: encodeBase64(new Uint8Array(500_000)),
      });
    for (let seq = 1; seq <= 10; seq++) send(seq);
    await first;
    await settle();
    const held = process.log.nextSeq - 1;
    assert.ok(held < 10, `only so much is taken ahead of the reader, not all ${held}`);
    // The answer comes behind the output that is held back: the call that waits for it must get it.
    assert.deepEqual(await client.call("environment/status", {}), { status: "ready" });
    let seen = 1;
    while (seen < 10) if ((await events.next()).value?.type === "output") seen++;
    assert.equal(process.log.nextSeq, 11);
    await events.return?.();
    await client.close();
  });

  it("is ended and forgotten when it is disposed of", async () => {
    await using server = new ExecServer(createLocalHost());
    await using client = await ExecServerClient.connectInProcess(server);
    {
      await using process = await client.start({ ...START, argv: ["sleep", "1000"] });
      assert.ok(process);
    }
    const [listed] = await client.list();
    assert.deepEqual([listed?.running, listed?.signal], [false, "SIGKILL"]);
  });

  it("keeps first-generation notifications apart from its own", async () => {
    await using server = new ExecServer(createLocalHost());
    await using client = await ExecServerClient.connectInProcess(server);
    const receiver = client.eventReceiver();
    const process = await client.start({ ...START, processId: "session-1", argv: ["echo", "current"] });
    const { sessionId } = await client.exec({ argv: ["echo", "first"], cwd: "/", env: {}, tty: false });
    assert.equal(sessionId, "session-1");
    const output = await receiver.next();
    assert.ok(output.value?.type === "output");
    assert.equal(new TextDecoder().decode(output.value.chunk), "first\n");
    await process.wait();
    const { chunks } = await process.read();
    assert.equal(new TextDecoder().decode(chunks[0]?.chunk), "current\n");
  });
});
