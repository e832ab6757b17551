import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServerClient } from "../../../src/client/exec-server-client.ts";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { runPromiseReactions } from "../../support/system/promise-reactions.ts";
import { ScriptedServer } from "../scripted-server.ts";

const START: StartParams = { processId: "p", argv: ["true"], cwd: "/", env: {}, tty: false };

describe("RemoteProcess", { timeout: 600_000 }, () => {
  test("reads output from the server that its own log has evicted", async () => {
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

  test("reports its pid, and fails if the server can no longer track it", async () => {
    const server = new ScriptedServer();
    const client = await ExecServerClient.connect(server.open);
    const process = await client.start(START);
    server.current.notify("process/started", { processId: "p", pid: 4711 });
    server.current.notify("process/failed", { processId: "p", message: "its reader broke" });
    const events = [];
    for await (const event of process.events()) events.push(event);
    const [failed] = events;
    assert.ok(failed?.type === "failed" && events.length === 1);
    assert.deepEqual([failed.message, failed.error.code], ["its reader broke", "FAILED"]);
    assert.equal(process.pid, 4711);
    assert.equal(process.listing().running, false);
    const read = await process.read({ waitMs: 60_000 });
    assert.deepEqual([read.failure, read.closed], ["its reader broke", true]);
    await client.close();
  });

  test("pauses the connection for a slow lossless reader without acknowledgements, except while a call is pending", async () => {
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
    await runPromiseReactions();
    const readAhead = process.log.nextSeq - 1;
    assert.ok(readAhead < 10, `the client read ${readAhead} chunks ahead of the reader`);
    // The response follows the paused output, and the pending call must receive it.
    assert.deepEqual(await client.call("environment/status", {}), { status: "ready" });
    let seen = 1;
    while (seen < 10) if ((await events.next()).value?.type === "output") seen++;
    assert.equal(process.log.nextSeq, 11);
    await events.return?.();
    await client.close();
  });

  test("is terminated and forgotten on disposal", async () => {
    await using server = new ExecServer(createLocalHost());
    await using client = await ExecServerClient.connectInProcess(server);
    {
      await using process = await client.start({ ...START, argv: ["sleep", "1000"] });
      assert.ok(process);
    }
    const [listed] = await client.list();
    assert.deepEqual([listed?.running, listed?.signal], [false, "SIGKILL"]);
  });

  test("frees its output and closes its readers on disposal", async () => {
    const server = new ScriptedServer();
    const client = await ExecServerClient.connect(server.open);
    const process = await client.start(START);
    const chunk = encodeBase64(new Uint8Array(1000));
    server.current.notify("process/output", { processId: "p", seq: 1, stream: "stdout", chunk });
    server.current.notify("process/exited", { processId: "p", seq: 2, exitCode: 0 });
    server.current.notify("process/closed", { processId: "p", seq: 3 });
    const events = process.events();
    await events.next();
    await process.wait();
    assert.equal(process.log.retainedBytes, 1000);
    await process[Symbol.asyncDispose]();
    assert.equal(process.log.retainedBytes, 0);
    assert.equal((await events.next()).done, true);
    await client.close();
  });

  test("reads output that is missing before the first event of its start", async () => {
    const server = new ScriptedServer();
    const output = (seq: number) => ({ seq, stream: "stdout", chunk: encodeBase64(new Uint8Array(seq)) });
    server.answers["process/read"] = () => ({
      ...{ chunks: [output(1), output(2)], nextSeq: 3 },
      ...{ exited: false, exitCode: null, closed: false, failure: null },
    });
    server.answers["process/start"] = ({ processId }, peer) => {
      peer.notify("process/output", { processId, ...output(2) });
      return { processId, sandboxType: "none" };
    };
    const client = await ExecServerClient.connect(server.open);
    const process = await client.start(START);
    await runPromiseReactions();
    assert.equal(process.log.totalBytes, 3);
    await client.close();
  });

  test("returns stdinClosed for a write after the exit, without calling the server", async () => {
    const server = new ScriptedServer();
    const client = await ExecServerClient.connect(server.open);
    const process = await client.start({ ...START, pipeStdin: true });
    server.current.notify("process/exited", { processId: "p", seq: 1, exitCode: 0 });
    await runPromiseReactions();
    assert.deepEqual(await process.write(new Uint8Array(1)), { status: "stdinClosed" });
    assert.deepEqual(server.calls("process/write"), []);
    await client.close();
  });

  test("ignores v0 notifications", async () => {
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
