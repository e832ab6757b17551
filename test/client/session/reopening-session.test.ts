import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ExecServerClient, ExecServerClientOptions } from "../../../src/client/exec-server-client.ts";
import { JsonRpcChannel } from "../../../src/client/rpc/json-rpc-channel.ts";
import type { RpcChannelEvents } from "../../../src/client/rpc/rpc-channel.ts";
import { DEFAULT_RECONNECT_POLICY } from "../../../src/client/session/reconnect-policy.ts";
import { UnsentCallError } from "../../../src/client/session/reconnecting-session.ts";
import { ReopeningSession } from "../../../src/client/session/reopening-session.ts";
import type { ExecEvent, StartParams } from "../../../src/exec/exec-process.ts";
import { DisconnectedError, ErrorCode, RequestError } from "../../../src/protocol/errors.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "../scripted-server.ts";

const TIMEOUT = { timeout: 600_000 };
const START: StartParams = { processId: "p", argv: ["cat"], cwd: "/", env: {}, tty: false };
const ENTRY = { name: "a", type: "file", size: 0, mode: 0o644, modifiedAtMs: 0 };
const METADATA = { isDirectory: false, isFile: true, isSymlink: false, size: 0, createdAtMs: 0, modifiedAtMs: 0 };

/** A server whose sessions a test can lose, and that answers every method of the client. */
class SessionServer extends ScriptedServer {
  readonly #sessions = new Set<string>();
  opened = 0;

  constructor() {
    super({
      initialize: ({ resumeSessionId }) => this.#initialize(resumeSessionId),
      "process/list": () => ({ processes: [] }),
      "process/attach": ({ handle, processId, role }) => ({
        ...{
          handle,
          processId,
          role,
          argv: [],
          cwd: "file:///",
          tty: false,
          startedAtMs: 0,
          running: true,
          nextSeq: 1,
        },
      }),
      "process/kill": () => ({ running: true }),
      "process/tree": () => ({ processes: [], omitted: 0 }),
      "environment/info": () => ({ shell: { name: "sh", path: "/bin/sh" }, cwd: "file:///" }),
      "fs/readFile": () => ({ dataBase64: "" }),
      "fs/writeFile": () => ({}),
      "fs/createDirectory": () => ({}),
      "fs/getMetadata": () => METADATA,
      "fs/canonicalize": ({ path }) => ({ path }),
      "fs/readDirectory": () => ({ entries: [] }),
      "fs/walk": () => ({ entries: [], errors: [], truncated: false }),
      "fs/remove": () => ({}),
      "fs/copy": () => ({}),
      "fs/open": ({ handleId }) => ({ handleId }),
      "fs/close": () => ({}),
      "fs/openPartial": () => ({ size: 0 }),
      "fs/scan": () => ({ self: ENTRY, entries: [], more: false }),
      "fs/writeAtomic": () => ({}),
      "fs/setAttributes": () => ({}),
      "fs/watchMissing": () => ({ watching: false }),
      "http/request": () => ({ status: 200, headers: [], bodyBase64: "" }),
      "forward/open": () => ({}),
      "forward/listen": () => ({ port: 7 }),
      "forward/watchPorts": () => ({}),
      "command/exec": () => ({ sessionId: "session-1" }),
    });
  }

  /** Forgets all sessions and cuts the connection, as a restart does. */
  restart(): void {
    this.#sessions.clear();
    this.current.cut("restarted");
  }

  #initialize(resumeSessionId: unknown) {
    const extensions = ["outputAck", "attach"];
    if (typeof resumeSessionId === "string") {
      if (!this.#sessions.has(resumeSessionId))
        throw new RequestError(ErrorCode.invalidRequest, `unknown session id ${resumeSessionId}`);
      return { sessionId: resumeSessionId, extensions };
    }
    const sessionId = `S${++this.opened}`;
    this.#sessions.add(sessionId);
    return { sessionId, extensions };
  }
}

async function connect(options: ExecServerClientOptions = {}) {
  const server = new SessionServer();
  const rig = await connectScripted(options, server);
  const types = () => rig.states.map(({ type }) => type);
  return { ...rig, server, types };
}

let started = 0;

/** Every call of a client that needs no object of its session. */
const CALLS: Record<string, (client: ExecServerClient) => Promise<unknown>> = {
  start: (client) => client.start({ ...START, processId: `p${++started}` }),
  attach: (client) => client.attach("k3v7q2mfa5zt"),
  list: (client) => client.list(),
  kill: (client) => client.kill("k3v7q2mfa5zt"),
  tree: (client) => client.tree("k3v7q2mfa5zt"),
  info: (client) => client.info(),
  call: (client) => client.call("environment/status", {}),
  exec: (client) => client.exec({ argv: ["true"], cwd: "/", env: {}, tty: false }),
  "files.readFile": ({ files }) => files.readFile("/f"),
  "files.writeFile": ({ files }) => files.writeFile("/f", "text"),
  "files.createDirectory": ({ files }) => files.createDirectory("/d"),
  "files.exists": ({ files }) => files.exists("/f"),
  "files.canonicalize": ({ files }) => files.canonicalize("/f"),
  "files.readDirectory": ({ files }) => files.readDirectory("/d"),
  "files.walk": ({ files }) => files.walk("/d"),
  "files.remove": ({ files }) => files.remove("/f"),
  "files.copy": ({ files }) => files.copy("/f", "/g"),
  "files.open": ({ files }) => files.open("/f"),
  "files.openPartial": ({ files }) => files.openPartial("/f"),
  "files.scan": ({ files }) => files.scan("/d"),
  "files.writeAtomic": ({ files }) => files.writeAtomic("/f", { chunk: new Uint8Array(1) }),
  "files.setAttributes": ({ files }) => files.setAttributes("/f", { mode: 0o600 }),
  "files.waitForPath": ({ files }) => files.waitForPath("/f"),
  "http.request": ({ http }) => http.request({ url: "http://127.0.0.1/" }),
  "http.stream": ({ http }) => http.stream({ url: "http://127.0.0.1/" }),
  "forwards.open": ({ forwards }) => forwards.open("localhost", 80),
  // Closed, because a client opens a new session for an open listener.
  "forwards.listenAddress": async ({ forwards }) =>
    (await forwards.listenAddress({ host: "localhost", port: 0 }, () => undefined)).close(),
  "forwards.watchPorts": ({ forwards }) => forwards.watchPorts(() => undefined),
};

describe("a client whose session was lost", TIMEOUT, () => {
  for (const [name, call] of Object.entries(CALLS))
    test(`opens a new session for ${name}, and rejects the call if it was in flight at the loss`, async () => {
      const { server, client, states, types } = await connect();
      server.restart();
      await flushEventLoop();
      const lost = states.at(-1);
      assert.ok(lost?.type === "sessionLost");
      assert.equal(lost.reason, "restarted; failed to resume exec-server session: unknown session id S1");
      assert.equal(lost.error.message, `exec-server transport disconnected: ${lost.reason}`);
      await call(client);
      assert.deepEqual(types(), ["connected", "reconnecting", "sessionLost", "connected"]);
      assert.equal(client.sessionId, "S2");

      const { answers } = server;
      server.answers = { initialize: answers.initialize ?? assert.fail() };
      for (const method of Object.keys(answers)) server.answers[method] ??= () => NO_ANSWER;
      const before = server.received.length;
      const inFlight = assert.rejects(call(client), DisconnectedError);
      await flushEventLoop();
      const sent = server.received.length - before;
      server.restart();
      await inFlight;
      await flushEventLoop();
      // The failed resume is the only further message: no session was opened, and nothing was sent again.
      assert.deepEqual([sent, server.received.length - before, server.opened], [1, 2, 2]);
      await client.close();
    });

  test("fails its processes, files, streams and waits with the reason", async () => {
    const { server, client } = await connect();
    const process = await client.start(START);
    const attached = await client.attach("k3v7q2mfa5zt");
    const file = await client.files.open("/f");
    const stream = await client.forwards.open("localhost", 80);
    const closed = Promise.withResolvers<string | null>();
    stream.open({ data: () => undefined, end: () => undefined, close: closed.resolve });
    const ports: number[] = [];
    await client.forwards.watchPorts((found) => ports.push(found.length));
    server.answers["fs/getMetadata"] = () => {
      throw new RequestError(ErrorCode.notFound, "No such file or directory (os error 2)");
    };
    const waiting = client.files.waitForPath("/none");
    const receiver = client.eventReceiver();
    await flushEventLoop();
    server.restart();
    const reason = /^exec-server transport disconnected: restarted; failed to resume .*: unknown session id S1$/;
    await assert.rejects(waiting, { name: "DisconnectedError", message: reason });
    for (const lost of [process, attached]) {
      const events: ExecEvent[] = [];
      for await (const event of lost.events()) events.push(event);
      const [failed] = events;
      assert.ok(events.length === 1 && failed?.type === "failed" && failed.error instanceof DisconnectedError);
      assert.match(failed.message, reason);
      await assert.rejects(lost.write(new Uint8Array(1)), { name: "DisconnectedError", message: reason });
      await assert.rejects(lost.wait(), DisconnectedError);
    }
    assert.equal(await closed.promise, "restarted");
    assert.deepEqual(ports, [0]);
    assert.equal((await receiver.next()).done, true);
    await client.list();
    // Objects of the lost session stay lost.
    await assert.rejects(process.write(new Uint8Array(1)), DisconnectedError);
    await assert.rejects(file.read(0, 1), DisconnectedError);
    await assert.rejects(stream.write(new Uint8Array(1)), DisconnectedError);
    await file.close();
    await attached.detach();
    await process[Symbol.asyncDispose]();
    assert.deepEqual(server.calls("process/write"), []);
    assert.equal(server.calls("forward/watchPorts").length, 2);
    await client.close();
  });

  test("gives an id of a lost process to a new process, which gets only its own events", async () => {
    const { server, client } = await connect();
    const first = await client.start(START);
    const [old] = server.connections;
    server.restart();
    await flushEventLoop();
    const second = await client.start(START);
    old?.notify("process/exited", { processId: "p", seq: 1, exitCode: 7 });
    server.current.notify("process/exited", { processId: "p", seq: 1, exitCode: 0 });
    server.current.notify("process/closed", { processId: "p", seq: 2 });
    assert.equal((await second.wait({ timeoutMs: 0 }).catch(() => null))?.exitCode ?? second.log.exit?.exitCode, 0);
    assert.ok(first.log.failure !== null);
    await client.close();
  });

  test("shares one new session between calls that are made at once", async () => {
    const { server, client } = await connect();
    server.restart();
    await flushEventLoop();
    await Promise.all(Object.values(CALLS).map((call) => call(client)));
    assert.equal(server.opened, 2);
    await client.close();
  });

  test("makes a call that no server has executed in the new session", async () => {
    const { server, client, clock } = await connect();
    server.answers["process/start"] = ({ processId }) => {
      if (server.opened > 1) return { processId };
      throw new RequestError(ErrorCode.beingReplaced, "the server is being replaced");
    };
    const [replaced, list] = [client.start(START), client.files.exists("/f")];
    await list;
    server.refuse = () => new Error("not yet");
    server.restart();
    await flushEventLoop();
    // The connection is lost, and the loss of the session is not known yet.
    const waiting = [client.files.exists("/g"), client.start({ ...START, processId: "q" })];
    server.refuse = null;
    await clock.advance(100);
    await Promise.all([replaced, ...waiting]);
    assert.equal(server.opened, 2);
    const names = (method: string, field: string) => server.calls(method).map((params) => params[field]);
    assert.deepEqual(names("process/start", "processId").sort(), ["p", "p", "q"]);
    assert.deepEqual(names("fs/getMetadata", "path"), ["file:///f", "file:///g"]);
    await client.close();
  });

  for (const [name, call] of Object.entries(CALLS))
    test(`makes ${name} in the new session if it was called without a connection`, async () => {
      const { server, client, clock } = await connect();
      server.refuse = () => new Error("not yet");
      server.restart();
      await flushEventLoop();
      const calling = call(client);
      server.refuse = null;
      await clock.advance(100);
      await calling;
      assert.equal(server.opened, 2);
      await client.close();
    });

  test("reports the failure to open a session, and tries again with the next call", async () => {
    const { server, client, clock, types } = await connect();
    server.restart();
    await flushEventLoop();
    server.refuse = () => Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
    const failing = assert.rejects(client.list(), {
      name: "DisconnectedError",
      message: "exec-server transport disconnected: session lost; failed to open a new session: connect ECONNREFUSED",
    });
    await clock.advance(5000);
    await failing;
    server.refuse = null;
    await client.list();
    assert.deepEqual(types(), ["connected", "reconnecting", "sessionLost", "connected"]);
    await client.close();
  });

  test("does not make a call whose signal aborted while the session was opened", async () => {
    const { server, client, clock } = await connect();
    server.restart();
    await flushEventLoop();
    server.refuse = () => new Error("not yet");
    const controller = new AbortController();
    const { signal } = controller;
    const calls = [client.files.remove("/f", { signal }), client.start({ ...START, signal })];
    const rejected = Promise.all(calls.map((call) => assert.rejects(call, /changed my mind/)));
    await clock.advance(100);
    controller.abort(new Error("changed my mind"));
    await rejected;
    server.refuse = null;
    await clock.advance(5000);
    await client.list();
    assert.deepEqual([server.calls("fs/remove"), server.calls("process/start")], [[], []]);
    await client.close();
  });

  test("rejects a call with a timeout that passes while the session is opened, and does not make it", async () => {
    const { server, client, clock } = await connect();
    server.restart();
    await flushEventLoop();
    server.refuse = () => new Error("not yet");
    const calling = client.call("process/kill", { handle: "h" }, { timeoutMs: 1000 });
    const rejected = assert.rejects(calling, { code: "TIMEOUT" });
    await clock.advance(1000);
    await rejected;
    server.refuse = null;
    await clock.advance(5000);
    await client.list();
    assert.deepEqual(server.calls("process/kill"), []);
    await client.close();
  });

  test("gives up a call after five sessions that were lost before the call", async () => {
    const server = new SessionServer();
    const open = async (events: RpcChannelEvents) => new JsonRpcChannel(server.open(), events);
    const nothing = () => undefined;
    const sessions = new ReopeningSession({
      ...{ onNotification: nothing, onDisconnect: nothing, onResumed: nothing },
      ...{ onOpened: nothing, onLost: nothing, onEnded: nothing },
    });
    await sessions.open({
      ...{ connect: open, clientName: "test", initializeTimeoutMs: 1000, reconnect: DEFAULT_RECONNECT_POLICY },
      ...{ clock: new ManualClock(), resumeSessionId: null, takeOver: false },
    });
    let runs = 0;
    const failing = sessions.run(async () => {
      runs++;
      throw new UnsentCallError(new DisconnectedError("unstable"));
    });
    await assert.rejects(failing, { message: "exec-server transport disconnected: unstable" });
    assert.equal(runs, 5);
    sessions.close();
  });
});

describe("no new session is opened", TIMEOUT, () => {
  const refused = (status: number) => () => Object.assign(new Error(`HTTP ${status}`), { status });

  test("after close, before and after the loss", async () => {
    const closed = await connect();
    await closed.client.close();
    await assert.rejects(closed.client.list(), {
      message: "exec-server transport disconnected: the client was closed",
    });
    assert.deepEqual([closed.types(), closed.server.opened], [["connected", "disconnected"], 1]);
    const { server, client, types } = await connect();
    server.restart();
    await flushEventLoop();
    await client.close();
    await assert.rejects(client.list(), { message: "exec-server transport disconnected: the client was closed" });
    assert.deepEqual(types(), ["connected", "reconnecting", "sessionLost", "disconnected"]);
    assert.equal(server.opened, 1);
  });

  test("if the client is closed while the session is opened", async () => {
    const { server, client, types } = await connect();
    server.restart();
    await flushEventLoop();
    server.answers.initialize = () => NO_ANSWER;
    const listing = client.list();
    await flushEventLoop();
    await client.close();
    await assert.rejects(listing, { message: "exec-server transport disconnected: the client was closed" });
    await assert.rejects(client.list(), /the client was closed/);
    assert.deepEqual(types(), ["connected", "reconnecting", "sessionLost", "disconnected"]);
  });

  test("after a takeover that closes the connection", async () => {
    const { server, client, types } = await connect();
    server.current.cut("session S1 was taken over by another connection");
    await flushEventLoop();
    await assert.rejects(client.list(), /was taken over by another connection/);
    assert.deepEqual([types(), server.opened], [["connected", "disconnected"], 1]);
  });

  test("after a takeover that rejects the resume", async () => {
    const { server, client, types } = await connect();
    server.answers.initialize = () => {
      throw new RequestError(ErrorCode.sessionAttached, "session S1 was taken over by another connection", {
        reason: "sessionTakenOver",
      });
    };
    server.current.cut();
    await flushEventLoop();
    await assert.rejects(client.list(), /was taken over by another connection/);
    assert.deepEqual(types(), ["connected", "reconnecting", "disconnected"]);
  });

  for (const status of [401, 403]) {
    test(`after HTTP ${status} for the resume`, async () => {
      const { server, client, types } = await connect();
      server.refuse = refused(status);
      server.current.cut();
      await flushEventLoop();
      server.refuse = () => assert.fail("no connection expected");
      await assert.rejects(client.list(), { name: "DisconnectedError", message: new RegExp(`HTTP ${status}$`) });
      assert.deepEqual(types(), ["connected", "reconnecting", "disconnected"]);
    });

    test(`after HTTP ${status} for a new session`, async () => {
      const { server, client, types } = await connect();
      server.restart();
      await flushEventLoop();
      server.refuse = refused(status);
      await assert.rejects(client.list(), /failed to open a new session: HTTP 40[13]$/);
      server.refuse = () => assert.fail("no connection expected");
      await assert.rejects(client.list(), /failed to open a new session: HTTP 40[13]$/);
      assert.deepEqual(types(), ["connected", "reconnecting", "sessionLost", "disconnected"]);
    });
  }

  for (const [name, reconnect, states] of [
    ["reconnect: false", false, ["connected", "disconnected"]],
    ["newSession: false", { newSession: false }, ["connected", "reconnecting", "disconnected"]],
  ] as const)
    test(`with ${name}`, async () => {
      const { server, client, types } = await connect({ reconnect });
      const process = await client.start(START);
      server.restart();
      await flushEventLoop();
      await assert.rejects(process.write(new Uint8Array(1)), /^DisconnectedError: exec-server transport disconnected/);
      await assert.rejects(client.list(), /^DisconnectedError: exec-server transport disconnected: restarted/);
      assert.deepEqual([types(), server.opened], [states, 1]);
    });
});

describe("a session that is lost at any moment", TIMEOUT, () => {
  /** Calls with unique names, so that the test detects a repeated call. */
  function makeCalls(client: ExecServerClient, round: string): Promise<unknown>[] {
    return [
      client.start({ ...START, processId: round }),
      client.files.remove(`/${round}`),
      client.http.request({ url: `http://127.0.0.1/${round}` }),
      client.kill(round),
      client.attach("k3v7q2mfa5zt", { processId: `attached-${round}` }),
    ];
  }

  const nameOf: Record<string, string> = {
    ...{ "process/start": "processId", "process/attach": "processId", "process/kill": "handle" },
    ...{ "fs/remove": "path", "http/request": "url" },
  };

  test("rejects or answers each call once, and later calls work", async () => {
    for (let seed = 1; seed <= repetitions(400); seed++) {
      const { server, client, clock } = await connect();
      // The restarts happen at these messages, also two in a row and during the resume or the open.
      const restarts = new Set([1 + (seed % 37), 1 + (seed % 37) + 1 + (seed % 3), 1 + ((seed * 7) % 41)]);
      let messages = 0;
      server.onMessage = () => {
        messages++;
        if (!restarts.has(messages)) return;
        // Before or after the response to this message.
        if (seed % 2 === 0) server.restart();
        else queueMicrotask(() => server.restart());
      };
      let isDone = false;
      const work = async () => {
        const outcomes: PromiseSettledResult<unknown>[] = [];
        for (let round = 0; round < 6; round++) {
          const settled = Promise.allSettled(makeCalls(client, `r${round}`));
          if (seed % 5 === 0) await flushEventLoop();
          outcomes.push(...(await settled));
        }
        isDone = true;
        return outcomes;
      };
      const working = work();
      while (!isDone) {
        await flushEventLoop();
        await clock.advance(100);
      }
      for (const outcome of await working)
        if (outcome.status === "rejected")
          assert.ok(outcome.reason instanceof DisconnectedError, `seed ${seed}: ${String(outcome.reason)}`);
      const seen = new Set<string>();
      for (const [method, field] of Object.entries(nameOf))
        for (const params of server.calls(method)) {
          const key = `${method} ${String(params[field])}`;
          assert.ok(!seen.has(key), `seed ${seed}: ${key} was sent twice`);
          seen.add(key);
        }
      server.onMessage = () => undefined;
      assert.deepEqual(await client.list(), [], `seed ${seed}`);
      await client.close();
    }
  });
});
