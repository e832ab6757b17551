/** Sessions on a manual clock that attach to each other's processes. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { TtyState } from "../../../src/exec/exec-process.ts";
import type { EventLogLimits } from "../../../src/exec/log/event-log.ts";
import type { Principal } from "../../../src/server/auth/principal.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import {
  EXITED_BACKGROUND_TTL_MS,
  MAX_EXITED_BACKGROUND,
  type ServerConfig,
} from "../../../src/server/server-config.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { withoutGeneration } from "../../support/servers/generation.ts";
import { memoryWire, startParams, WireClient } from "../../support/servers/raw-connection.ts";

function setup(config: Partial<ServerConfig> = {}, limits: Partial<EventLogLimits> = { retainedBytes: 100 }) {
  const host = new FakeHost(limits);
  const server = new ExecServer(host, { retainedOutputBytes: limits.retainedBytes ?? 100, ...config });
  const connect = (principal?: Principal) =>
    new WireClient(memoryWire((connection) => server.accept(connection, principal)));
  const ready = async (params: Record<string, unknown> = {}, principal?: Principal) => {
    const client = connect(principal);
    await client.handshake({ extensions: ["attach", "started"], ...params });
    return client;
  };
  const resume = (client: WireClient) => ready({ resumeSessionId: client.sessionId });
  /** A process and its handle. */
  const started = async (owner: WireClient, processId = "p", more: Record<string, unknown> = {}) =>
    String((await owner.start(processId, ["x"], more)).handle);
  return { host, server, connect, ready, resume, started };
}

const attach = (client: WireClient, handle: string, role: string, more: object = {}) =>
  client.call("process/attach", { handle, role, ...more });

const write = (client: WireClient, processId: string, text: string) =>
  client.request("process/write", { processId, chunk: Buffer.from(text).toString("base64") });

/** Viewers get output only when the scheduler runs. */
const runViewers = (host: FakeHost) => host.clock.advance(5);

const roles = (client: WireClient) =>
  client.messages
    .filter(({ method }) => method === "process/roleChanged" || method === "process/driverChanged")
    .map(({ params }) => params?.role ?? params?.driver);

describe("process/attach", () => {
  test("returns the description of the process, then sends retained and new output", async () => {
    const { host, ready, started } = setup();
    const handle = await started(await ready());
    host.process("p").print("before ");
    const viewer = await ready();
    const result = await attach(viewer, handle, "viewer");
    assert.deepEqual(result, {
      processId: handle,
      handle,
      role: "viewer",
      argv: ["x"],
      cwd: "/tmp",
      tty: false,
      startedAtMs: 0,
      running: true,
      nextSeq: 2,
      driver: "attached",
    });
    host.process("p").print("after");
    await runViewers(host);
    await viewer.outputContains(handle, "before after");
    host.process("p").finish(3);
    await runViewers(host);
    assert.equal((await viewer.finished(handle)).exitCode, 3);
  });

  test("uses the process id and the start seq of the caller", async () => {
    const { host, ready, started } = setup();
    const handle = await started(await ready());
    host.process("p").print("one");
    host.process("p").print("two");
    const viewer = await ready();
    await attach(viewer, handle, "viewer", { processId: "mine", afterSeq: 1 });
    await runViewers(host);
    await viewer.outputContains("mine", "two");
    assert.equal(viewer.output("mine"), "two");
    const { chunks } = (await viewer.call("process/read", { processId: "mine" })) as { chunks: unknown[] };
    assert.equal(chunks.length, 2);
    assert.equal((await viewer.call("process/snapshot", { processId: "mine" })).handle, handle);
    const waited = viewer.call("process/wait", { processId: "mine" });
    host.process("p").finish();
    assert.equal((await waited).reason, "exited");
  });

  test("allows a viewer only to read", async () => {
    const { host, ready, started } = setup();
    const handle = await started(await ready());
    const viewer = await ready();
    await attach(viewer, handle, "viewer");
    const processId = handle;
    for (const [method, more] of [
      ["process/write", { chunk: "" }],
      ["process/closeStdin", {}],
      ["process/resize", { size: { rows: 1, cols: 1 } }],
      ["process/signal", { signal: "interrupt" }],
      ["process/terminate", {}],
    ] as const) {
      const { message } = await viewer.refused(method, { processId, ...more });
      assert.match(message, /attached to as a viewer, who may only read; attach to it as driver/, method);
    }
    assert.deepEqual(host.process("p").written, []);
    assert.deepEqual(host.process("p").signals, []);
  });

  test("allows a driver everything that the owner may do, and leaves the owner's rights unchanged", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const driver = await ready();
    await attach(driver, handle, "driver");
    await write(driver, handle, "d");
    await write(owner, "p", "o");
    await driver.call("process/signal", { processId: handle, signal: "SIGUSR1" });
    assert.deepEqual(host.process("p").written, ["d", "o"]);
    await driver.call("process/terminate", { processId: handle });
    assert.deepEqual(host.process("p").signals, ["SIGUSR1", "force"]);
    assert.equal((await driver.finished(handle)).exitCode, 137);
    assert.equal((await owner.finished("p")).exitCode, 137);
  });

  test("rejects the session's own process and a second id for one process", async () => {
    const { ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const own = await owner.refused("process/attach", { handle, role: "viewer" });
    assert.equal(own.message, `process ${handle} is this session's own, its process id is p`);
    const viewer = await ready();
    await attach(viewer, handle, "viewer", { processId: "a" });
    const second = await viewer.refused("process/attach", { handle, role: "viewer", processId: "b" });
    assert.equal(second.message, `process ${handle} is attached already, its process id is a`);
    await viewer.start("q", ["x"]);
    const other = await ready();
    const taken = String((await other.start("r", ["x"])).handle);
    const refused = await viewer.refused("process/attach", { handle: taken, role: "viewer", processId: "q" });
    assert.equal(refused.message, "process q already exists");
  });

  test("returns the same error for an unknown handle and for a handle of another principal", async () => {
    const { ready, started } = setup();
    const handle = await started(await ready({}, { id: "alice", role: "user" }));
    const bob = await ready({}, { id: "bob", role: "user" });
    for (const unknown of [handle, "abcdefghijkl", ""]) {
      const refused = { code: -32600, message: `unknown handle ${unknown}` };
      const attached = await bob.refused("process/attach", { handle: unknown, role: "viewer" });
      const killed = await bob.refused("process/kill", { handle: unknown });
      for (const { code, message } of [attached, killed])
        assert.deepEqual({ code, message: withoutGeneration(message) }, refused);
      assert.match(
        killed.message,
        /; this server is generation [0-9a-f]{8}-1, earlier generations left only their persistent processes$/,
      );
    }
    const operator = await ready({}, { id: "operator", role: "operator" });
    assert.equal((await attach(operator, handle, "driver")).role, "driver");
  });

  test("does not list the process in the attaching session", async () => {
    const { ready, started } = setup();
    const handle = await started(await ready());
    const viewer = await ready();
    await attach(viewer, handle, "viewer");
    assert.deepEqual(await viewer.call("process/list", {}), { processes: [] });
    const { processes } = await viewer.call("process/list", { allSessions: true });
    assert.equal((processes as unknown[]).length, 1);
  });

  test("changes nothing for a client without extensions", async () => {
    const { host, ready, connect } = setup();
    const plain = connect();
    await plain.handshake();
    await plain.start("p", ["x"]);
    const { processes } = await plain.call("process/list", {});
    const [listed] = processes as Record<string, unknown>[];
    assert.equal(listed?.lifetime, undefined);
    const driver = await ready();
    await attach(driver, String(listed?.handle), "driver");
    host.process("p").finish();
    await plain.finished("p");
    assert.deepEqual(
      plain.notificationsOf("p").map(({ method }) => method),
      ["process/exited", "process/closed"],
    );
  });

  test("frees the id on detach, even while input is pending", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const driver = await ready();
    const gate = Promise.withResolvers<void>();
    await attach(driver, await started(owner, "slow"), "driver", { processId: "p" });
    host.process("slow").writeGate = gate.promise;
    const waits = write(driver, "p", "1");
    const queued = write(driver, "p", "2");
    await driver.call("process/detach", { processId: "p" });
    await driver.start("p", ["x"]);
    assert.deepEqual((await write(driver, "p", "of the new one")).result, { status: "accepted" });
    gate.resolve();
    assert.deepEqual((await waits).result, { status: "accepted" });
    assert.deepEqual((await queued).result, { status: "unknownProcess" });
    assert.deepEqual(host.process("slow").written, ["1"]);
    assert.deepEqual(host.process("p").written, ["of the new one"]);
  });

  test("does not deliver input for the first process to another process with the same id", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const driver = await ready();
    const gate = Promise.withResolvers<void>();
    const other = await started(owner, "other");
    await attach(driver, await started(owner, "slow"), "driver", { processId: "p" });
    host.process("slow").writeGate = gate.promise;
    const waits = write(driver, "p", "1");
    const queued = write(driver, "p", "2");
    const resize = driver.request("process/resize", { processId: "p", size: { rows: 2, cols: 3 } });
    const close = driver.request("process/closeStdin", { processId: "p" });
    await driver.call("process/detach", { processId: "p" });
    await attach(driver, other, "driver", { processId: "p" });
    gate.resolve();
    assert.deepEqual((await waits).result, { status: "accepted" });
    assert.deepEqual((await queued).result, { status: "unknownProcess" });
    assert.equal((await resize).error?.message, "unknown process id p");
    assert.deepEqual((await close).result, { status: "unknownProcess" });
    assert.deepEqual(host.process("other").written, []);
    assert.deepEqual((await write(driver, "p", "3")).result, { status: "accepted" });
    assert.deepEqual(host.process("other").written, ["3"]);
  });
});

describe("the driver", () => {
  test("is unique: a new driver replaces the previous one, which is notified and becomes a viewer", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const [first, second] = [await ready(), await ready()];
    await attach(first, handle, "driver");
    await attach(second, handle, "driver");
    const changed = await first.notification("process/roleChanged", handle);
    assert.deepEqual(changed.params, {
      processId: handle,
      role: "viewer",
      reason: "another session has taken over as driver",
    });
    await first.refused("process/write", { processId: handle, chunk: "" });
    host.process("p").print("to both");
    await runViewers(host);
    await first.outputContains(handle, "to both");
    await second.outputContains(handle, "to both");
    await second.call("process/detach", { processId: handle });
    await owner.roundTrip();
    assert.deepEqual(roles(owner), ["attached", "attached", "none"]);
    assert.deepEqual(roles(second), []);
  });

  test("returns control by attaching as a viewer, and gets no notification of that change", async () => {
    const { ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const client = await ready();
    for (const role of ["viewer", "driver", "viewer"]) assert.equal((await attach(client, handle, role)).role, role);
    await client.refused("process/write", { processId: handle, chunk: "" });
    await owner.roundTrip();
    assert.deepEqual(roles(owner), ["attached", "none"]);
    assert.deepEqual(roles(client), []);
  });

  test("changes hundreds of times without lost or repeated output", async () => {
    const { host, ready, started } = setup({}, { retainedBytes: 100_000 });
    const handle = await started(await ready());
    const clients = [await ready(), await ready({ extensions: ["attach", "outputAck"] })];
    let printed = "";
    for (let round = 0; round < 300; round++) {
      const client = clients[round % 2];
      assert.ok(client);
      await attach(client, handle, "driver");
      host.process("p").print(`${round},`);
      printed += `${round},`;
      await runViewers(host);
    }
    host.process("p").finish();
    await runViewers(host);
    for (const client of clients) {
      await client.finished(handle);
      assert.equal(client.output(handle), printed);
      // Each replaced the other as driver; the last one keeps the role.
      assert.equal(roles(client).length, client === clients[1] ? 149 : 150);
    }
  });

  test("pauses the process when it does not read, unlike a viewer", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const process = host.process("p");
    const client = await ready();
    await attach(client, handle, "viewer");
    const confirmed = await ready({ extensions: ["attach", "outputAck"] });
    await attach(confirmed, handle, "viewer");
    for (let i = 0; i < 20; i++) process.print("x".repeat(40));
    await runViewers(host);
    assert.equal(process.paused, false);
    await attach(confirmed, handle, "driver");
    for (let i = 0; i < 5; i++) process.print("x".repeat(40));
    assert.equal(process.paused, true);
    // The former driver is a viewer now and pins nothing.
    await attach(client, handle, "driver");
    assert.equal(process.paused, false);
  });
});

describe("a slow viewer", () => {
  test("receives a gap for evicted output, then new output", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const viewer = await ready();
    await attach(viewer, handle, "viewer");
    // The scheduler does not run meanwhile.
    for (let i = 0; i < 10; i++) host.process("p").print(String(i).repeat(30));
    await owner.outputContains("p", "9");
    await runViewers(host);
    const { params } = await viewer.notification("process/gap", handle);
    assert.deepEqual(params, { processId: handle, fromSeq: 1, toSeq: 7, bytes: 210 });
    await viewer.outputContains(handle, "9");
    assert.equal(viewer.output(handle), "7".repeat(30) + "8".repeat(30) + "9".repeat(30));
    host.process("p").finish();
    await runViewers(host);
    assert.equal((await viewer.finished(handle)).exitCode, 0);
  });
});

describe("an attachment", () => {
  test("is suspended when the connection is lost and restored by a resume", async () => {
    const { host, ready, resume, started } = setup();
    const handle = await started(await ready());
    const first = await ready();
    await attach(first, handle, "driver", { processId: "mine" });
    await first.close();
    host.process("p").print("missed");
    const second = await resume(first);
    const { chunks } = (await second.call("process/read", { processId: "mine" })) as {
      chunks: { chunk: string }[];
    };
    assert.deepEqual(
      chunks.map(({ chunk }) => Buffer.from(chunk, "base64").toString()),
      ["missed"],
    );
    assert.equal((await write(second, "mine", "still driving")).result?.status, "accepted");
    host.process("p").print("live");
    await second.outputContains("mine", "live");
  });

  test("reports after a resume that another driver replaced it meanwhile", async () => {
    const { ready, resume, started } = setup();
    const handle = await started(await ready());
    const first = await ready();
    await attach(first, handle, "driver");
    await first.close();
    await attach(await ready(), handle, "driver");
    const again = await resume(first);
    assert.equal((await again.notification("process/roleChanged", handle)).params?.role, "viewer");
  });

  test("of a driver is reported to the owner after a resume if it began while the owner was detached", async () => {
    const { ready, resume, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    await owner.close();
    await attach(await ready(), handle, "driver");
    const again = await resume(owner);
    assert.equal((await again.notification("process/driverChanged", "p")).params?.driver, "attached");
  });

  test("ends with its session: the owner is notified, and no output stays pinned", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const driver = await ready();
    await attach(driver, handle, "driver");
    await driver.close();
    for (let i = 0; i < 20; i++) host.process("p").print("x".repeat(40));
    assert.equal(host.process("p").paused, true);
    await host.clock.advance(30_000);
    assert.equal(host.process("p").paused, false);
    await owner.roundTrip();
    assert.deepEqual(roles(owner), ["attached", "none"]);
  });

  test("ends on process/detach, which rejects the session's own and unknown processes", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const viewer = await ready();
    await attach(viewer, handle, "viewer");
    assert.deepEqual(await viewer.call("process/detach", { processId: handle }), {});
    host.process("p").print("not sent");
    await runViewers(host);
    await viewer.roundTrip();
    assert.deepEqual(viewer.notificationsOf(handle), []);
    assert.match((await viewer.refused("process/detach", { processId: handle })).message, /^unknown process id/);
    assert.match(
      (await owner.refused("process/detach", { processId: "p" })).message,
      /^process p is this session's own/,
    );
    await attach(viewer, handle, "viewer");
    await runViewers(host);
    await viewer.outputContains(handle, "not sent");
  });

  test("survives the owner's session and receives the end of the process", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner);
    const viewer = await ready();
    await attach(viewer, handle, "viewer");
    await owner.close();
    await host.clock.advance(30_000);
    await runViewers(host);
    const { exited } = await viewer.finished(handle);
    assert.equal(exited.reason, "sessionExpired");
    assert.equal((await attach(await ready(), handle, "viewer")).running, false);
    // Once the last session has released the process, its handle is unknown.
    await viewer.close();
    await host.clock.advance(60_000);
    const refused = await (await ready()).refused("process/attach", { handle, role: "viewer" });
    assert.equal(withoutGeneration(refused.message), `unknown handle ${handle}`);
  });

  test("of a detached viewer frees its id 30 s after the process ended", async () => {
    const { host, ready, resume, started } = setup({ detachedSessionTtlMs: 120_000 });
    const handle = await started(await ready());
    const [early, late] = await Promise.all([ready(), ready()]);
    for (const viewer of [early, late]) {
      await attach(viewer, handle, "viewer", { processId: "watched" });
      await viewer.close();
    }
    await runViewers(host);
    host.process("p").finish();
    await host.clock.advance(29_999);
    const inTime = await resume(early);
    assert.equal((await inTime.call("process/read", { processId: "watched" })).closed, true);
    await host.clock.advance(1);
    const tooLate = await resume(late);
    const { message } = await tooLate.refused("process/read", { processId: "watched" });
    assert.match(message, /^unknown process id watched/);
    await tooLate.start("watched", ["x"]);
  });

  test("to a process that has just ended sends all output and the end", async () => {
    const { host, ready, started } = setup();
    const handle = await started(await ready());
    host.process("p").print("all");
    host.process("p").finish(7);
    const viewer = await ready();
    assert.equal((await attach(viewer, handle, "viewer")).running, false);
    await runViewers(host);
    const { output, exitCode } = await viewer.finished(handle);
    assert.deepEqual([output, exitCode], ["all", 7]);
  });
});

describe("process/kill", () => {
  test("terminates or signals a process by handle, without an attachment", async () => {
    const { host, ready, started } = setup();
    const handle = await started(await ready());
    const other = await ready();
    assert.deepEqual(await other.call("process/kill", { handle, signal: "SIGUSR2" }), { running: true });
    const both = await other.refused("process/kill", { handle, signal: "SIGTERM", mode: { type: "force" } });
    assert.match(both.message, /^signal and mode are mutually exclusive$/);
    const mode = { type: "graceful", timeoutMs: 1 };
    assert.deepEqual(await other.call("process/kill", { handle, mode }), { running: true });
    assert.deepEqual(host.process("p").signals, ["SIGUSR2", "graceful"]);
    assert.deepEqual(await other.call("process/kill", { handle }), { running: false });
  });
});

describe("a process of lifetime `server`", () => {
  test("continues without backpressure when its session expires, and is found by its handle", async () => {
    const { host, server, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner, "p", { lifetime: "server" });
    await started(owner, "q");
    const listing = (await owner.call("process/list", {})).processes as { lifetime: string }[];
    assert.deepEqual(
      listing.map(({ lifetime }) => lifetime),
      ["server", "session"],
    );
    assert.equal((await owner.call("process/snapshot", { processId: "p" })).lifetime, "server");
    await owner.close();
    const process = host.process("p");
    for (let i = 0; i < 20; i++) process.print("x".repeat(40));
    assert.equal(process.paused, true);
    await host.clock.advance(30_000);
    assert.equal(server.sessionCount, 0);
    assert.equal(process.endedFor, null);
    assert.equal(host.process("q").endedFor, "sessionExpired");
    assert.equal(process.paused, false);

    const driver = await ready();
    const { processes } = await driver.call("process/list", { allSessions: true });
    assert.deepEqual(
      (processes as { handle: string }[]).map((one) => one.handle),
      [handle],
    );
    await attach(driver, handle, "driver");
    await driver.notification("process/gap", handle);
    await write(driver, handle, "hello");
    assert.deepEqual(process.written, ["hello"]);
  });

  test("can be read for ten minutes after its end, even if its session removed it before", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    const handle = await started(owner, "p", { lifetime: "server" });
    host.process("p").print("last words");
    host.process("p").finish(4);
    await owner.finished("p");
    await host.clock.advance(EXITED_BACKGROUND_TTL_MS);
    const viewer = await ready();
    await attach(viewer, handle, "viewer");
    await runViewers(host);
    assert.equal((await viewer.finished(handle)).output, "last words");
    await viewer.call("process/detach", { processId: handle });
    await host.clock.advance(30_000);
    assert.equal(
      withoutGeneration((await viewer.refused("process/attach", { handle, role: "viewer" })).message),
      `unknown handle ${handle}`,
    );
  });

  test("is retained after its end up to a maximum number, the oldest removed first", async () => {
    const { host, ready, started } = setup({ detachedSessionTtlMs: 0 });
    const owner = await ready();
    const handles: string[] = [];
    for (let i = 0; i <= MAX_EXITED_BACKGROUND; i++)
      handles.push(await started(owner, `p${i}`, { lifetime: "server" }));
    await owner.close();
    for (let i = 0; i <= MAX_EXITED_BACKGROUND; i++) host.process(`p${i}`).finish();
    const viewer = await ready();
    await viewer.refused("process/attach", { handle: handles[0], role: "viewer" });
    for (const handle of handles.slice(1)) await attach(viewer, handle, "viewer");
  });

  test("still belongs to its principal when its session has ended", async () => {
    const { ready, started } = setup({ detachedSessionTtlMs: 0 });
    const alice = await ready({}, { id: "alice", role: "user" });
    const handle = await started(alice, "p", { lifetime: "server" });
    await alice.close();
    const bob = await ready({}, { id: "bob", role: "user" });
    assert.deepEqual(await bob.call("process/list", { allSessions: true }), { processes: [] });
    await bob.refused("process/attach", { handle, role: "viewer" });
    const operator = await ready({}, { id: "operator", role: "operator" });
    const { processes } = await operator.call("process/list", { allSessions: true });
    assert.equal((processes as { principal: string }[])[0]?.principal, "alice");
  });

  test("is released when the server stops", async () => {
    const { host, server, ready, started } = setup({ detachedSessionTtlMs: 0 });
    const owner = await ready();
    await started(owner, "p", { lifetime: "server" });
    await owner.close();
    await server.close();
    assert.notEqual(host.process("p").log.exit, null);
    assert.equal(host.clock.pendingTimers, 0);
  });

  test("lives longest on a server without --supervised, which rejects `persistent`", async () => {
    const { ready } = setup();
    const client = await ready();
    assert.deepEqual(await client.refused("process/start", startParams("p", ["x"], { lifetime: "persistent" })), {
      code: -32602,
      message: 'lifetime "persistent" is not available: this server runs without --supervised',
    });
  });
});

describe("terminal queries", () => {
  const responderStates = async (more: Record<string, unknown>) => {
    const { host, ready, started } = setup();
    const handle = await started(await ready(), "p", { tty: true, ...more });
    const states: boolean[] = [];
    const check = () => states.push(host.process("p").answersQueries);
    check();
    const [driver, viewer] = [await ready(), await ready()];
    await attach(viewer, handle, "viewer");
    check();
    await attach(driver, handle, "driver");
    check();
    await attach(viewer, handle, "driver");
    check();
    await viewer.call("process/detach", { processId: handle });
    check();
    return states;
  };

  test("get a reply from the server only while the process has a driver, by default", async () => {
    assert.deepEqual(await responderStates({}), [false, false, true, true, false]);
  });

  test("get no reply from the server with terminalQueries `client`, whichever session drives", async () => {
    assert.deepEqual(await responderStates({ terminalQueries: "client" }), Array(5).fill(false));
  });
});

describe("input history", () => {
  const OFF: TtyState = { rows: 24, cols: 80, echo: false, canonical: true };
  const ON: TtyState = { ...OFF, echo: true };
  const inputs = async (client: WireClient, processId: string) =>
    (await client.call("process/inputs", { processId })) as {
      inputs: Record<string, unknown>[];
      omitted: number;
    };

  test("contains writer, time and size of input, but not its bytes", async () => {
    const { host, ready, started } = setup();
    const owner = await ready({ clientName: "model" });
    const handle = await started(owner);
    await write(owner, "p", "ls\n");
    await host.clock.advance(400);
    await write(owner, "p", "pwd\n");
    const driver = await ready({ clientName: "user" });
    await attach(driver, handle, "driver");
    host.process("p").tty = OFF;
    await write(driver, handle, "hunter2\n");
    host.process("p").tty = ON;
    await host.clock.advance(5000);
    await write(driver, handle, "exit\n");
    const common = { principal: "local", writes: 1 };
    const [model, user] = [
      { ...common, role: "owner", client: "model" },
      { ...common, role: "driver", client: "user" },
    ];
    const history = await inputs(driver, handle);
    const sessions = new Set(history.inputs.map(({ session }) => session));
    assert.equal(sessions.size, 2);
    assert.deepEqual(
      history.inputs.map(({ session: _, ...rest }) => rest),
      [
        { ...model, fromMs: 0, toMs: 400, bytes: 7, writes: 2, echo: true },
        { ...user, fromMs: 400, toMs: 400, bytes: 8, echo: false },
        { ...user, fromMs: 5400, toMs: 5400, bytes: 5, echo: true },
      ],
    );
    assert.deepEqual(await inputs(owner, "p"), history);
  });

  test("counts a repeated write once", async () => {
    const { ready, started } = setup();
    const owner = await ready();
    await started(owner);
    const chunk = Buffer.from("x").toString("base64");
    for (let i = 0; i < 2; i++) await owner.call("process/write", { processId: "p", chunk, writeId: "w1" });
    assert.equal((await inputs(owner, "p")).inputs[0]?.writes, 1);
  });

  test("contains the bytes of echoed input if the owner enabled recording", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    await started(owner, "p", { recordInput: true });
    host.process("p").tty = ON;
    await write(owner, "p", "login\n");
    host.process("p").tty = OFF;
    await write(owner, "p", "hunter2\n");
    host.process("p").tty = ON;
    await write(owner, "p", "done\n");
    const recorded = (await inputs(owner, "p")).inputs.map(
      ({ chunk }) => chunk && Buffer.from(String(chunk), "base64").toString(),
    );
    assert.deepEqual(recorded, ["login\n", undefined, "done\n"]);
  });

  test("is bounded and reports the number of removed entries", async () => {
    const { host, ready, started } = setup();
    const owner = await ready();
    await started(owner);
    for (let i = 0; i < 1010; i++) {
      await write(owner, "p", "k");
      await host.clock.advance(1000);
    }
    const { inputs: entries, omitted } = await inputs(owner, "p");
    assert.deepEqual([entries.length, omitted], [1000, 10]);
  });

  test("is visible only to its principal", async () => {
    const { ready, started } = setup();
    const handle = await started(await ready());
    const stranger = await ready({}, { id: "other", role: "user" });
    const refused = await stranger.request("process/tree", { handle });
    assert.match(JSON.stringify(refused.error), /unknown handle/);
    assert.match(
      JSON.stringify((await stranger.request("process/inputs", { processId: handle })).error),
      /unknown process id/,
    );
  });
});
