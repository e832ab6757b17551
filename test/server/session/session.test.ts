import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { EventLogLimits } from "../../../src/exec/log/event-log.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import type { ServerConfig } from "../../../src/server/server-config.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { memoryWire, startParams, WireClient } from "../../support/servers/raw-connection.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";

/** Sessions on a manual clock, with fake processes whose output the test prints. */
function setup(config: Partial<ServerConfig> = {}, limits: Partial<EventLogLimits> = { retainedBytes: 100 }) {
  const host = new FakeHost(limits);
  const server = new ExecServer(host, { retainedOutputBytes: limits.retainedBytes ?? 100, ...config });
  const connect = () => new WireClient(memoryWire((connection) => server.accept(connection)));
  const ready = async (params: Record<string, unknown> = {}) => {
    const client = connect();
    await client.handshake(params);
    return client;
  };
  const resume = (client: WireClient, params: Record<string, unknown> = {}) =>
    ready({ resumeSessionId: client.sessionId, ...params });
  return { host, server, connect, ready, resume };
}

const seqs = (client: WireClient, processId: string) =>
  client.notificationsOf(processId).map(({ method, params }) => `${method.slice("process/".length)} ${params.seq}`);

async function readAll(client: WireClient, processId: string, afterSeq = 0) {
  const result = await client.call("process/read", { processId, afterSeq });
  const chunks = result.chunks as { seq: number; chunk: string }[];
  return {
    text: chunks.map(({ chunk }) => Buffer.from(chunk, "base64").toString()).join(""),
    firstSeq: chunks[0]?.seq,
    result,
  };
}

describe("a lost connection", () => {
  test("detaches the session, which a client can resume with its processes within 30 s", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    host.process("p").print("one");
    await first.notification("process/output", "p");
    await first.close();
    host.process("p").print("two");
    await host.clock.advance(29_999);
    const second = await resume(first);
    assert.equal(second.sessionId, first.sessionId);
    host.process("p").print("three");
    await second.notification("process/output", "p");
    // Missed output is not sent again, but can be read.
    assert.deepEqual(seqs(second, "p"), ["output 3"]);
    assert.equal((await readAll(second, "p", 1)).text, "twothree");
  });

  test("ends the session and its processes after 30 s", async () => {
    const { host, server, ready, connect } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    await first.close();
    await host.clock.advance(30_000);
    assert.equal(host.process("p").endedFor, "sessionExpired");
    assert.equal(server.sessionCount, 0);
    const second = connect();
    assert.deepEqual(await second.refused("initialize", { clientName: "x", resumeSessionId: first.sessionId }), {
      code: -32600,
      message: `unknown session id ${first.sessionId}`,
    });
    const { message } = await second.refused("initialize", {
      clientName: "x",
      resumeSessionId: first.sessionId,
      extensions: ["attach"],
    });
    assert.match(message, /^unknown session id \S+; this server is generation [0-9a-f]{8}-1, earlier generations/);
    // A client may retry a rejected initialize.
    await second.handshake();
    assert.notEqual(second.sessionId, first.sessionId);
    assert.equal(host.clock.pendingTimers, 0);
  });

  test("ends the processes at once with a session TTL of 0", async () => {
    const { host, server, ready } = setup({ detachedSessionTtlMs: 0 });
    const client = await ready();
    await client.start("p", ["x"]);
    await client.close();
    await flushEventLoop();
    assert.equal(host.process("p").endedFor, "sessionExpired");
    assert.equal(server.sessionCount, 0);
  });

  test("after a protocol error only detaches the session", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    first.notify("process/output", {});
    await first.ended();
    await flushEventLoop();
    const second = await resume(first);
    assert.equal(host.process("p").endedFor, null);
    assert.deepEqual(((await second.call("process/list")).processes as unknown[]).length, 1);
  });

  test("aborts its waiting requests without a log line", async () => {
    const { host, ready } = setup();
    const client = await ready();
    await client.start("p", ["x"]);
    client.raw(JSON.stringify({ id: 50, method: "process/read", params: { processId: "p", waitMs: 60_000 } }));
    client.raw(JSON.stringify({ id: 51, method: "process/wait", params: { processId: "p" } }));
    await client.roundTrip();
    await client.close();
    await flushEventLoop();
    assert.deepEqual(host.logged, []);
    // Only the session's own timer is left.
    assert.equal(host.clock.pendingTimers, 1);
  });
});

describe("a connected session", () => {
  test("cannot be resumed by another connection", async () => {
    const { ready, connect } = setup();
    const first = await ready();
    const second = connect();
    assert.deepEqual(await second.refused("initialize", { clientName: "x", resumeSessionId: first.sessionId }), {
      code: -32010,
      message: `session ${first.sessionId} is already attached to another connection`,
    });
    assert.equal(first.isEnded, false);
  });

  test("can be taken over: the old connection is closed, the new one receives new events", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    host.process("p").print("one");
    await first.notification("process/output", "p");
    const second = await resume(first, { takeOver: true });
    await first.ended();
    host.process("p").print("two");
    await second.notification("process/output", "p");
    assert.deepEqual(seqs(second, "p"), ["output 2"]);
    assert.deepEqual(seqs(first, "p"), ["output 1"]);
    // The end of the old connection does not detach the session from the new one.
    await host.clock.advance(60_000);
    assert.equal(host.process("p").endedFor, null);
  });

  test("has its own namespace of process ids", async () => {
    const { ready } = setup();
    const one = await ready();
    const two = await ready();
    await one.start("same", ["x"]);
    await two.start("same", ["x"]);
    assert.equal(
      (await one.refused("process/start", startParams("same", ["x"]))).message,
      "process same already exists",
    );
    assert.equal((await two.refused("process/read", { processId: "other" })).message, "unknown process id other");
  });
});

describe("a closed process", () => {
  test("stays readable for 30 s, then its id is free and a new process starts at seq 1", async () => {
    const { host, ready } = setup();
    const client = await ready();
    await client.start("p", ["x"]);
    host.process("p").print("out");
    host.process("p").finish(3);
    await client.finished("p");
    await host.clock.advance(29_999);
    assert.equal((await readAll(client, "p")).text, "out");
    assert.equal((await client.refused("process/start", startParams("p", ["x"]))).message, "process p already exists");
    await host.clock.advance(1);
    assert.equal((await client.refused("process/read", { processId: "p" })).message, "unknown process id p");
    assert.equal(await client.write("p", "x"), "unknownProcess");
    assert.deepEqual(await client.call("process/terminate", { processId: "p" }), { running: false });
    await client.start("p", ["x"]);
    host.process("p").print("again");
    await client.outputContains("p", "again");
    assert.deepEqual(seqs(client, "p"), ["output 1", "exited 2", "closed 3", "output 1"]);
  });

  test("does not expire while its output is open after the exit", async () => {
    const { host, ready } = setup();
    const client = await ready();
    await client.start("p", ["x"]);
    host.process("p").exit(0);
    await client.notification("process/exited", "p");
    await host.clock.advance(3_600_000);
    assert.equal((await readAll(client, "p")).result.exited, true);
  });

  test("is retained until a slow client has received its output", async () => {
    const { host, ready } = setup({}, { retainedBytes: 4_000_000 });
    const client = await ready();
    await client.start("p", ["x"]);
    client.pause();
    // More than a connection queues, so the end cannot be on its way yet.
    for (let n = 0; n < 40; n++) host.process("p").print("x".repeat(50_000));
    host.process("p").finish(5);
    await flushEventLoop();
    await host.clock.advance(300_000);
    client.resume();
    const { output, exitCode } = await client.finished("p");
    assert.equal(output.length, 2_000_000);
    assert.equal(exitCode, 5);
    await host.clock.advance(30_000);
    assert.equal((await client.refused("process/read", { processId: "p" })).message, "unknown process id p");
  });

  test("that closed before the response to its start is delivered completely", async () => {
    const { host, ready } = setup();
    const gate = Promise.withResolvers<void>();
    host.startGate = gate.promise;
    const client = await ready();
    const started = client.start("p", ["x"]);
    await flushEventLoop();
    gate.resolve();
    await started;
    host.process("p").print("quick");
    host.process("p").finish(0);
    assert.equal((await client.finished("p")).output, "quick");
    assert.deepEqual(seqs(client, "p"), ["output 1", "exited 2", "closed 3"]);
  });
});

describe("a detached session without acknowledgements", () => {
  test("evicts nothing: it retains up to twice the limit, then pauses the process", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    for (let n = 0; n < 10; n++) process.print("0123456789");
    await first.until("ten chunks", () => seqs(first, "p").length === 10);
    assert.equal(process.paused, false);
    await first.close();
    await flushEventLoop();
    for (let n = 0; n < 9; n++) process.print("abcdefghij");
    assert.equal(process.paused, false);
    process.print("abcdefghij");
    assert.equal(process.paused, true);
    // Output that arrives while the pause takes effect is retained too.
    process.print("overshoot!");
    const second = await resume(first);
    assert.equal(process.paused, true);
    const { text, result } = await readAll(second, "p");
    assert.equal(text, `${"0123456789".repeat(10)}${"abcdefghij".repeat(10)}overshoot!`);
    assert.equal(result.gap, undefined);
    // After the read, the process continues and eviction is normal again.
    assert.equal(process.paused, false);
    process.print("x");
    assert.ok(process.log.retainedBytes <= 100);
  });

  test("retains output that was queued when the connection was lost, even above the limit", async () => {
    const { host, ready, resume } = setup({}, { retainedBytes: 100_000 });
    const first = await ready();
    await first.start("p", ["x"]);
    await first.roundTrip();
    const process = host.process("p");
    first.pause();
    // The first output fits into the connection's queue, so all of it counts as sent; the second is pinned.
    process.print("0".repeat(90_000));
    process.print("1".repeat(90_000));
    await flushEventLoop();
    assert.equal(process.paused, false);
    await first.close();
    await flushEventLoop();
    const second = await resume(first);
    const { text, result } = await readAll(second, "p");
    assert.equal(result.gap, undefined);
    assert.equal(text.length, 180_000);
  });

  test("does not retain all output for a connection whose queue never drains", async () => {
    const { host, ready } = setup({}, { retainedBytes: 100_000 });
    const client = await ready();
    await client.start("p", ["x"]);
    await client.roundTrip();
    const process = host.process("p");
    for (let n = 0; n < 200; n++) {
      client.pause();
      process.print("x".repeat(50_000));
      await flushEventLoop();
      client.resume();
      process.print("y".repeat(10));
      await flushEventLoop();
    }
    assert.ok(process.log.retainedBytes < 2_300_000, `${process.log.retainedBytes} bytes are retained`);
    assert.equal(process.paused, false);
  });

  test("lets a client read missed output in pages, without losing any to new output", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    await first.close();
    await flushEventLoop();
    for (let n = 0; n < 18; n++) process.print(`page ${n}...`.padEnd(10, "."));
    const second = await resume(first);
    let cursor = 0;
    let text = "";
    while (cursor < 18) {
      const page = await second.call("process/read", { processId: "p", afterSeq: cursor, maxBytes: 40 });
      assert.equal(page.gap, undefined);
      const chunks = page.chunks as { seq: number; chunk: string }[];
      text += chunks.map(({ chunk }) => Buffer.from(chunk, "base64").toString()).join("");
      cursor = Number(page.nextSeq) - 1;
      if (!process.paused) process.print("live output");
    }
    for (let n = 0; n < 18; n++) assert.ok(text.includes(`page ${n}.`), `page ${n} is missing`);
  });

  test("does not keep the process paused for a client that never reads missed output", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    await first.close();
    await flushEventLoop();
    for (let n = 0; n < 20; n++) process.print("0123456789");
    const second = await resume(first);
    assert.equal(process.paused, true);
    await host.clock.advance(10_000);
    assert.equal(process.paused, false);
    assert.ok(process.log.retainedBytes <= 100);
    process.print("live");
    await second.outputContains("p", "live");
  });

  test("sends little new output before the client has read the missed output, and the rest right after", async () => {
    const { host, ready, resume } = setup({}, { retainedBytes: 1_000_000 });
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    await first.close();
    await flushEventLoop();
    process.print("missed");
    const second = await resume(first);
    // A live event is sent at once; bulk output stops well below the limit that a client buffers ahead of its cursor.
    for (let n = 0; n < 40; n++) process.print("x".repeat(20_000));
    await flushEventLoop();
    const ahead = second.outputBytes("p").length;
    assert.ok(ahead >= 256 * 1024 && ahead < 300 * 1024, `${ahead} bytes`);
    const read = await second.request("process/read", { processId: "p", afterSeq: 0, maxBytes: 1 });
    assert.equal(read.result?.nextSeq, 2);
    await flushEventLoop();
    assert.equal(second.outputBytes("p").length, 2 * ahead);
    await host.clock.advance(250);
    await second.until("all of it", () => second.outputBytes("p").length === 800_000);
    const answered = second.messages.indexOf(read);
    const after = second.messages.slice(answered).filter(({ method }) => method === "process/output");
    assert.equal(after.length, 40 - ahead / 20_000);
  });

  test("sends at most a hundred events before the client has read the missed output", async () => {
    const { host, ready, resume } = setup({}, { retainedBytes: 1_000_000 });
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    await first.close();
    await flushEventLoop();
    process.print("missed");
    const second = await resume(first);
    for (let n = 0; n < 300; n++) process.print(".");
    await flushEventLoop();
    assert.equal(seqs(second, "p").length, 100);
    // The server sends the rest to a client that never reads when its read timeout has elapsed.
    await host.clock.advance(10_000);
    await second.until("all of them", () => seqs(second, "p").length === 300);
  });

  test("evicts the oldest output with --on-detach evict and reports a gap", async () => {
    const { host, ready, resume } = setup({ onDetach: "evict" });
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    await first.close();
    await flushEventLoop();
    for (let n = 0; n < 30; n++) process.print("0123456789");
    assert.equal(process.paused, false);
    const second = await resume(first);
    const { text, result } = await readAll(second, "p");
    assert.equal(text, "0123456789".repeat(10));
    assert.deepEqual(result.gap, { fromSeq: 1, toSeq: 20, bytes: 200 });
  });

  test("loses output of a disconnected client only while the container is almost full, and reports a gap", async () => {
    const { host, server, ready, resume } = setup();
    const { memory } = server.resources;
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    await first.close();
    await flushEventLoop();
    process.print("0123456789");
    memory.charge(2 * memory.maxBytes);
    assert.equal(process.log.retainedBytes, 10, "the budget is full, but the container is not");
    memory.release(2 * memory.maxBytes);
    memory.charge(10);
    memory.setLimit(5);
    assert.equal(process.log.retainedBytes, 0);
    memory.setLimit(memory.maxBytes);
    const second = await resume(first);
    assert.deepEqual((await readAll(second, "p")).result.gap, { fromSeq: 1, toSeq: 1, bytes: 10 });
  });

  test("returns the end of a process by process/read", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    await first.close();
    await flushEventLoop();
    host.process("p").print("last words");
    host.process("p").finish(7);
    await host.clock.advance(20_000);
    const second = await resume(first);
    const { text, result } = await readAll(second, "p");
    assert.equal(text, "last words");
    assert.deepEqual([result.exited, result.exitCode, result.closed], [true, 7, true]);
    assert.deepEqual(second.notificationsOf("p"), []);
  });
});

describe("the outputAck extension", () => {
  const extensions = ["outputAck"];
  const ack = (client: WireClient, seq: number) => client.notify("process/ack", { processId: "p", seq });

  test("never evicts unacknowledged output, and pauses the process instead", async () => {
    const { host, ready } = setup();
    const client = await ready({ extensions });
    await client.start("p", ["x"]);
    const process = host.process("p");
    for (let n = 0; n < 12; n++) process.print("0123456789");
    assert.equal(process.paused, true);
    assert.equal(process.log.retainedBytes, 120);
    ack(client, 6);
    await client.roundTrip();
    assert.equal(process.paused, true);
    ack(client, 7);
    await client.roundTrip();
    assert.equal(process.paused, false);
  });

  test("loses nothing when the connection is cut: the next one reads everything after its last acknowledgement", async () => {
    const { host, ready, resume } = setup();
    const first = await ready({ extensions });
    await first.start("p", ["x"]);
    const process = host.process("p");
    for (let n = 0; n < 9; n++) process.print(`chunk ${n}...`);
    ack(first, 2);
    await first.roundTrip();
    await first.close();
    await flushEventLoop();
    assert.equal(process.paused, false);
    for (let n = 9; n < 12; n++) process.print(`chunk ${n}...`.slice(0, 10));
    assert.equal(process.paused, true);
    const second = await resume(first, { extensions });
    const { text, firstSeq, result } = await readAll(second, "p", 2);
    assert.equal(firstSeq, 3);
    assert.equal(result.gap, undefined);
    for (let n = 2; n < 12; n++) assert.ok(text.includes(`chunk ${n}.`));
    assert.equal(process.paused, true);
    ack(second, 12);
    await second.roundTrip();
    assert.equal(process.paused, false);
  });

  test("retains a closed process until its output and its end are acknowledged", async () => {
    const { host, ready, resume } = setup();
    const first = await ready({ extensions });
    await first.start("p", ["x"]);
    host.process("p").print("precious");
    host.process("p").finish(0);
    await first.finished("p");
    await host.clock.advance(120_000);
    await first.close();
    await flushEventLoop();
    await host.clock.advance(25_000);
    const second = await resume(first, { extensions });
    assert.equal((await readAll(second, "p")).text, "precious");
    ack(second, 1);
    await second.roundTrip();
    await host.clock.advance(31_000);
    assert.equal((await readAll(second, "p")).result.exitCode, 0);
    ack(second, 3);
    await second.roundTrip();
    await host.clock.advance(30_000);
    assert.equal((await second.refused("process/read", { processId: "p" })).message, "unknown process id p");
    assert.equal(host.clock.pendingTimers, 0);
  });

  test("retains a closed process whose timer runs if a resume enables acknowledgements", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    host.process("p").print("precious");
    host.process("p").finish(0);
    await first.finished("p");
    await host.clock.advance(20_000);
    await first.close();
    await flushEventLoop();
    const second = await resume(first, { extensions });
    await host.clock.advance(60_000);
    assert.equal((await readAll(second, "p")).text, "precious");
    ack(second, 3);
    await second.roundTrip();
    await host.clock.advance(30_000);
    assert.equal((await second.refused("process/read", { processId: "p" })).message, "unknown process id p");
  });

  test("applies per connection: a resume without it evicts again after the read", async () => {
    const { host, ready, resume } = setup();
    const first = await ready({ extensions });
    await first.start("p", ["x"]);
    const process = host.process("p");
    for (let n = 0; n < 11; n++) process.print("0123456789");
    await first.close();
    await flushEventLoop();
    const second = await resume(first);
    assert.equal((await readAll(second, "p")).text.length, 110);
    assert.ok(process.log.retainedBytes <= 100);
    for (let n = 0; n < 11; n++) process.print("0123456789");
    await second.roundTrip();
    assert.equal(process.paused, false);
    second.notify("process/ack", { processId: "p", seq: 1 });
    await second.ended();
  });

  test("covers the retained output if a resume enables it", async () => {
    const { host, ready, resume } = setup();
    const first = await ready();
    await first.start("p", ["x"]);
    const process = host.process("p");
    for (let n = 0; n < 15; n++) process.print("0123456789");
    await first.roundTrip();
    await first.close();
    await flushEventLoop();
    const second = await resume(first, { extensions });
    const { result } = await readAll(second, "p");
    assert.deepEqual(result.gap, { fromSeq: 1, toSeq: 5, bytes: 50 });
    for (let n = 0; n < 11; n++) process.print("0123456789");
    assert.equal(process.paused, true);
    ack(second, 26);
    await second.roundTrip();
    assert.equal(process.paused, false);
  });

  test("does not delay an exit in terminate, wait and list while output is paused", async () => {
    const { host, ready } = setup();
    const client = await ready({ extensions });
    await client.start("p", ["x"]);
    const process = host.process("p");
    for (let n = 0; n < 12; n++) process.print("0123456789");
    assert.equal(process.paused, true);
    process.exit(9);
    assert.deepEqual((await client.call("process/wait", { processId: "p" })).exitCode, 9);
    const [listing] = (await client.call("process/list")).processes as {
      running: boolean;
      exitCode: number;
    }[];
    assert.deepEqual([listing?.running, listing?.exitCode], [false, 9]);
    assert.deepEqual(await client.call("process/terminate", { processId: "p" }), { running: false });
  });

  test("is required: an acknowledgement without it closes the connection", async () => {
    const { ready } = setup();
    const client = await ready();
    client.notify("process/ack", { processId: "p", seq: 1 });
    await client.ended();
  });
});

describe("extensions", () => {
  test("are granted by name, and unknown names are ignored", async () => {
    const { connect } = setup();
    await using client = connect();
    const result = await client.handshake({ extensions: ["failed", "nonsense", "started", "started"] });
    assert.deepEqual(result.extensions, ["started", "failed"]);
  });

  test("send process/started with the pid after the response and before other notifications", async () => {
    const { host, ready } = setup();
    const client = await ready({ extensions: ["started"] });
    await client.start("p", ["x"]);
    host.process("p").print("x");
    await client.notification("process/output", "p");
    assert.deepEqual(
      client.notificationsOf("p").map(({ method }) => method),
      ["process/started", "process/output"],
    );
    assert.deepEqual(client.notificationsOf("p")[0]?.params, { processId: "p", pid: 4242 });
  });

  test("send process/failed for a lost process to clients that requested it, and an exit to other clients", async () => {
    const { host, ready } = setup();
    const extended = await ready({ extensions: ["failed"] });
    const other = await ready();
    for (const client of [extended, other]) {
      await client.start("p", ["x"]);
      host.process("p").log.fail(new ExecServerError("its reader broke", "FAILED"));
      await client.roundTrip();
    }
    assert.deepEqual(extended.notificationsOf("p"), [
      { method: "process/failed", params: { processId: "p", message: "its reader broke" } },
    ]);
    assert.deepEqual(
      other.notificationsOf("p").map(({ method, params }) => [method, params?.seq, params?.exitCode]),
      [
        ["process/exited", 1, -1],
        ["process/closed", 2, undefined],
      ],
    );
    assert.equal((await readAll(other, "p")).result.failure, "its reader broke");
  });

  test("are invisible to clients that requested none", async () => {
    const { host, ready } = setup();
    const client = await ready();
    await client.start("p", ["x"]);
    host.process("p").print("x");
    host.process("p").finish(0);
    await client.finished("p");
    assert.deepEqual(
      client.notificationsOf("p").map(({ method }) => method),
      ["process/output", "process/exited", "process/closed"],
    );
  });
});

describe("response fields for clients with extensions", () => {
  const EXTENDED: readonly (readonly [response: string, field: string])[] = [
    ["initialize", "attachmentId"],
    ["initialize", "generation"],
    ["environment/info", "generation"],
    ["process/start", "handle"],
    ["process/snapshot", "lifetime"],
    ["process/list", "lifetime"],
  ];

  /** The results of all methods with such fields. */
  async function responses(extensions: string[]): Promise<Record<string, Record<string, unknown>>> {
    const { connect } = setup();
    await using client = connect();
    const initialize = await client.handshake({ extensions });
    const start = await client.call("process/start", startParams("p", ["x"]));
    const list = await client.call("process/list", {});
    assert.ok(Array.isArray(list.processes));
    return {
      initialize,
      "environment/info": await client.call("environment/info", {}),
      "process/start": start,
      "process/snapshot": await client.call("process/snapshot", { processId: "p" }),
      "process/list": list.processes[0],
    };
  }

  test("include the reason of an error, also of a rejected initialize", async () => {
    for (const extensions of [["outputAck"], []]) {
      const { connect, ready } = setup();
      const client = await ready({ extensions });
      await client.start("p", ["x"]);
      const stale = { resumeSessionId: client.sessionId, takeOverFrom: "stale", extensions };
      const expected = {
        processExists: await client.refused("process/start", startParams("p", ["x"])),
        unknownProcess: await client.refused("process/read", { processId: "q" }),
        unknownHandle: await client.refused("process/attach", { handle: "h", role: "viewer" }),
        unknownMethod: await client.refused("no/method"),
        sessionTakenOver: await connect().refused("initialize", { clientName: "other", ...stale }),
      };
      for (const [reason, { data }] of Object.entries(expected))
        assert.deepEqual(data, extensions.length > 0 ? { reason } : undefined, reason);
    }
  });

  test("are sent only to clients that requested an extension", async () => {
    const extended = await responses(["outputAck"]);
    const plain = await responses([]);
    for (const [response, field] of EXTENDED) {
      assert.ok(Object.hasOwn(extended[response] ?? {}, field), `${response} ${field}`);
      assert.ok(!Object.hasOwn(plain[response] ?? {}, field), `${response} ${field}`);
    }
  });
});

describe("server shutdown", () => {
  test("rejects starts, reports the end of all processes and closes the connections", async () => {
    const { host, server, ready } = setup({ shutdownGraceMs: 1234 });
    const client = await ready();
    await client.start("p", ["x"]);
    const gate = Promise.withResolvers<void>();
    const started = client.request("process/start", startParams("q", ["x"]));
    const shutdown = host.backend.shutdown;
    host.backend.shutdown = async (graceMs) => {
      if (host.shutdowns.length === 0) await gate.promise;
      await shutdown(graceMs);
    };
    await started;
    const closing = server.close();
    assert.deepEqual(await client.refused("process/start", startParams("late", ["x"])), {
      code: -32600,
      message: "server is shutting down",
    });
    gate.resolve();
    await closing;
    await client.ended();
    assert.equal((await client.notification("process/exited", "p")).params?.reason, "terminated");
    assert.deepEqual(host.shutdowns, [1234, 0]);
    assert.equal(server.sessionCount, 0);
    assert.equal(server.connectionCount, 0);
    assert.equal(host.clock.pendingTimers, 0);
    await server.close();
  });
});
