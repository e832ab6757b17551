import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import type { Session } from "../../../src/server/session/session.ts";
import { type FakeClient, fakeClient, fakeSessions } from "../../support/servers/fake-sessions.ts";

const CONTEXT = {
  afterResponse: (task: () => void) => task(),
  reserveResponseBytes: async () => undefined,
  chargeResponseBytes: async () => undefined,
  disconnected: new AbortController().signal,
};

/** Reads up to `maxBytes` after `afterSeq`, as `process/read` does. */
const read = async (session: Session, afterSeq: number, maxBytes?: number) =>
  (await session.getProcess("p")).read({ afterSeq, maxBytes }, CONTEXT);

function print(process: { print(text: string): void }, count: number, text = "0123456789"): void {
  for (let n = 0; n < count; n++) process.print(text);
}

const outputSeqs = ({ peer }: FakeClient) =>
  peer.notifications.flatMap((one) => (one.method === "process/output" ? [one.params.seq] : []));

describe("SessionProcess: a start that completes after the connection was lost", () => {
  async function startDetached(...extensions: "outputAck"[]) {
    const sessions = fakeSessions();
    const gate = Promise.withResolvers<void>();
    sessions.host.startGate = gate.promise;
    const first = fakeClient(...extensions);
    const session = sessions.open(first);
    const started = sessions.start(session);
    session.detach(first);
    gate.resolve();
    return { ...sessions, session, process: await started };
  }

  test("pins all output, up to twice the retention", async () => {
    const { session, process } = await startDetached();
    print(process, 19);
    assert.equal(process.paused, false);
    print(process, 1);
    assert.equal(process.paused, true);
    session.attach(fakeClient(), "same");
    assert.equal((await read(session, 0)).gap, undefined);
  });

  test("pins unacknowledged output if the lost connection had acknowledgements", async () => {
    const { session, process } = await startDetached("outputAck");
    print(process, 11);
    assert.equal(process.paused, true);
    session.attach(fakeClient("outputAck"), "same");
    session.findStarted("p")?.acknowledge(11);
    assert.equal(process.paused, false);
  });
});

describe("SessionProcess: an attachment that begins after the connection was lost", () => {
  test("pins unacknowledged output of a driver that had acknowledgements", async () => {
    const { open, start, shared } = fakeSessions();
    const owner = open(fakeClient());
    const process = await start(owner);
    const client = fakeClient("outputAck");
    const driver = open(client);
    const { begin } = driver.attachProcess(await shared(owner), { role: "driver", processId: "d" });
    driver.detach(client);
    begin();
    print(process, 11);
    assert.equal(process.paused, true);
    driver.attach(fakeClient("outputAck"), "same");
    driver.findStarted("d")?.acknowledge(11);
    assert.equal(process.paused, false);
  });
});

describe("SessionProcess: a resume", () => {
  test("without missed output sends all new output at once", async () => {
    const { open, start } = fakeSessions();
    const first = fakeClient();
    const session = open(first);
    const process = await start(session);
    session.detach(first);
    const second = fakeClient();
    session.attach(second, "same");
    print(process, 300, ".");
    assert.equal(outputSeqs(second).length, 300);
  });

  test("pins output from the oldest retained chunk, not from the start of the process", async () => {
    const { open, start } = fakeSessions();
    const first = fakeClient();
    const session = open(first);
    const process = await start(session);
    print(process, 15);
    session.detach(first);
    print(process, 9);
    assert.equal(process.paused, false);
    print(process, 1);
    assert.equal(process.paused, true);
    session.attach(fakeClient(), "same");
    const { gap, chunks } = await read(session, 0);
    assert.deepEqual([gap?.toSeq, chunks.length], [5, 20]);
  });

  test("releases each page of the missed output that the client has read", async () => {
    const { open, start } = fakeSessions();
    const first = fakeClient();
    const session = open(first);
    const process = await start(session);
    session.detach(first);
    print(process, 20);
    session.attach(fakeClient(), "same");
    await read(session, 0, 50);
    assert.equal(process.paused, true, "the client may not have received the page");
    await read(session, 5, 50);
    assert.equal(process.paused, false);
    // The last chunk is still missing.
    await read(session, 10, 90);
    print(process, 10);
    assert.equal((await read(session, 19)).gap, undefined);
    print(process, 20);
    assert.deepEqual((await read(session, 19)).gap?.fromSeq, 20);
  });

  test("extends the time to read missed output with each page", async () => {
    const { host, open, start } = fakeSessions();
    const first = fakeClient();
    const session = open(first);
    const process = await start(session);
    session.detach(first);
    print(process, 18);
    session.attach(fakeClient(), "same");
    await host.clock.advance(9_000);
    await read(session, 0, 10);
    await host.clock.advance(9_000);
    print(process, 1);
    assert.equal((await read(session, 1, 10)).gap, undefined);
    await host.clock.advance(10_000);
    print(process, 1);
    assert.equal((await read(session, 2, 10)).gap?.fromSeq, 3);
  });

  test("starts the time to read missed output again after another lost connection", async () => {
    const { host, open, start } = fakeSessions();
    const [first, second, third] = [fakeClient(), fakeClient(), fakeClient()];
    const session = open(first);
    const process = await start(session);
    session.detach(first);
    print(process, 18);
    session.attach(second, "same");
    await host.clock.advance(6_000);
    session.detach(second);
    session.attach(third, "same");
    await host.clock.advance(6_000);
    print(process, 1);
    assert.equal((await read(session, 0, 10)).gap, undefined);
  });

  test("pins no missed output with --on-detach evict after the connection is lost again", async () => {
    const { open, start } = fakeSessions({ onDetach: "evict" });
    const [first, second] = [fakeClient(), fakeClient()];
    const session = open(first);
    const process = await start(session);
    session.detach(first);
    print(process, 10);
    session.attach(second, "same");
    session.detach(second);
    print(process, 30);
    assert.equal(process.paused, false);
    assert.equal(process.log.retainedBytes, 100);
  });

  test("sends the terminal sizes again, to clients with `attach` only", async () => {
    const { open, start } = fakeSessions();
    const [first, second, third] = [fakeClient("attach"), fakeClient("attach"), fakeClient("started")];
    const session = open(first);
    const process = await start(session, "p", { tty: true });
    await process.resize({ rows: 1, cols: 2 });
    assert.deepEqual(first.peer.methods, ["resized", "resized"], "the first size and the change");
    session.attach(second, "same");
    assert.deepEqual(second.peer.methods, ["resized"]);
    session.attach(third, "same");
    assert.deepEqual(third.peer.methods, []);
  });
});

describe("SessionProcess: terminal sizes", () => {
  test("are merged while the peer is above its queue limit", async () => {
    const { open, start } = fakeSessions();
    const client = fakeClient("attach");
    const process = await start(open(client), "p", { tty: true });
    const before = client.peer.listeners.size;
    client.peer.isAboveQueueLimit = true;
    for (const rows of [10, 20, 30]) await process.resize({ rows, cols: 80 });
    assert.deepEqual(client.peer.methods, []);
    assert.equal(client.peer.listeners.size, before + 1);
    client.peer.drain();
    assert.equal(client.peer.notifications.length, 1);
    assert.deepEqual(client.peer.notifications[0]?.params, {
      processId: "p",
      size: { rows: 30, cols: 80 },
      afterSeq: 0,
      atMs: 0,
    });
    assert.equal(client.peer.listeners.size, before);
  });

  test("precede the output that was written for them", async () => {
    const { open, start } = fakeSessions();
    const client = fakeClient("attach");
    const process = await start(open(client), "p", { tty: true });
    client.peer.isAboveQueueLimit = true;
    await process.resize({ rows: 1, cols: 2 });
    client.peer.isAboveQueueLimit = false;
    process.print("x");
    assert.deepEqual(client.peer.methods, ["resized", "output"]);
  });

  for (const [event, leave] of [
    ["its connection is lost", (session: Session, client: FakeClient) => session.detach(client)],
    ["another connection takes over", (session: Session) => session.attach(fakeClient("attach"), "same")],
    ["the session ends", (session: Session) => session.end()],
  ] as const)
    test(`leave no listener behind when ${event}`, async () => {
      const { open, start } = fakeSessions();
      const client = fakeClient("attach");
      const session = open(client);
      const process = await start(session, "p", { tty: true });
      client.peer.isAboveQueueLimit = true;
      await process.resize({ rows: 1, cols: 2 });
      leave(session, client);
      assert.equal(client.peer.listeners.size, 0);
    });

  test("are not observed after the session has ended", async () => {
    const { open, start, shared } = fakeSessions();
    const session = open(fakeClient("attach"));
    const process = await start(session, "p", { tty: true });
    const listen = process.sizes.listen.bind(process.sizes);
    let listeners = 0;
    process.sizes.listen = (listener) => {
      listeners++;
      const stop = listen(listener);
      return () => {
        listeners--;
        stop();
      };
    };
    const viewer = open(fakeClient("attach"));
    viewer.attachProcess(await shared(session), { role: "viewer" }).begin();
    assert.equal(listeners, 1);
    viewer.end();
    assert.equal(listeners, 0);
  });
});

describe("SessionProcess: a role change before delivery begins", () => {
  test("is reported to a driver that another driver replaced", async () => {
    const { open, start, shared } = fakeSessions();
    const owner = open(fakeClient("attach"));
    await start(owner);
    const [first, second] = [fakeClient("attach"), fakeClient("attach")];
    const added = open(first).attachProcess(await shared(owner), { role: "driver", processId: "q" });
    open(second)
      .attachProcess(await shared(owner), { role: "driver" })
      .begin();
    added.begin();
    assert.deepEqual(first.peer.methods, ["roleChanged"]);
    assert.deepEqual(second.peer.methods, []);
  });

  test("reports a new driver to an owner whose start response is pending", async () => {
    const { host, open, shared } = fakeSessions();
    const client = fakeClient("attach");
    const owner = open(client);
    const params = { processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false };
    const { begin } = await owner.start(params);
    open(fakeClient("attach"))
      .attachProcess(await shared(owner), { role: "driver" })
      .begin();
    assert.deepEqual(client.peer.methods, []);
    begin();
    assert.deepEqual(client.peer.methods, ["driverChanged"]);
    host.process("p").print("x");
    assert.deepEqual(client.peer.methods, ["driverChanged", "output"]);
  });

  test("of a detached driver releases the output that it pinned", async () => {
    const { open, start, shared } = fakeSessions();
    const owner = open(fakeClient());
    const process = await start(owner);
    const driver = fakeClient("attach");
    const session = open(driver);
    session.attachProcess(await shared(owner), { role: "driver" }).begin();
    session.detach(driver);
    print(process, 20);
    assert.equal(process.paused, true);
    open(fakeClient("attach"))
      .attachProcess(await shared(owner), { role: "driver" })
      .begin();
    assert.equal(process.paused, false);
  });
});

describe("SessionProcess: a driver", () => {
  test("with acknowledgements pins output only until it becomes a viewer again", async () => {
    const { open, start, shared } = fakeSessions();
    const owner = open(fakeClient());
    const process = await start(owner);
    const session = open(fakeClient("attach", "outputAck"));
    session.attachProcess(await shared(owner), { role: "driver" }).begin();
    print(process, 12);
    assert.equal(process.paused, true);
    session.attachProcess(await shared(owner), { role: "viewer" }).begin();
    assert.equal(process.paused, false);
  });

  test("is reported to the owner only when it changes", async () => {
    const { open, start, shared } = fakeSessions();
    const client = fakeClient("attach");
    const owner = open(client);
    await start(owner);
    const session = open(fakeClient("attach"));
    for (const role of ["driver", "driver", "viewer", "viewer"] as const)
      session.attachProcess(await shared(owner), { role }).begin();
    assert.deepEqual(client.peer.methods, ["driverChanged", "driverChanged"]);
  });
});

describe("SessionProcess: a process that can no longer be tracked", () => {
  const failure = () => new ExecServerError("its reader broke", "FAILED");

  test("is reported as failed to every attached session, whatever its extensions", async () => {
    const { host, open, start, shared } = fakeSessions();
    const owner = open(fakeClient());
    const process = await start(owner);
    const clients = [fakeClient(), fakeClient()];
    for (const [at, role] of (["viewer", "driver"] as const).entries()) {
      const client = clients[at];
      assert.ok(client);
      open(client)
        .attachProcess(await shared(owner), { role })
        .begin();
    }
    process.log.fail(failure());
    await host.clock.advance(5);
    for (const { peer } of clients) assert.deepEqual(peer.methods, ["failed"]);
  });

  test("is reported as an exit with code -1 to an owner without the `failed` extension", async () => {
    const { open, start } = fakeSessions();
    const client = fakeClient();
    const process = await start(open(client));
    process.log.fail(failure());
    assert.deepEqual(
      client.peer.notifications.map(({ params }) => params),
      [
        { processId: "p", seq: 1, exitCode: -1, sandboxDenied: false, signal: null, reason: "exited" },
        { processId: "p", seq: 2 },
      ],
    );
  });

  test("is reported only as closed to an owner without the `failed` extension if its exit is known", async () => {
    const { open, start } = fakeSessions();
    const client = fakeClient();
    const process = await start(open(client));
    process.exit(3);
    process.log.fail(failure());
    assert.deepEqual(client.peer.methods, ["exited", "closed"]);
    assert.deepEqual(client.peer.notifications[1]?.params, { processId: "p", seq: 2 });
  });
});

describe("SessionProcess: a closed process", () => {
  test("is removed 30 s after a slow client with pending output has disconnected", async () => {
    const { host, open, start } = fakeSessions({ detachedSessionTtlMs: 120_000 });
    const client = fakeClient();
    const session = open(client);
    const process = await start(session);
    client.peer.isAboveBulkLimit = true;
    client.peer.isAboveQueueLimit = true;
    process.print("x");
    process.finish();
    await host.clock.advance(60_000);
    assert.ok(session.findStarted("p"));
    session.detach(client);
    await host.clock.advance(29_999);
    assert.ok(session.findStarted("p"));
    await host.clock.advance(1);
    assert.equal(session.findStarted("p"), null);
  });

  test("frees its output and its handle with the last session that sees it", async () => {
    const { handles, open, start, shared } = fakeSessions();
    const owner = open(fakeClient());
    const process = await start(owner);
    process.print("x");
    process.finish();
    const { handle } = await shared(owner);
    const viewer = open(fakeClient());
    viewer.attachProcess(await shared(owner), { role: "viewer" }).begin();
    owner.end();
    assert.ok(handles.find(handle));
    assert.equal(process.log.retainedBytes, 1);
    viewer.end();
    assert.equal(handles.find(handle), null);
    assert.equal(process.log.retainedBytes, 0);
  });
});
