import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { TimeoutError } from "../../src/async/deadline.ts";
import { ExecServerClient } from "../../src/client/exec-server-client.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { run } from "../../src/exec/run/run-program.ts";
import { encodeBase64 } from "../../src/protocol/base64.ts";
import { RequestError } from "../../src/protocol/errors.ts";
import { ExecServerError } from "../../src/protocol/exec-server-error.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { runPromiseReactions } from "../support/system/promise-reactions.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "./scripted-server.ts";

const START: StartParams = { processId: "p", argv: ["true"], cwd: "/tmp/a b", env: {}, tty: true };

describe("connect", () => {
  test("times out if the initialize result does not arrive", async () => {
    const server = new ScriptedServer();
    server.answers.initialize = () => NO_ANSWER;
    const clock = new ManualClock();
    const connecting = ExecServerClient.connect(server.open, { clock, initializeTimeoutMs: 5000 });
    const refused = assert.rejects(connecting, (error: Error) => {
      assert.ok(error instanceof ExecServerError && error.cause instanceof TimeoutError);
      assert.deepEqual([error.code, error.method], ["TIMEOUT", "initialize"]);
      assert.equal(error.message, "timed out waiting for initialize after 5000 ms");
      return true;
    });
    await runPromiseReactions();
    await clock.advance(5000);
    await refused;
  });

  test("rejects with the signal's reason on abort", async () => {
    const server = new ScriptedServer();
    server.answers.initialize = () => NO_ANSWER;
    const controller = new AbortController();
    const connecting = ExecServerClient.connect(server.open, { signal: controller.signal });
    await runPromiseReactions();
    controller.abort(new Error("changed my mind"));
    await assert.rejects(connecting, { message: "changed my mind" });
  });

  test("rejects with the server's error text", async () => {
    const server = new ScriptedServer();
    server.answers.initialize = () => {
      throw new RequestError(-32600, "unknown session id gone");
    };
    await assert.rejects(ExecServerClient.connect(server.open, { resumeSessionId: "gone" }), {
      code: "EINVAL",
      rpcCode: -32600,
      message: "unknown session id gone",
    });
  });
});

describe("a server without the extensions", () => {
  async function plain(): Promise<{ server: ScriptedServer; client: ExecServerClient }> {
    const server = new ScriptedServer();
    server.answers.initialize = () => ({ sessionId: "S" });
    return { server, client: await ExecServerClient.connect(server.open) };
  }

  test("receives no messages and methods that it does not know", async () => {
    const { server, client } = await plain();
    server.answers["process/signal"] = () => ({});
    server.answers["process/terminate"] = () => ({ running: true });
    const process = await client.start(START);
    for (let seq = 1; seq <= 3; seq++)
      server.current.notify("process/output", {
        processId: "p",
        seq,
        stream: "pty",
        chunk: encodeBase64(new Uint8Array(300_000)),
      });
    await runPromiseReactions();
    await assert.rejects(process.closeStdin(), {
      message: "process/closeStdin is not supported by this server",
    });
    await assert.rejects(process.resize({ rows: 1, cols: 1 }), {
      message: "process/resize is not supported by this server",
    });
    await assert.rejects(process.signal("SIGUSR1"), {
      message: "signal SIGUSR1 is not supported by this server",
    });
    await process.signal("SIGINT");
    await process.terminate();
    assert.deepEqual(
      (await client.list()).map(({ processId }) => processId),
      ["p"],
    );
    assert.equal((await process.snapshot()).terminal.length, 900_000);
    assert.deepEqual(
      [...new Set(server.received.map((message) => ("method" in message ? message.method : message.type)))],
      ["initialize", "initialized", "process/start", "process/signal", "process/terminate"],
    );
    assert.deepEqual(server.calls("process/signal"), [{ processId: "p", signal: "interrupt" }]);
    await client.close();
  });

  test("leaves waits to the client, which evaluates them from the events", async () => {
    const { server, client } = await plain();
    const process = await client.start(START);
    const matched = process.wait({ until: { type: "output", pattern: "rea[d]y" } });
    const exited = process.wait();
    server.current.notify("process/output", {
      processId: "p",
      seq: 1,
      stream: "pty",
      chunk: encodeBase64(new TextEncoder().encode("I am ready")),
    });
    assert.deepEqual(await matched, {
      reason: "matched",
      match: "ready",
      exitCode: null,
      signal: null,
      seq: 1,
    });
    server.current.notify("process/exited", { processId: "p", seq: 2, exitCode: 4, sandboxDenied: false });
    assert.deepEqual(await exited, {
      reason: "exited",
      exitCode: 4,
      signal: null,
      exitReason: "exited",
      seq: 2,
    });
    await assert.rejects(process.wait({ until: { type: "port", port: 1 } }), {
      message: "waiting for a port is not supported by this server",
    });
    await client.close();
  });

  test("makes a call of an unknown method reject as unsupported", async () => {
    const { client } = await plain();
    await assert.rejects(client.files.readFile("/etc/passwd"), {
      message: "fs/readFile is not supported by this server",
    });
    await client.close();
  });

  test("may send events of a process before the start result", async () => {
    const { server, client } = await plain();
    server.answers["process/start"] = ({ processId }, peer) => {
      peer.notify("process/exited", { processId, seq: 1, exitCode: 0, sandboxDenied: false });
      peer.notify("process/closed", { processId, seq: 2 });
      return { processId };
    };
    const process = await client.start(START);
    const types: string[] = [];
    for await (const event of process.events()) types.push(event.type);
    assert.deepEqual(types, ["exited", "closed"]);
    await client.close();
  });
});

describe("client calls", () => {
  test("send a native directory as a URI and omit unset fields", async () => {
    const server = new ScriptedServer();
    const client = await ExecServerClient.connect(server.open);
    await client.start(START);
    assert.deepEqual(server.calls("process/start"), [
      { processId: "p", argv: ["true"], cwd: "file:///tmp/a%20b", env: {}, tty: true },
    ]);
    await assert.rejects(client.start({ ...START, processId: "q", cwd: "relative" }), {
      message: "cwd `relative` must be an absolute path or a file: URI",
    });
    await assert.rejects(client.start(START), { message: "process p already exists" });
    await client.close();
  });

  test("split a large write into messages below the frame limit, in order and once each", async () => {
    const server = new ScriptedServer();
    const client = await ExecServerClient.connect(server.open);
    server.answers["process/write"] = () => ({ status: "accepted" });
    const process = await client.start(START);
    const data = new Uint8Array(3_000_000).map((_, at) => at & 255);
    assert.deepEqual(await process.write(data), { status: "accepted" });
    const sent = server.calls("process/write");
    // The parser decodes long chunks to bytes; short ones stay base64.
    const joined = sent.map(({ chunk }) =>
      chunk instanceof Uint8Array ? chunk : Buffer.from(String(chunk), "base64"),
    );
    assert.ok(Buffer.concat(joined).equals(data));
    assert.equal(new Set(sent.map(({ writeId }) => writeId)).size, sent.length);
    await client.close();
  });

  test("keep fewer writes in flight than a server remembers write ids", async () => {
    const server = new ScriptedServer();
    const client = await ExecServerClient.connect(server.open);
    server.answers["process/write"] = () => NO_ANSWER;
    const process = await client.start(START);
    for (let count = 0; count < 5000; count++) process.write(new Uint8Array(1)).catch(() => undefined);
    await runPromiseReactions();
    assert.equal(server.calls("process/write").length, 1024);
    await client.close();
  });

  test("reject if a run does not start within its timeout, and terminate the process if it starts later", async () => {
    const server = new ScriptedServer();
    const clock = new ManualClock();
    const client = await ExecServerClient.connect(server.open, { clock });
    server.answers["process/start"] = () => NO_ANSWER;
    server.answers["process/terminate"] = () => ({ running: true });
    const running = run(client.backend, ["slow"], { cwd: "/", timeoutMs: 500, clock });
    const refused = assert.rejects(running, (error: Error) => {
      assert.ok(error instanceof ExecServerError && error.cause instanceof TimeoutError, error.stack);
      assert.deepEqual(
        [error.code, error.method, error.argv, error.message],
        ["TIMEOUT", "process/start", ["slow"], "timed out waiting for `slow` to start after 500 ms"],
      );
      assert.match(error.stack ?? "", /handshake-and-calls\.test\.ts/);
      return true;
    });
    await runPromiseReactions();
    await clock.advance(500);
    await refused;
    const [start] = server.current.messages.filter((message) => "id" in message).slice(-1);
    assert.ok(start && "id" in start);
    server.current.respond(start.id, { processId: server.calls("process/start")[0]?.processId });
    await server.until(() => server.calls("process/terminate").length > 0);
    await client.close();
  });

  test("with an unknown method or params that JSON cannot express reject once, and are never sent", async () => {
    const { server, client, clock } = await connectScripted();
    const circular: Record<string, unknown> = {};
    circular.handle = circular;
    const rejected: [method: string, params: object, message: RegExp][] = [
      ["process/lsit", {}, /^call: invalid `method`: got "process\/lsit", expected a method such as process\/list$/],
      ["toString", {}, /^call: invalid `method`: got "toString", /],
      ["process/kill", { handle: circular }, /^process\/kill: invalid `params`: Converting circular structure to JSON/],
      ["process/kill", { handle: 1n }, /^process\/kill: invalid `params`: .*BigInt/],
      ["process/write", { processId: "p" }, /^process\/write: invalid `params`: missing `processId` or `chunk`$/],
      ["fs/writeBlock", {}, /^fs\/writeBlock: invalid `params`: missing `handleId` or `chunk`$/],
    ];
    for (const [method, params, message] of rejected)
      await assert.rejects(client.call(method as never, params as never, { timeoutMs: 1 }), {
        code: "EINVAL",
        message,
      });
    // A failed call neither times out later nor is sent after a reconnect: both would end the program.
    await clock.advance(1);
    server.current.cut("cut");
    await client.list().catch(() => undefined);
    assert.deepEqual(server.calls("process/kill"), []);
    await client.close();
  });

  test("end by timeout or signal, and drop the late response", async () => {
    const server = new ScriptedServer();
    const clock = new ManualClock();
    const client = await ExecServerClient.connect(server.open, { clock });
    server.answers["environment/status"] = () => NO_ANSWER;
    const late = client.call("environment/status", {}, { timeoutMs: 100 });
    const refused = assert.rejects(late, {
      message: "timed out waiting for environment/status after 100 ms",
    });
    await clock.advance(100);
    await refused;
    const controller = new AbortController();
    const aborted = client.call("environment/status", {}, { signal: controller.signal });
    await runPromiseReactions();
    controller.abort(new Error("enough"));
    await assert.rejects(aborted, { message: "enough" });
    server.current.respond(2, { status: "ready" });
    server.current.respond(99, {});
    server.answers["environment/status"] = () => ({ status: "ready" });
    await runPromiseReactions();
    assert.deepEqual(await client.call("environment/status", {}), { status: "ready" });
    await client.close();
  });
});

describe("acknowledgements", () => {
  async function talking(): Promise<{
    server: ScriptedServer;
    client: ExecServerClient;
    clock: ManualClock;
  }> {
    const server = new ScriptedServer();
    const clock = new ManualClock();
    const client = await ExecServerClient.connect(server.open, { clock });
    return { server, client, clock };
  }
  const output = (seq: number, size: number) => ({
    processId: "p",
    seq,
    stream: "stdout",
    chunk: encodeBase64(new Uint8Array(size)),
  });

  test("are sent in batches, once the log has the output", async () => {
    const { server, client, clock } = await talking();
    await client.start(START);
    server.current.notify("process/output", output(1, 10));
    await runPromiseReactions();
    assert.deepEqual(server.notifications("process/ack"), []);
    await clock.advance(25);
    assert.deepEqual(server.notifications("process/ack"), [{ processId: "p", seq: 1 }]);
    server.current.notify("process/output", output(2, 300_000));
    await runPromiseReactions();
    assert.deepEqual(server.notifications("process/ack").at(-1), { processId: "p", seq: 2 });
    server.current.notify("process/output", output(3, 10));
    server.current.notify("process/exited", { processId: "p", seq: 4, exitCode: 0 });
    await runPromiseReactions();
    assert.deepEqual(server.notifications("process/ack").at(-1), { processId: "p", seq: 4 });
    await client.close();
  });

  test("are suspended while a lossless subscriber is slow, and sent when it has caught up", async () => {
    const { server, client, clock } = await talking();
    const process = await client.start(START);
    const events = process.events({ lossless: true });
    const first = events.next();
    await clock.advance(0);
    for (let seq = 1; seq <= 5; seq++) {
      server.current.notify("process/output", output(seq, 500_000));
      await runPromiseReactions();
    }
    await first;
    const lastAck = server.notifications("process/ack").at(-1);
    assert.ok(lastAck === undefined || Number(Object(lastAck).seq) < 5, JSON.stringify(lastAck));
    for (let seq = 2; seq <= 5; seq++) await events.next();
    await runPromiseReactions();
    assert.deepEqual(server.notifications("process/ack").at(-1), { processId: "p", seq: 5 });
    await events.return?.();
    await client.close();
  });
});
