import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ExecEvent, StartParams } from "../../../src/exec/exec-process.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { ErrorCode, RequestError } from "../../../src/protocol/errors.ts";
import { policy } from "../../support/network/network-config.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "../scripted-server.ts";

const START: StartParams = { processId: "p", argv: ["cat"], cwd: "/", env: {}, tty: false };
const PAGE = { chunks: [], nextSeq: 1, exited: false, exitCode: null, closed: false, failure: null };
/** A server without procwire's extensions. */
const PLAIN = { initialize: () => ({ sessionId: "S" }) };

type Answers = ConstructorParameters<typeof ScriptedServer>[0];

const output = (seq: number, bytes: number) => ({
  ...{ processId: "p", seq, stream: "stdout", chunk: encodeBase64(new Uint8Array(bytes).fill(seq)) },
});

function reject(message: string, code: number = ErrorCode.invalidRequest) {
  return (): never => {
    throw new RequestError(code, message);
  };
}

const connect = (answers: Answers = {}) => connectScripted({}, new ScriptedServer(answers));

describe("RemoteBackend.start", () => {
  test("rejects before the request if the signal is aborted", async () => {
    const { client, server } = await connect();
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(client.backend.start({ ...START, signal }), /enough/);
    assert.deepEqual(server.calls("process/start"), []);
    await client.close();
  });

  test("rejects limits and lifetimes that the server does not support", async () => {
    const { client, server } = await connect(PLAIN);
    await assert.rejects(client.start({ ...START, limits: { processes: 1 } }), /^.*limits: not supported/);
    await assert.rejects(client.start({ ...START, lifetime: "server" }), /lifetime `server`: not supported/);
    assert.deepEqual(server.calls("process/start"), []);
    await client.start({ ...START, lifetime: "session" });
    assert.equal(server.calls("process/start").length, 1);
    await client.close();
  });

  test("sends limits, lifetime and query claims to a server that supports them", async () => {
    const { client, server } = await connect({
      initialize: () => ({ sessionId: "S", extensions: ["attach", "queryClaims"] }),
    });
    const params = { limits: { processes: 1 }, lifetime: "server", terminalQueries: "claimed" } as const;
    await client.start({ ...START, ...params });
    const [sent] = server.calls("process/start");
    assert.deepEqual(
      { limits: sent?.limits, lifetime: sent?.lifetime, terminalQueries: sent?.terminalQueries },
      params,
    );
    await client.close();
  });

  test("sends names, credentials and proxy ports only to a server that supports them", async () => {
    const networkProxy = { proxy: policy({ ports: [443] }) };
    const cases: [Partial<StartParams>, RegExp][] = [
      [{ name: "web" }, /name and labels: not supported by this server/],
      [{ labels: { team: "a" } }, /name and labels: not supported by this server/],
      [{ credentials: ["registry"] }, /credentials: not supported by this server/],
      [{ networkProxy }, /networkProxy\.proxy\.ports: not supported by this server/],
    ];
    const plain = await connect(PLAIN);
    for (const [params, error] of cases) await assert.rejects(plain.client.start({ ...START, ...params }), error);
    assert.deepEqual(plain.server.calls("process/start"), []);
    await plain.client.close();
    const extended = await connect({ initialize: () => ({ sessionId: "S", extensions: ["names"] }) });
    for (const [index, [params]] of cases.entries())
      await extended.client.start({ ...START, ...params, processId: `p${index}` });
    assert.equal(extended.server.calls("process/start").length, cases.length);
    await extended.client.close();
  });

  test("keeps other values of `terminalQueries` on a server without query claims", async () => {
    const { client, server } = await connect();
    await client.start({ ...START, terminalQueries: "server" });
    assert.equal(server.calls("process/start")[0]?.terminalQueries, "server");
    await client.close();
  });

  test("rejects a sandbox that is not an object", async () => {
    const { client } = await connect();
    await assert.rejects(client.start({ ...START, sandbox: "none" }), /sandbox must be an object/);
    await client.start({ ...START, sandbox: null });
    await client.close();
  });

  test("rejects an id in use, and frees the id of a failed start", async () => {
    const { client, server } = await connect();
    await client.start(START);
    await assert.rejects(client.start(START), /process p already exists/);
    assert.equal(server.calls("process/start").length, 1);
    server.answers["process/start"] = reject("no memory");
    await assert.rejects(client.start({ ...START, processId: "q" }), /no memory/);
    server.answers["process/start"] = reject("unknown method: process/start");
    await assert.rejects(client.start({ ...START, processId: "q" }), /process\/start is not supported/);
    await client.close();
  });

  test("keeps output from before its result until the caller can subscribe, then evicts it", async () => {
    const server = new ScriptedServer({
      "process/start": ({ processId }, peer) => {
        for (let seq = 1; seq <= 3; seq++) peer.notify("process/output", output(seq, 10));
        return { processId };
      },
    });
    const { client, clock } = await connectScripted({ logLimits: { retainedBytes: 10 } }, server);
    const { keepAliveTimers } = clock;
    const process = await client.start(START);
    assert.equal(process.log.retainedBytes, 30);
    assert.equal(clock.keepAliveTimers, keepAliveTimers);
    await clock.advance(0);
    assert.equal(process.log.retainedBytes, 10);
    await client.close();
  });

  test("ends a process after the smaller of its time limits on a plain server", async () => {
    const { client, server, clock } = await connect({
      ...PLAIN,
      "process/signal": () => ({}),
      "process/terminate": () => ({ running: true }),
    });
    const process = await client.start({ ...START, timeoutMs: 5000, maxAgeMs: 1000 });
    server.current.notify("process/output", output(1, 1));
    await clock.advance(999);
    await flushEventLoop();
    assert.deepEqual(server.calls("process/signal"), []);
    await clock.advance(1);
    await flushEventLoop();
    assert.equal(server.calls("process/signal").length, 1);
    await clock.advance(1999);
    await flushEventLoop();
    assert.deepEqual(server.calls("process/terminate"), []);
    await clock.advance(1);
    await flushEventLoop();
    assert.equal(server.calls("process/terminate").length, 1);
    server.current.notify("process/exited", { processId: "p", seq: 2, exitCode: 130 });
    assert.equal((await process.wait()).exitReason, "timeout");
    await client.close();
  });

  test("does not enforce time limits of a process that has exited or was lost, or of an extended server", async () => {
    const { client, server, clock } = await connect({ ...PLAIN, "process/signal": () => ({}) });
    const { keepAliveTimers } = clock;
    for (const [processId, method, rest] of [
      ["a", "process/exited", { seq: 1, exitCode: 0 }],
      ["b", "process/failed", { message: "lost" }],
    ] as const) {
      await client.start({ ...START, processId, timeoutMs: 1000 });
      server.current.notify(method, { processId, ...rest });
      await flushEventLoop();
    }
    await client.start({ ...START, processId: "c" });
    assert.equal(clock.keepAliveTimers, keepAliveTimers);
    await clock.advance(2000);
    await flushEventLoop();
    assert.deepEqual(server.calls("process/signal"), []);
    await client.close();
    const extended = await connect({ "process/signal": () => ({}) });
    await extended.client.start({ ...START, timeoutMs: 1000 });
    await extended.clock.advance(2000);
    await flushEventLoop();
    assert.deepEqual(extended.server.calls("process/terminate"), []);
    await extended.client.close();
  });
});

describe("a start whose result was lost", () => {
  /** Starts a process, cuts the connection before the result, and rejects the repeated start. */
  async function loseResult(answers: Answers = {}) {
    const rig = await connect({
      "process/start": () => NO_ANSWER,
      "process/list": () => ({ processes: [] }),
    });
    const starting = rig.client.start(START);
    await flushEventLoop();
    Object.assign(rig.server.answers, { "process/start": reject("process p already exists"), ...answers });
    return { ...rig, starting };
  }

  test("succeeds if events or the pid arrived, although the server has forgotten the process", async () => {
    const notifications: [string, object][] = [
      ["process/output", output(1, 1)],
      ["process/started", { processId: "p", pid: 7 }],
    ];
    for (const [method, params] of notifications) {
      const { client, server, starting } = await loseResult({
        "process/read": reject("unknown process id p"),
      });
      server.current.notify(method, params);
      await flushEventLoop();
      server.current.cut();
      assert.equal((await starting).processId, "p");
      assert.equal(server.calls("process/start").length, 2);
      await client.close();
    }
  });

  test("succeeds if an event arrives while the client reads the process", async () => {
    const { client, server, starting } = await loseResult({
      "process/read": (_, peer) => {
        peer.notify("process/output", output(1, 1));
        return reject("unknown process id p")();
      },
    });
    server.current.cut();
    assert.equal((await starting).log.nextSeq, 2);
    await client.close();
  });

  test("has the sandbox of the request", async () => {
    const { client, server, starting } = await loseResult({ "process/read": () => PAGE });
    server.current.cut();
    assert.equal((await starting).sandboxType, "none");
    assert.deepEqual(server.calls("process/read")[0], { processId: "p", maxBytes: 0 });
    await client.close();
  });

  test("polls every 20 ms while the process is starting, for at most 10 s", async () => {
    const { client, server, clock, starting } = await loseResult({
      "process/read": reject("process p is starting"),
    });
    const failed = assert.rejects(starting, /process p to start .*the process may have started/);
    server.current.cut();
    await flushEventLoop();
    const reads = () => server.calls("process/read").length;
    assert.equal(reads(), 1);
    await clock.advance(19);
    await flushEventLoop();
    assert.equal(reads(), 1);
    await clock.advance(1);
    await flushEventLoop();
    assert.equal(reads(), 2);
    for (let count = 2; count <= 501; count++) {
      await clock.advance(20);
      await flushEventLoop();
    }
    await failed;
    assert.equal(reads(), 501);
    await client.close();
  });

  test("rejects if the server responds with another error", async () => {
    const { client, server, starting } = await loseResult({ "process/read": reject("no memory") });
    const failed = assert.rejects(starting, /no memory/);
    server.current.cut();
    await failed;
    await client.close();
  });

  test("is repeated on a replacement of the server if the process is persistent", async () => {
    const { client, server } = await connect({
      initialize: () => ({ sessionId: "S", extensions: ["attach"], generation: "a" }),
      "process/start": () => NO_ANSWER,
    });
    const starting = client.start({ ...START, lifetime: "persistent" });
    await flushEventLoop();
    server.answers.initialize = () => ({ sessionId: "S", extensions: ["attach"], generation: "b" });
    server.answers["process/start"] = ({ processId }) => ({ processId });
    server.answers["process/read"] = () => PAGE;
    server.answers["process/list"] = () => ({ processes: [] });
    server.current.cut();
    assert.equal((await starting).processId, "p");
    assert.equal(server.calls("process/start").length, 2);
    await client.close();
  });
});

describe("RemoteBackend", () => {
  test("defaults to the working directory of the server, or to the root", async () => {
    const info = { shell: { name: "sh", path: "/bin/sh" }, cwd: "file:///srv" };
    const { client } = await connect({
      initialize: () => ({ sessionId: "S", environmentInfo: info }),
    });
    assert.equal(client.backend.defaultCwd, "file:///srv");
    await client.close();
    const unknown = await connect();
    assert.equal(unknown.client.backend.defaultCwd, "file:///");
    await unknown.client.close();
  });

  test("rejects invalid arguments without a request", async () => {
    const { client, server } = await connect();
    const { backend } = client;
    const sent = server.received.length;
    const calls: [(...args: never[]) => unknown, unknown[], RegExp][] = [
      [backend.start, [{ ...START, argv: "cat" }], /start: invalid `argv`: got "cat"/],
      [backend.attach, [5], /attach: invalid `processId`: got 5/],
      [backend.attach, ["p", { wait: 5 }], /attach: unknown option `wait`/],
      [backend.attachByHandle, [5], /attach: invalid `handle`: got 5/],
      [backend.attachByHandle, ["h", { role: "owner" }], /attach: invalid `role`: got "owner"/],
      [backend.list, [{ allSessions: 5 }], /list: invalid `allSessions`: got 5/],
    ];
    for (const [call, args, message] of calls)
      await assert.rejects(async () => await Reflect.apply(call, backend, args), {
        ...{ code: "EINVAL", message },
      });
    assert.equal(server.received.length, sent);
    await client.close();
  });

  test("returns the same object for a process that it knows, and attaches to others by reading", async () => {
    const { client, server } = await connect({
      "process/read": ({ afterSeq }) => ({
        ...PAGE,
        chunks: afterSeq === 0 ? [output(1, 5)] : [],
        nextSeq: 2,
      }),
    });
    const own = await client.start(START);
    assert.equal(await client.backend.attach("p"), own);
    const other = await client.backend.attach("q");
    assert.equal(other.log.totalBytes, 5);
    assert.equal(await client.backend.attach("q"), other);
    // A later missing event is read as well.
    server.answers["process/read"] = () => ({ ...PAGE, chunks: [output(2, 5)], nextSeq: 3 });
    server.current.notify("process/output", { ...output(3, 5), processId: "q" });
    await flushEventLoop();
    assert.equal(other.log.totalBytes, 15);
    await client.close();
  });

  test("forgets a process that it could not attach", async () => {
    const { client, server } = await connect({ "process/read": reject("unknown process id q") });
    await assert.rejects(client.backend.attach("q"), /unknown process id q/);
    server.answers["process/read"] = () => PAGE;
    assert.equal((await client.backend.attach("q")).processId, "q");
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(client.backend.attach("q", { signal }), /enough/);
    await client.close();
  });

  test("lists the processes of a plain server that have not closed", async () => {
    const { client, server } = await connect(PLAIN);
    await client.start(START);
    await client.start({ ...START, processId: "q" });
    server.current.notify("process/exited", { processId: "p", seq: 1, exitCode: 0 });
    await flushEventLoop();
    assert.deepEqual(
      (await client.list()).map(({ processId, running }) => [processId, running]),
      [
        ["p", false],
        ["q", true],
      ],
    );
    server.current.notify("process/closed", { processId: "p", seq: 2 });
    server.current.notify("process/failed", { processId: "q", message: "lost" });
    await flushEventLoop();
    assert.deepEqual(await client.list(), []);
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(client.list({ signal }), /enough/);
    await client.close();
  });

  test("lists the processes of all sessions of an extended server", async () => {
    const { client, server } = await connect({ "process/list": () => ({ processes: [] }) });
    assert.deepEqual(await client.list({ allSessions: true }), []);
    assert.deepEqual(server.calls("process/list"), [{ allSessions: true }]);
    await client.close();
  });

  test("routes a new process of the same id to the new object", async () => {
    const { client, server } = await connect();
    const first = await client.start(START);
    server.current.notify("process/exited", { processId: "p", seq: 1, exitCode: 0 });
    server.current.notify("process/closed", { processId: "p", seq: 2 });
    await flushEventLoop();
    const second = await client.start(START);
    server.current.notify("process/output", output(1, 5));
    await flushEventLoop();
    assert.deepEqual([first.log.totalBytes, second.log.totalBytes], [0, 5]);
    await client.close();
  });

  test("does not repeat the final ack of a process after the start of a new process of the same id", async () => {
    const { client, server } = await connect();
    await client.start(START);
    server.current.notify("process/exited", { processId: "p", seq: 1, exitCode: 0 });
    server.current.notify("process/closed", { processId: "p", seq: 2 });
    await flushEventLoop();
    const acks = server.notifications("process/ack");
    assert.deepEqual(acks.at(-1), { processId: "p", seq: 2 });
    // Without a response, the client does not know whether the server received the ack.
    const { "process/start": answer = () => NO_ANSWER } = server.answers;
    server.answers["process/start"] = () => NO_ANSWER;
    const starting = client.start(START);
    await flushEventLoop();
    server.answers["process/start"] = answer;
    server.current.cut();
    await starting;
    // The ack would evict output of the new process.
    assert.deepEqual(server.notifications("process/ack"), acks);
    await client.close();
  });

  test("ignores notifications of unknown processes, and changes of a role that it does not have", async () => {
    const { client, server, states } = await connect();
    const process = await client.start(START);
    server.current.notify("process/output", { ...output(1, 5), processId: "unknown" });
    server.current.notify("process/exited", { processId: "unknown", seq: 1, exitCode: 0 });
    server.current.notify("process/roleChanged", { processId: "p", role: "viewer", reason: "x" });
    await flushEventLoop();
    assert.equal(states.at(-1)?.type, "connected");
    assert.equal(process.log.nextSeq, 1);
    await client.close();
  });

  test("passes on all properties of an exit", async () => {
    const exits: [object, object][] = [
      [{ exitCode: 3 }, { exitCode: 3, signal: null, reason: "exited", sandboxDenied: false }],
      [
        { exitCode: 137, signal: "SIGKILL" },
        { exitCode: 137, signal: "SIGKILL", reason: "signaled", sandboxDenied: false },
      ],
      [
        { exitCode: 1, reason: "limit", limit: "cpuTimeMs", sandboxDenied: true },
        { exitCode: 1, signal: null, reason: "limit", limit: "cpuTimeMs", sandboxDenied: true },
      ],
    ];
    for (const [sent, expected] of exits) {
      const { client, server } = await connect();
      const process = await client.start(START);
      server.current.notify("process/exited", { processId: "p", seq: 1, ...sent });
      const { value } = await process.events().next();
      assert.deepEqual(value, { type: "exited", seq: 1, ...expected });
      await client.close();
    }
  });

  test("fails all its processes when the client is closed", async () => {
    const { client } = await connect();
    const process = await client.start(START);
    await client.close();
    const events: ExecEvent[] = [];
    for await (const event of process.events()) events.push(event);
    assert.deepEqual(
      events.map(({ type }) => type),
      ["failed"],
    );
  });
});
