/** Sessions with fake connections: direct input, restored processes, the end of a session. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { RestoredProcess } from "../../../src/exec/backend/persistent-process.ts";
import { isLive, onceEnded } from "../../../src/exec/backend/process-state.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { LOCAL_PRINCIPAL, type Principal } from "../../../src/server/auth/principal.ts";
import { MAX_EXITED_BACKGROUND } from "../../../src/server/server-config.ts";
import type { Session } from "../../../src/server/session/session.ts";
import { FakeProcess } from "../../support/servers/fake-host.ts";
import { type FakeClient, fakeClient, fakeSessions } from "../../support/servers/fake-sessions.ts";

const PARAMS = { processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false };
const INPUT = {};

describe("direct input of a session", () => {
  async function setup() {
    const sessions = fakeSessions();
    const client = fakeClient();
    const session = sessions.open(client);
    const process = new FakeProcess(PARAMS, sessions.host.clock, {});
    process.directInput = INPUT;
    sessions.host.backend.start = async () => process;
    return { ...sessions, client, session, process };
  }
  const isDirect = ({ peer }: FakeClient) => peer.routes.get("p") === INPUT;

  test("is enabled when the handshake is complete and the process has started", async () => {
    const { client, session } = await setup();
    await session.start(PARAMS);
    assert.equal(isDirect(client), false);
    session.ready(client);
    assert.equal(isDirect(client), true);
    const later = await setup();
    later.session.ready(later.client);
    await later.session.start(PARAMS);
    assert.equal(isDirect(later.client), true);
  });

  test("moves to the connection that resumes the session, after its handshake", async () => {
    const { client, session } = await setup();
    session.ready(client);
    await session.start(PARAMS);
    const second = fakeClient();
    session.attach(second, "same");
    assert.deepEqual([isDirect(client), isDirect(second)], [false, false]);
    session.ready(client);
    assert.equal(isDirect(client), false, "the session has another connection");
    session.ready(second);
    assert.equal(isDirect(second), true);
    session.detach(client);
    assert.equal(isDirect(second), true, "a former connection was lost");
    session.detach(second);
    assert.equal(isDirect(second), false);
  });

  test("pauses while another session is attached, and continues when the last one has left", async () => {
    const { client, session, open } = await setup();
    session.ready(client);
    await session.start(PARAMS);
    const { shared } = await session.getProcess("p");
    const viewers = [open(fakeClient()), open(fakeClient())];
    for (const viewer of viewers) {
      viewer.attachProcess(shared, { role: "viewer", processId: "seen" });
      assert.equal(isDirect(client), false);
    }
    viewers[0]?.detachProcess("seen");
    assert.equal(isDirect(client), false);
    viewers[1]?.detachProcess("seen");
    assert.equal(isDirect(client), true);
  });

  test("is enabled for a process without a terminal, whatever its terminal queries", async () => {
    const { client, session } = await setup();
    session.ready(client);
    await session.start({ ...PARAMS, terminalQueries: "client" });
    assert.equal(isDirect(client), true);
  });

  test("ends with the session", async () => {
    const { client, session } = await setup();
    session.ready(client);
    await session.start(PARAMS);
    session.end();
    assert.equal(isDirect(client), false);
  });

  test("ends when another session attaches", async () => {
    const { client, session, open } = await setup();
    session.ready(client);
    await session.start(PARAMS);
    const { shared } = await session.getProcess("p");
    open(fakeClient()).attachProcess(shared, { role: "viewer" });
    assert.equal(isDirect(client), false);
  });

  test("ends when the process is removed", async () => {
    const { client, session, host, process } = await setup();
    session.ready(client);
    (await session.start(PARAMS)).begin();
    process.finish();
    await host.clock.advance(29_999);
    assert.equal(isDirect(client), true, "descendants may still read");
    await host.clock.advance(1);
    assert.equal(isDirect(client), false);
  });

  test("is not enabled for a process that an attached session writes to", async () => {
    const { session, open } = await setup();
    await session.start(PARAMS);
    const { shared } = await session.getProcess("p");
    const driver = fakeClient();
    const attached = open(driver);
    attached.ready(driver);
    attached.attachProcess(shared, { role: "driver", processId: "p" });
    await attached.input.write("p", Buffer.from("x"), undefined);
    assert.equal(isDirect(driver), false);
  });
});

describe("a restored session", () => {
  const OWNER = { sessionId: "s", ownerId: LOCAL_PRINCIPAL.id, handle: "k3v7" };

  function setup(
    restored: Partial<Omit<RestoredProcess, "process" | "owner" | "attachments">> = {},
    prepare: (process: FakeProcess) => void = () => undefined,
    config: { maxProcesses?: number; detachedSessionTtlMs?: number } = {},
  ) {
    const sessions = fakeSessions(config);
    const { host, registry } = sessions;
    const { terminalQueries } = restored;
    const process = new FakeProcess(
      { ...PARAMS, tty: terminalQueries !== undefined, lifetime: "persistent" },
      host.clock,
      {
        retainedBytes: 100,
      },
    );
    prepare(process);
    registry.restore({ process, owner: OWNER, isReleased: false, attachments: 3, ...restored });
    const resume = (client: FakeClient, attachmentId = "3"): Session =>
      registry.resume("s", LOCAL_PRINCIPAL, client, { type: "own", attachmentId });
    return { ...sessions, process, record: process.persistent, resume };
  }

  test("is resumed by its last client of the previous server", async () => {
    const { process, handles, resume } = setup();
    assert.throws(() => resume(fakeClient(), "2"), { code: -32010 });
    const client = fakeClient();
    const session = resume(client);
    assert.equal(session.attachmentId, "3");
    process.print("x");
    assert.deepEqual(client.peer.methods, ["output"]);
    assert.equal(handles.find("k3v7")?.process, process);
  });

  test("is the sandbox scope of its restored process and of its later starts", async () => {
    const scopes: (object | undefined)[] = [];
    const { host, process, resume } = setup({ joinSandboxScope: (scope) => scopes.push(scope) });
    host.backend.start = async ({ sandboxScope }) => {
      scopes.push(sandboxScope);
      return process;
    };
    const session = resume(fakeClient());
    await session.start({ ...PARAMS, processId: "q" });
    assert.deepEqual([scopes.length, scopes[0] === session, scopes[1] === session], [2, true, true]);
  });

  test("pins output and replies to terminal queries until its client resumes it", () => {
    const { process, resume } = setup({ terminalQueries: "claimed" });
    assert.equal(process.answersQueries, true);
    process.print("x".repeat(150));
    assert.equal(process.log.read().gap, undefined);
    resume(fakeClient());
    assert.equal(process.answersQueries, false);
  });

  test("enables direct input after the handshake of its client", () => {
    const { resume } = setup({}, (process) => {
      process.directInput = INPUT;
    });
    const client = fakeClient();
    resume(client).ready(client);
    assert.equal(client.peer.routes.get("p"), INPUT);
  });

  test("records input only if the start requested it", async () => {
    for (const [recordInput, bytes] of [
      [undefined, undefined],
      [true, 1],
    ] as const) {
      const { resume } = setup({ ...(recordInput && { recordInput }) });
      const session = resume(fakeClient());
      await session.input.write("p", Buffer.from("x"), undefined);
      const [input] = (await session.getProcess("p")).shared.inputs().inputs;
      assert.equal(input?.chunk?.length, bytes);
    }
  });

  test("names the generation in the error for an unknown process, for clients with extensions only", async () => {
    const { resume, open } = setup();
    await assert.rejects(resume(fakeClient()).getProcess("q"), { message: "unknown process id q" });
    await assert.rejects(resume(fakeClient("attach")).getProcess("q"), {
      message: /^unknown process id q; this server is generation 8f2c11d0-1/,
    });
    await assert.rejects(open(fakeClient("attach")).getProcess("q"), { message: "unknown process id q" });
  });

  test("counts its processes against the limit", async () => {
    const { resume } = setup({}, undefined, { maxProcesses: 1 });
    await assert.rejects(resume(fakeClient()).start({ ...PARAMS, processId: "q" }), /too many processes/);
  });

  test("removes a process that closed under the previous server after 30 s", async () => {
    const { host, background, resume } = setup({}, (process) => process.finish(), {
      detachedSessionTtlMs: 120_000,
    });
    await host.clock.advance(29_999);
    assert.equal(background.all().length, 0);
    await host.clock.advance(1);
    assert.equal(resume(fakeClient()).findStarted("p"), null);
    assert.equal(background.all().length, 1);
  });

  test("expires like every detached session, and its process becomes a background process", async () => {
    const { host, registry, background, record } = setup();
    assert.equal(registry.size, 1);
    await host.clock.advance(30_000);
    assert.equal(registry.size, 0);
    assert.equal(background.all().length, 1);
    assert.deepEqual(record?.saved, [{ isReleased: true, attachments: 3 }]);
  });

  test("does not exist for a process that its session had released", () => {
    const { registry, background, process, handles } = setup({ isReleased: true });
    assert.equal(registry.size, 0);
    assert.deepEqual(
      background.all().map((shared) => shared.process),
      [process],
    );
    assert.ok(handles.find("k3v7"));
  });

  test("contains all its processes", () => {
    const { host, registry, resume } = setup();
    const second = new FakeProcess({ ...PARAMS, processId: "q" }, host.clock, {});
    const owner = { ...OWNER, handle: "other" };
    registry.restore({ process: second, owner, isReleased: false, attachments: 1 });
    assert.equal(registry.size, 1);
    assert.deepEqual(
      resume(fakeClient())
        .ownProcesses()
        .map(({ process, handle, lifetime }) => [process.processId, handle, lifetime]),
      [
        ["p", "k3v7", "persistent"],
        ["q", "other", "persistent"],
      ],
    );
  });
});

describe("the record of a persistent process", () => {
  test("contains the number of clients and whether the process is released, and is removed with the last reference", async () => {
    const { host, open, start, registry } = fakeSessions();
    const session = open(fakeClient());
    const process = await start(session, "p", { lifetime: "persistent" });
    const other = await start(session, "other", { lifetime: "server" });
    assert.equal(other.persistent, null);
    const { persistent: record } = process;
    assert.deepEqual(record?.saved, [{ isReleased: false, attachments: 1 }]);
    registry.resume(session.id, LOCAL_PRINCIPAL, fakeClient(), { type: "own", attachmentId: "1" });
    assert.equal(record?.saved.length, 1, "the same client");
    registry.resume(session.id, LOCAL_PRINCIPAL, fakeClient(), { type: "always" });
    assert.deepEqual(record?.saved[1], { isReleased: false, attachments: 2 });
    session.detachProcess("p");
    assert.deepEqual(record?.saved[2], { isReleased: true, attachments: 2 });
    assert.equal(record?.isRemoved, false);
    process.finish();
    await host.clock.advance(600_000);
    assert.equal(record?.isRemoved, true);
  });
});

describe("the end of a session", () => {
  test("resolves `ended`, closes its listeners and cancels its timers", async () => {
    const { host, open, start, registry } = fakeSessions();
    const client = fakeClient();
    const session = open(client);
    (await start(session)).finish();
    let isListenerClosed = false;
    await session.listeners.listen("l", async () => ({
      port: 1,
      close: () => {
        isListenerClosed = true;
      },
    }));
    assert.equal(host.clock.pendingTimers, 1);
    session.detach(client);
    session.end();
    assert.equal(await session.ended.then(() => "ended"), "ended");
    assert.deepEqual([isListenerClosed, registry.size, host.clock.pendingTimers], [true, 0, 0]);
    session.end();
    assert.deepEqual(host.process("p").endReasons, ["sessionExpired"]);
  });

  test("ends a process whose start is pending, once it has started", async () => {
    const { host, open, start } = fakeSessions();
    const gate = Promise.withResolvers<void>();
    host.startGate = gate.promise;
    const session = open(fakeClient());
    const [own, background] = [start(session), start(session, "q", { lifetime: "server" })];
    session.end();
    gate.resolve();
    assert.deepEqual((await own).endReasons, ["sessionExpired"]);
    assert.deepEqual((await background).endReasons, []);
  });

  test("ends the descendants of processes that it has removed, but not those of attached processes", async () => {
    const { host, open, start, shared } = fakeSessions();
    const owner = open(fakeClient());
    const viewer = open(fakeClient());
    const names = ["with", "without", "background"];
    for (const name of names) {
      const process = await start(owner, name, { lifetime: name === "background" ? "server" : "session" });
      process.hasOrphans = name !== "without";
      viewer.attachProcess(await shared(owner, name), { role: "viewer" }).begin();
      process.finish();
    }
    await host.clock.advance(60_000);
    const reasons = () => names.map((name) => host.process(name).endReasons.length);
    assert.deepEqual(reasons(), [0, 1, 0], "a process without visible descendants is killed at once");
    viewer.end();
    assert.deepEqual(reasons(), [0, 1, 0]);
    owner.end();
    assert.deepEqual(reasons(), [1, 1, 0]);
  });

  test("does not end a removed process again that a later removal has ended", async () => {
    const { host, open, start } = fakeSessions();
    const owner = open(fakeClient());
    for (const name of ["first", "second"]) {
      const process = await start(owner, name);
      process.hasOrphans = name === "first";
      process.finish();
      await host.clock.advance(30_000);
      host.process("first").hasOrphans = false;
    }
    assert.deepEqual(host.process("first").endReasons, ["sessionExpired"]);
    owner.end();
    assert.deepEqual(host.process("first").endReasons, ["sessionExpired"]);
  });
});

describe("SessionInput", () => {
  const CHUNK = Buffer.from("x");

  test("records the bytes of input only if the kernel has accepted them", async () => {
    const { open, start, shared } = fakeSessions();
    const session = open(fakeClient());
    const process = await start(session, "p", { recordInput: true });
    process.writeRaw = async () => ({ status: "accepted" });
    await session.input.write("p", CHUNK, undefined);
    const { inputs } = (await shared(session)).inputs();
    assert.deepEqual([inputs.length, inputs[0]?.bytes, inputs[0]?.chunk], [1, 1, undefined]);
  });

  test("does not record bytes if the terminal disabled its echo before or during the write", async () => {
    const { open, start, shared } = fakeSessions();
    const session = open(fakeClient());
    const process = await start(session, "p", { recordInput: true });
    const [on, off] = [true, false].map((echo) => ({ rows: 24, cols: 80, echo, canonical: true }));
    for (const states of [
      [on, on],
      [on, off],
      [off, on],
    ]) {
      process.ttyState = () => states.shift() ?? null;
      await session.input.write("p", CHUNK, undefined);
    }
    assert.deepEqual(
      (await shared(session)).inputs().inputs.map(({ echo, chunk, writes }) => [echo, chunk?.length, writes]),
      [
        [true, 1, 1],
        [false, undefined, 2],
      ],
    );
  });

  test("leaves rejected and repeated input out of the input history", async () => {
    const { open, start, shared } = fakeSessions();
    const session = open(fakeClient());
    const process = await start(session);
    process.writeRaw = async () => ({ status: "stdinClosed" });
    assert.deepEqual(await session.input.write("p", CHUNK, undefined), { status: "stdinClosed" });
    process.writeRaw = async () => ({ status: "accepted", isDuplicate: true });
    assert.deepEqual(await session.input.write("p", CHUNK, "w1"), { status: "accepted" });
    assert.deepEqual((await shared(session)).inputs(), { inputs: [], omitted: 0 });
  });
});

describe("a failed start", () => {
  test("frees its process id, and pending input gets `unknownProcess`", async () => {
    const { host, open, start } = fakeSessions();
    const session = open(fakeClient());
    const failed = Promise.withResolvers<void>();
    host.startGate = failed.promise;
    const started = session.start(PARAMS);
    const written = session.input.write("p", Buffer.from("x"), undefined);
    failed.reject(new Error("no such file"));
    await assert.rejects(started, /no such file/);
    assert.deepEqual(await written, { status: "unknownProcess" });
    host.startGate = null;
    await start(session);
    assert.deepEqual(await session.input.write("p", Buffer.from("x"), undefined), { status: "accepted" });
  });
});

describe("SessionRegistry", () => {
  const ALICE: Principal = { id: "alice", role: "user" };
  const OPERATOR: Principal = { id: "operator", role: "operator" };

  test("numbers its sessions and lists the processes that a principal may see", async () => {
    const { registry, start, handles } = fakeSessions();
    const [alice, other] = [registry.open(ALICE, fakeClient()), registry.open(LOCAL_PRINCIPAL, fakeClient())];
    assert.deepEqual([alice.number, other.number, registry.generation], [1, 2, "8f2c11d0-1"]);
    await start(alice, "a");
    await start(other, "b");
    assert.deepEqual(
      registry.listAll(ALICE).map(({ processId, principal }) => [processId, principal]),
      [["a", "alice"]],
    );
    assert.deepEqual(
      registry.listAll(OPERATOR).map(({ processId, principal }) => [processId, principal]),
      [
        ["a", "alice"],
        ["b", "local"],
      ],
    );
    const { handle } = await alice.getProcess("a");
    const grant = { role: "viewer", expiresAtMs: 1, createdBy: "alice" } as const;
    const guest: Principal = { id: "share:1", role: "user", share: { handle, ...grant } };
    assert.deepEqual(
      registry.listAll(guest).map(({ processId }) => processId),
      ["a"],
    );
    assert.equal(registry.findProcess(handle, guest, false), handles.find(handle));
    const { handle: hidden } = await other.getProcess("b");
    assert.throws(() => registry.findProcess(hidden, guest, false), { message: `unknown handle ${hidden}` });
    const unknown: Principal = { ...guest, share: { handle: "unknown", ...grant } };
    assert.deepEqual(registry.listAll(unknown), []);
    assert.throws(() => registry.findProcess("unknown", unknown, true), /^RequestError: unknown handle unknown; /);
  });

  test("closes the former connection of a resumed session with the reason", () => {
    const { registry } = fakeSessions();
    const [first, second, third] = [fakeClient(), fakeClient(), fakeClient()];
    const { id } = registry.open(ALICE, first);
    const own = { type: "own", attachmentId: "1" } as const;
    assert.equal(registry.resume(id, ALICE, second, own).client, second);
    assert.equal(first.peer.closeReason, "session was resumed on another connection of its client");
    assert.throws(() => registry.resume(id, ALICE, third, { type: "detached" }), /is already attached/);
    assert.equal(registry.resume(id, OPERATOR, third, { type: "always" }).attachmentId, "2");
    assert.match(String(second.peer.closeReason), /^session (?!was resumed)/);
    assert.throws(() => registry.resume(id, ALICE, second, own), { code: -32010 });
    assert.throws(() => registry.resume(id, LOCAL_PRINCIPAL, second, { type: "always" }), {
      message: `unknown session id ${id}`,
    });
  });

  test("ends all sessions and releases all background processes on close", async () => {
    const { host, registry, background, open, start, handles } = fakeSessions();
    const session = open(fakeClient());
    const [live, exited] = [
      await start(session, "live", { lifetime: "server" }),
      await start(session, "exited", { lifetime: "server" }),
    ];
    const own = await start(session);
    const found = session.ownProcesses().map(({ handle }) => handle);
    session.detachProcess("live");
    session.detachProcess("exited");
    exited.finish();
    assert.equal(background.all().length, 2);
    registry.closeAll();
    assert.deepEqual([registry.size, background.all().length, host.clock.pendingTimers], [0, 0, 0]);
    assert.deepEqual([live.endReasons, own.endReasons], [[], ["sessionExpired"]]);
    live.finish();
    assert.equal(host.clock.pendingTimers, 0);
    assert.deepEqual(
      found.map((handle) => handles.find(handle)),
      [null, null, null],
    );
  });
});

describe("BackgroundProcesses", () => {
  test("lists exited processes before live ones, and removes the oldest above the maximum", async () => {
    const { host, background, open, start } = fakeSessions({ maxProcesses: 1000 });
    const session = open(fakeClient());
    const names = Array.from({ length: MAX_EXITED_BACKGROUND + 2 }, (_, at) => `p${at}`);
    for (const name of names) await start(session, name, { lifetime: "server" });
    session.end();
    for (const name of names.slice(1, -1)) host.process(name).finish();
    const all = () => background.all().map(({ process }) => process.processId);
    assert.deepEqual(all(), [...names.slice(1, -1), "p0", names.at(-1)]);
    host.process("p0").finish();
    assert.deepEqual(all(), [...names.slice(2, -1), "p0", names.at(-1)]);
    await host.clock.advance(600_000);
    assert.deepEqual(all(), [names.at(-1)]);
  });
});

describe("process state", () => {
  const processes = fakeSessions().host;
  const create = () => new FakeProcess(PARAMS, processes.clock, {});

  test("is live until the exit, the close or the failure of a process", () => {
    const [exited, closed, failed] = [create(), create(), create()];
    for (const process of [exited, closed, failed]) assert.equal(isLive(process), true);
    exited.exit();
    closed.log.closed();
    failed.log.fail(new ExecServerError("its reader broke", "FAILED"));
    for (const process of [exited, closed, failed]) assert.equal(isLive(process), false);
  });

  test("calls a listener once at the end, or at once if the process has ended", () => {
    const process = create();
    let calls = 0;
    onceEnded(process, () => calls++);
    process.print("x");
    assert.equal(calls, 0);
    process.finish();
    assert.equal(calls, 1);
    onceEnded(process, () => calls++);
    assert.equal(calls, 2);
  });
});
