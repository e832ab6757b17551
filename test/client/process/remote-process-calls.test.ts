import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ExecServerClientOptions } from "../../../src/client/exec-server-client.ts";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { ErrorCode, RequestError } from "../../../src/protocol/errors.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "../scripted-server.ts";

const START: StartParams = { processId: "p", argv: ["cat"], cwd: "/", env: {}, tty: false, pipeStdin: true };
const PAGE = { chunks: [], exited: false, exitCode: null, closed: false, failure: null };
const WAITED = { reason: "exited", exitCode: 0, signal: null, exitReason: "exited", seq: 0 };
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

async function startOne(answers: Answers = {}, params: Partial<StartParams> = {}, options?: ExecServerClientOptions) {
  const rig = await connectScripted(options, new ScriptedServer(answers));
  const process = await rig.client.start({ ...START, ...params });
  const exit = (seq: number, fields: object = {}) =>
    rig.server.current.notify("process/exited", { processId: "p", seq, exitCode: 0, ...fields });
  const close = (seq: number) => rig.server.current.notify("process/closed", { processId: "p", seq });
  return { ...rig, process, exit, close };
}

describe("RemoteProcess", () => {
  test("has the properties of the start result", async () => {
    const { client, clock, process, exit } = await startOne({
      "process/start": ({ processId }) => ({
        ...{ processId, sandboxType: "linuxSeccomp", droppedEnv: ["TOKEN"], handle: "h" },
      }),
    });
    assert.deepEqual([process.sandboxType, process.droppedEnv, process.handle], ["linuxSeccomp", ["TOKEN"], "h"]);
    const { processId, argv, running, startedAtMs } = process.listing();
    assert.deepEqual([processId, argv, running, startedAtMs], ["p", ["cat"], true, clock.now()]);
    exit(1);
    await flushEventLoop();
    assert.equal(process.listing().running, false);
    await client.close();
  });

  test("has no sandbox and no handle if the start result has none", async () => {
    const { client, process } = await startOne({ "process/start": ({ processId }) => ({ processId }) });
    assert.deepEqual([process.sandboxType, process.droppedEnv, process.handle], ["none", undefined, null]);
    await client.close();
  });

  test("rejects extended calls on a plain server without sending them", async () => {
    const { client, server, process } = await startOne(PLAIN);
    assert.equal(process.canCloseStdin, false);
    await assert.rejects(process.closeStdin(), /process\/closeStdin is not supported by this server/);
    await assert.rejects(process.resize({ rows: 1, cols: 1 }), /process\/resize is not supported/);
    await assert.rejects(process.inputs(), /process\/inputs is not supported/);
    await assert.rejects(process.detach(), /process\/detach is not supported/);
    await assert.rejects(process.signal("SIGHUP"), /signal SIGHUP is not supported/);
    await assert.rejects(process.wait({ until: { type: "port", port: 80 } }), /waiting for a port is not supported/);
    assert.deepEqual(
      server.received.flatMap((message) => (message.type === "request" ? [message.method] : [])),
      ["initialize", "process/start"],
    );
    await client.close();
  });

  test("sends extended calls to an extended server", async () => {
    const { client, server, process } = await startOne({
      "process/closeStdin": () => ({ status: "accepted" }),
      "process/resize": () => ({}),
      "process/inputs": () => ({ inputs: [], omitted: 0 }),
      "process/signal": () => ({}),
    });
    assert.equal(process.canCloseStdin, true);
    assert.deepEqual(await process.closeStdin(), { status: "accepted" });
    await process.resize({ rows: 1, cols: 2 });
    assert.deepEqual(server.calls("process/resize"), [{ processId: "p", size: { rows: 1, cols: 2 } }]);
    assert.ok(await process.inputs());
    for (const name of ["SIGHUP", "SIGINT", "INT", "interrupt"]) await process.signal(name);
    assert.deepEqual(
      server.calls("process/signal").map(({ signal }) => signal),
      ["SIGHUP", "interrupt", "interrupt", "interrupt"],
    );
    await client.close();
  });

  test("sends the signal of `kill` while the process runs, and nothing after its exit", async () => {
    const { client, server, process, exit } = await startOne({ "process/signal": () => ({}) });
    assert.equal(await process.kill(), true);
    assert.equal(await process.kill("SIGHUP"), true);
    exit(1);
    await flushEventLoop();
    assert.equal(await process.kill(), false);
    assert.deepEqual(
      server.calls("process/signal").map(({ signal }) => signal),
      ["SIGTERM", "SIGHUP"],
    );
    await client.close();
  });

  test("rejects invalid arguments without a request", async () => {
    const { client, server, process } = await startOne();
    const sent = server.received.length;
    const bad = { unknown: 1 };
    const calls: [(...args: never[]) => unknown, unknown[], RegExp][] = [
      [process.read, [bad], /read: unknown option `unknown`/],
      [process.wait, [bad], /wait: unknown option `unknown`/],
      [process.snapshot, [bad], /snapshot: unknown option `unknown`/],
      [process.inputs, [bad], /inputs: unknown option `unknown`/],
      [process.write, [5], /write: invalid `data`: got 5/],
      [process.closeStdin, [bad], /closeStdin: unknown option `unknown`/],
      [process.resize, [5], /resize: invalid `size`: got 5/],
      [process.signal, [5], /signal: invalid `name`: got 5/],
      [process.kill, [5], /kill: invalid `signal`: got 5/],
      [process.terminate, [5], /terminate: invalid `mode`: got 5/],
    ];
    for (const [call, args, message] of calls)
      await assert.rejects(async () => await Reflect.apply(call, process, args), {
        ...{ code: "EINVAL", message },
      });
    assert.throws(() => Reflect.apply(process.events, process, [bad]), /events: unknown option `unknown`/);
    assert.equal(server.received.length, sent);
    await client.close();
  });

  test("rejects a call with the reason of an abort, the method and the command", async () => {
    const { client, process } = await startOne({ "process/resize": reject("no terminal") });
    const signal = AbortSignal.abort(new Error("enough"));
    const size = { rows: 1, cols: 1 };
    const calls = [
      () => process.read({ signal }),
      () => process.wait({ signal }),
      () => process.snapshot({ signal }),
      () => process.inputs({ signal }),
      () => process.write(new Uint8Array(1), { signal }),
      () => process.closeStdin({ signal }),
      () => process.resize(size, { signal }),
      () => process.signal("interrupt", { signal }),
      () => process.terminate(undefined, { signal }),
    ];
    for (const call of calls) await assert.rejects(call(), /enough/);
    await assert.rejects(process.resize(size), (error) => {
      assert.ok(error instanceof ExecServerError);
      assert.deepEqual([error.method, error.argv], ["process/resize", ["cat"]]);
      return true;
    });
    await client.close();
  });

  test("leaves a detached process to the server, and acknowledges its later output", async () => {
    const { client, server, process } = await startOne({
      "process/detach": () => ({}),
      "process/read": () => ({ ...PAGE, nextSeq: 6 }),
    });
    await process.detach();
    assert.equal(process.log.failure?.message, "detached from process p");
    await flushEventLoop();
    assert.deepEqual(server.notifications("process/ack").at(-1), { processId: "p", seq: 5 });
    assert.deepEqual(server.calls("process/terminate"), []);
    await client.close();
  });

  test("wakes its subscribers with output, its exit and its close", async () => {
    const { client, server, process, exit, close } = await startOne();
    const wake = process.subscribeWake();
    for (const send of [() => server.current.notify("process/output", output(1, 1)), () => exit(2), () => close(3)]) {
      const changed = wake.changed();
      send();
      await changed;
    }
    await client.close();
  });

  test("passes on changes of the driver and of the terminal size", async () => {
    const { client, server, process } = await startOne();
    const seen: unknown[] = [];
    server.current.notify("process/driverChanged", { processId: "p", handle: "h", driver: "attached" });
    await flushEventLoop();
    process.onDriverChanged = (driver) => seen.push(driver);
    process.onResized = (change) => seen.push(change);
    const change = { size: { rows: 2, cols: 3 }, afterSeq: 0, atMs: 4 };
    server.current.notify("process/driverChanged", { processId: "p", handle: "h", driver: "none" });
    server.current.notify("process/resized", { processId: "p", ...change });
    await flushEventLoop();
    assert.deepEqual(seen, ["none", change]);
    assert.deepEqual(process.sizes.last, change.size);
    await client.close();
  });
});

describe("RemoteProcess.decideNetwork", () => {
  const request = { protocol: "https_connect", host: "x.test", port: 443 } as const;
  const question = { reason: "no rule allows this host", canRemember: false };
  const { signal } = new AbortController();

  test("lets the caller ask the console of an extended server, null without an answer", async () => {
    const cases: [Answers, unknown][] = [
      [{ "network/ask": () => ({ answer: "session" }) }, "session"],
      [{ "network/ask": () => ({}) }, null],
      [{ "network/ask": reject("no console") }, null],
    ];
    for (const [answers, expected] of cases) {
      const asked: unknown[] = [];
      const { client, server, process } = await startOne(answers, {
        decideNetwork: async (_, signal, askConsole) => {
          asked.push(await askConsole?.(question, signal));
          return { type: "allow" };
        },
      });
      assert.deepEqual(await process.decideNetwork(request, signal), { type: "allow" });
      assert.deepEqual(asked, [expected]);
      assert.deepEqual(server.calls("network/ask"), [{ processId: "p", ...request, ...question }]);
      await client.close();
    }
  });

  test("offers no console on a plain server, and denies without the option", async () => {
    const plain = await startOne(PLAIN, {
      decideNetwork: async (_, __, askConsole) => ({ type: "deny", reason: typeof askConsole }),
    });
    assert.deepEqual(await plain.process.decideNetwork(request, signal), { type: "deny", reason: "undefined" });
    await plain.client.close();
    const { client, process } = await startOne();
    assert.deepEqual(await process.decideNetwork(request, signal), { type: "deny", reason: "not_allowed" });
    await client.close();
  });
});

describe("RemoteProcess.claimQueries", () => {
  const CLAIMING = {
    initialize: () => ({ sessionId: "S", extensions: ["queryClaims"] }),
    "process/claimQueries": ({ seq }: Record<string, unknown>) => ({ granted: seq === 3 }),
    "process/read": () => ({ ...PAGE, nextSeq: 1 }),
  };

  test("returns the decision of the server for a process started with `claimed` queries", async () => {
    const { client, process } = await startOne(CLAIMING, { tty: true, terminalQueries: "claimed" });
    assert.equal(await process.claimQueries?.(3), true);
    assert.equal(await process.claimQueries?.(4), false);
    await client.close();
  });

  test("is absent for other starts, and without the extension", async () => {
    const other = await startOne(CLAIMING, { tty: true });
    assert.equal(other.process.claimQueries, undefined);
    await other.client.close();
    const plain = await startOne({}, { tty: true, terminalQueries: "claimed" });
    assert.equal(plain.process.claimQueries, undefined);
    assert.equal(plain.server.calls("process/start")[0]?.terminalQueries, "client");
    await plain.client.close();
  });

  test("grants queries that the server does not track, only for a process of another client", async () => {
    const answers = { ...CLAIMING, "process/claimQueries": reject("not claimed") };
    const own = await startOne(answers, { tty: true, terminalQueries: "claimed" });
    await assert.rejects(async () => own.process.claimQueries?.(1), /not claimed/);
    const adopted = await own.client.backend.attach("q");
    assert.equal(await adopted.claimQueries?.(1), true);
    own.server.answers["process/claimQueries"] = () => NO_ANSWER;
    const lost = adopted.claimQueries?.(1);
    await own.client.close();
    await assert.rejects(async () => lost, /disconnected/);
  });
});

describe("RemoteProcess.read", () => {
  /** Evicts all but the last output from the client's log. */
  const SMALL_LOG = { logLimits: { retainedBytes: 10 } };

  async function startEvicted(read: NonNullable<Answers>[string]) {
    const rig = await startOne({ "process/read": read }, {}, SMALL_LOG);
    for (let seq = 1; seq <= 3; seq++) rig.server.current.notify("process/output", output(seq, 10));
    await flushEventLoop();
    await rig.clock.advance(0);
    assert.equal(rig.process.log.read().gap?.toSeq, 2);
    return rig;
  }

  test("reads arrival times from the server", async () => {
    const { client, server, process } = await startOne({
      "process/read": () => ({ ...PAGE, nextSeq: 8, times: [], ageMs: 5 }),
    });
    const result = await process.read({ times: true });
    assert.deepEqual([result.nextSeq, result.ageMs, result.sandboxDenied], [8, 5, false]);
    await process.read({ times: true, afterSeq: 3, maxBytes: 4 });
    assert.deepEqual(server.calls("process/read"), [
      { processId: "p", afterSeq: 0, times: true },
      { processId: "p", afterSeq: 3, maxBytes: 4, times: true },
    ]);
    await client.close();
  });

  test("returns the server's output for evicted output, up to the end of the local log", async () => {
    const { client, server, process } = await startEvicted(() => ({
      ...{ ...PAGE, chunks: [output(2, 1), output(3, 1), output(4, 1)], nextSeq: 5 },
      gap: { fromSeq: 1, toSeq: 1, bytes: 10 },
    }));
    const result = await process.read({ maxBytes: 99 });
    assert.deepEqual(
      result.chunks.map(({ seq }) => seq),
      [2, 3],
    );
    assert.deepEqual([result.nextSeq, result.gap], [4, { fromSeq: 1, toSeq: 1, bytes: 10 }]);
    assert.deepEqual(server.calls("process/read"), [{ processId: "p", afterSeq: 0, maxBytes: 99 }]);
    await client.close();
  });

  test("returns the local result if the server has evicted the output too", async () => {
    const { client, process } = await startEvicted(() => ({ ...PAGE, chunks: [output(3, 1)], nextSeq: 4 }));
    const result = await process.read();
    assert.deepEqual(result.gap, { fromSeq: 1, toSeq: 2, bytes: 20 });
    assert.equal(result.chunks[0]?.chunk.length, 10);
    await client.close();
  });

  test("returns the local result if the server has forgotten the process or is disconnected", async () => {
    const { client, server, process } = await startEvicted(reject("unknown process id p"));
    assert.equal((await process.read()).gap?.toSeq, 2);
    server.answers["process/read"] = () => NO_ANSWER;
    const reading = process.read();
    await flushEventLoop();
    await client.close();
    assert.equal((await reading).gap?.toSeq, 2);
    const calls = server.calls("process/read").length;
    assert.equal((await process.read()).gap?.toSeq, 2);
    assert.equal(server.calls("process/read").length, calls);
  });

  test("reads only the local log if nothing is evicted", async () => {
    const { client, server, process } = await startOne();
    server.current.notify("process/output", output(1, 5));
    await flushEventLoop();
    assert.equal((await process.read({ afterSeq: 0 })).chunks[0]?.chunk.length, 5);
    assert.deepEqual(server.calls("process/read"), []);
    await client.close();
  });
});

describe("RemoteProcess.wait", () => {
  test("calls an extended server, and resolves once the log has the events of the result", async () => {
    const { client, server, process } = await startOne({ "process/wait": () => ({ ...WAITED, seq: 2 }) });
    let result: unknown = null;
    const until = { type: "output" as const, pattern: "x" };
    const waiting = process.wait({ until, afterSeq: 0, timeoutMs: 100 }).then((value) => {
      result = value;
    });
    await flushEventLoop();
    assert.deepEqual(server.calls("process/wait"), [{ processId: "p", until, afterSeq: 0, timeoutMs: 100 }]);
    server.current.notify("process/output", output(1, 5));
    await flushEventLoop();
    assert.equal(result, null);
    server.current.notify("process/output", output(2, 5));
    await waiting;
    assert.deepEqual(result, { ...WAITED, seq: 2 });
    await client.close();
  });

  test("stops waiting for the log on abort, at the end of the process and while a reader pauses it", async () => {
    const aborted = await startOne({ "process/wait": () => ({ ...WAITED, seq: 9 }) });
    const controller = new AbortController();
    const waiting = aborted.process.wait({ signal: controller.signal });
    await flushEventLoop();
    controller.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
    const failing = aborted.process.wait();
    await flushEventLoop();
    await aborted.client.close();
    assert.equal((await failing).seq, 9);
    const paused = await startOne({ "process/wait": () => ({ ...WAITED, seq: 9 }) });
    const events = paused.process.events({ lossless: true });
    void events.next();
    await paused.clock.advance(0);
    for (let seq = 1; seq <= 4; seq++) paused.server.current.notify("process/output", output(seq, 500_000));
    await flushEventLoop();
    assert.equal((await paused.process.wait()).seq, 9);
    await events.return?.();
    await paused.client.close();
  });

  test("uses the log if the exit is known, but calls the server for other conditions", async () => {
    const { client, server, process, exit } = await startOne({
      "process/wait": () => ({ ...WAITED, seq: 1 }),
    });
    exit(1, { exitCode: 5 });
    await flushEventLoop();
    assert.equal((await process.wait()).exitCode, 5);
    assert.equal((await process.wait({ until: { type: "exit" } })).exitCode, 5);
    assert.deepEqual(server.calls("process/wait"), []);
    await process.wait({ until: { type: "bytes", count: 9 } });
    assert.equal(server.calls("process/wait").length, 1);
    await client.close();
  });

  test("uses the log after the client is closed", async () => {
    const { client, server, process, exit } = await startOne({ "process/wait": () => NO_ANSWER });
    const waiting = assert.rejects(process.wait({ until: { type: "bytes", count: 9 } }), /disconnected/);
    exit(1, { exitCode: 5 });
    await flushEventLoop();
    await client.close();
    await waiting;
    for (const until of [
      { type: "bytes", count: 9 },
      { type: "port", port: 80 },
    ] as const)
      await assert.rejects(process.wait({ until }), /disconnected/);
    assert.equal((await process.wait()).exitCode, 5);
    assert.equal(server.calls("process/wait").length, 1);
  });

  test("uses the closed log if the server has forgotten the process, otherwise rejects", async () => {
    const { client, process, exit, close } = await startOne({
      "process/wait": reject("unknown process id p"),
    });
    await assert.rejects(process.wait(), /unknown process id p/);
    exit(1, { exitCode: 5 });
    close(2);
    await flushEventLoop();
    assert.equal((await process.wait({ until: { type: "bytes", count: 9 } })).exitCode, 5);
    await client.close();
    const other = await startOne({ "process/wait": reject("too many waits") });
    other.exit(1);
    other.close(2);
    await flushEventLoop();
    await assert.rejects(other.process.wait({ until: { type: "bytes", count: 9 } }), /too many waits/);
    await other.client.close();
  });

  test("resends a wait without timeout unchanged", async () => {
    const { client, server, process } = await startOne({ "process/wait": () => NO_ANSWER });
    server.answers["process/read"] = () => ({ ...PAGE, nextSeq: 1 });
    const waiting = assert.rejects(process.wait(), /disconnected/);
    await flushEventLoop();
    server.current.cut();
    await flushEventLoop();
    assert.deepEqual(server.calls("process/wait"), [{ processId: "p" }, { processId: "p" }]);
    await client.close();
    await waiting;
  });

  test("resends an expired wait with a timeout of 0", async () => {
    const { client, server, clock, process } = await startOne({ "process/wait": () => NO_ANSWER });
    server.answers["process/read"] = () => ({ ...PAGE, nextSeq: 1 });
    const waiting = assert.rejects(process.wait({ timeoutMs: 50 }), /disconnected/);
    await flushEventLoop();
    await clock.advance(80);
    server.current.cut();
    await flushEventLoop();
    assert.deepEqual(
      server.calls("process/wait").map(({ timeoutMs }) => timeoutMs),
      [50, 0],
    );
    await client.close();
    await waiting;
  });
});

describe("RemoteProcess.snapshot", () => {
  const SNAPSHOT = {
    ...{ stdout: encodeBase64(new Uint8Array([1])), stderr: "", terminal: "", running: true },
    ...{ truncated: false, omittedBytes: 0, totalBytes: 1, exitCode: null, signal: null },
  };

  test("comes from the log of a plain server, and shows whether the process runs", async () => {
    const { client, server, process, exit } = await startOne(PLAIN);
    server.current.notify("process/output", output(1, 3));
    await flushEventLoop();
    assert.deepEqual([(await process.snapshot()).stdout.length, (await process.snapshot()).running], [3, true]);
    exit(2);
    await flushEventLoop();
    assert.equal((await process.snapshot()).running, false);
    assert.deepEqual(server.calls("process/snapshot"), []);
    await client.close();
  });

  test("comes from the log of a failed process", async () => {
    const { client, server, process } = await startOne(PLAIN);
    server.current.notify("process/failed", { processId: "p", message: "lost" });
    await flushEventLoop();
    assert.equal((await process.snapshot()).running, false);
    await client.close();
  });

  test("comes from an extended server, also after the exit", async () => {
    const { client, server, process, exit } = await startOne({ "process/snapshot": reject("no memory") });
    await assert.rejects(process.snapshot(), /no memory/);
    exit(1);
    await flushEventLoop();
    await assert.rejects(process.snapshot(), /no memory/);
    server.answers["process/snapshot"] = reject("unknown process id p");
    await assert.rejects(process.snapshot(), /unknown process id p/);
    server.answers["process/snapshot"] = () => SNAPSHOT;
    assert.equal((await process.snapshot()).stdout.length, 1);
    await client.close();
  });

  test("comes from the log of an exited process without a server, but rejects for a running one", async () => {
    const { client, process, exit } = await startOne();
    exit(1, { exitCode: 4 });
    await flushEventLoop();
    await client.close();
    assert.equal((await process.snapshot()).exitCode, 4);
    const running = await startOne();
    await running.client.close();
    await assert.rejects(running.process.snapshot(), /disconnected/);
  });
});

describe("RemoteProcess.write", () => {
  test("returns the first status that is not accepted of a write in several messages", async () => {
    const { client, server, process } = await startOne({
      "process/write": ({ writeId }) => ({
        status: String(writeId).endsWith("@524288") ? "stdinClosed" : "accepted",
      }),
    });
    const large = await process.write(new Uint8Array(512 * 1024 + 1), { writeId: "w" });
    assert.deepEqual(large, { status: "stdinClosed" });
    assert.deepEqual(
      server.calls("process/write").map(({ writeId }) => writeId),
      ["w@0", "w@524288"],
    );
    assert.deepEqual(await process.write(new Uint8Array(512 * 1024), { writeId: "x" }), {
      status: "accepted",
    });
    assert.equal(server.calls("process/write").at(-1)?.writeId, "x");
    await process.write(new Uint8Array(1024 * 1024), { writeId: "y" });
    assert.equal(server.calls("process/write").at(-1)?.writeId, "y@524288");
    await client.close();
  });

  test("assigns a new write id to each write", async () => {
    const { client, server, process } = await startOne({ "process/write": () => ({ status: "accepted" }) });
    await process.write(new Uint8Array(1));
    await process.write(new Uint8Array(1));
    const ids = server.calls("process/write").map(({ writeId }) => writeId);
    assert.match(String(ids[0]), /[^-]-1$/);
    assert.match(String(ids[1]), /[^-]-2$/);
    await client.close();
  });
});

describe("RemoteProcess.closeStdin", () => {
  test("follows writes that wait for capacity", async () => {
    const { client, server, process } = await startOne({
      "process/write": () => ({ status: "accepted" }),
      "process/closeStdin": () => ({ status: "accepted" }),
    });
    await Promise.all([process.write(new Uint8Array(5 * 1024 * 1024)), process.closeStdin()]);
    const last = server.received.findLast((message) => message.type === "request");
    assert.equal(last?.type === "request" && last.method, "process/closeStdin");
    await client.close();
  });

  async function closeRepeatedly(params: Partial<StartParams>): Promise<unknown[]> {
    const { client, server, process } = await startOne({ "process/read": () => ({ ...PAGE, nextSeq: 1 }) }, params);
    const statuses: unknown[] = [];
    for (let count = 0; count < 2; count++) {
      server.answers["process/closeStdin"] = () => NO_ANSWER;
      const closing = process.closeStdin();
      await flushEventLoop();
      server.answers["process/closeStdin"] = () => ({ status: "stdinClosed" });
      server.current.cut();
      statuses.push((await closing).status);
    }
    await client.close();
    return statuses;
  }

  test("is accepted once if its first copy closed an open stdin", async () => {
    assert.deepEqual(await closeRepeatedly({ pipeStdin: true }), ["accepted", "stdinClosed"]);
    assert.deepEqual(await closeRepeatedly({ tty: true, pipeStdin: false }), ["accepted", "stdinClosed"]);
    assert.deepEqual(await closeRepeatedly({ pipeStdin: undefined }), ["stdinClosed", "stdinClosed"]);
  });

  test("reports a closed stdin if the call was sent once", async () => {
    const { client, server, process } = await startOne({
      "process/closeStdin": () => ({ status: "stdinClosed" }),
    });
    assert.deepEqual(await process.closeStdin(), { status: "stdinClosed" });
    server.answers["process/closeStdin"] = () => ({ status: "accepted" });
    assert.deepEqual(await process.closeStdin(), { status: "accepted" });
    server.answers["process/closeStdin"] = () => NO_ANSWER;
    server.answers["process/read"] = () => ({ ...PAGE, nextSeq: 1 });
    const again = process.closeStdin();
    await flushEventLoop();
    server.answers["process/closeStdin"] = () => ({ status: "stdinClosed" });
    server.current.cut();
    // An earlier call closed stdin, so this one has not.
    assert.deepEqual(await again, { status: "stdinClosed" });
    await client.close();
  });
});

describe("RemoteProcess.terminate", () => {
  const terminated = () => ({ running: true });

  test("sends the mode to an extended server", async () => {
    const { client, server, process } = await startOne({ "process/terminate": terminated });
    const mode = { type: "graceful" as const, timeoutMs: 5 };
    assert.deepEqual(await process.terminate(mode), { running: true });
    assert.deepEqual(server.calls("process/terminate"), [{ processId: "p", mode }]);
    assert.deepEqual(server.calls("process/signal"), []);
    await client.close();
  });

  test("interrupts first on a plain server, and forces the end after the grace period", async () => {
    const { client, server, clock, process } = await startOne({
      ...PLAIN,
      "process/signal": () => ({}),
      "process/terminate": terminated,
    });
    const terminating = process.terminate({ type: "graceful", timeoutMs: 500 });
    await flushEventLoop();
    assert.deepEqual(server.calls("process/signal"), [{ processId: "p", signal: "interrupt" }]);
    await clock.advance(499);
    await flushEventLoop();
    assert.deepEqual(server.calls("process/terminate"), []);
    await clock.advance(1);
    assert.deepEqual(await terminating, { running: true });
    assert.deepEqual(server.calls("process/terminate"), [{ processId: "p" }]);
    await client.close();
  });

  test("reports on a plain server that the process had exited", async () => {
    const { client, process, exit } = await startOne({
      ...PLAIN,
      "process/signal": () => ({}),
      "process/terminate": terminated,
    });
    exit(1);
    await flushEventLoop();
    const result = await process.terminate({ type: "graceful", timeoutMs: 500 });
    assert.deepEqual(result, { running: false });
    await client.close();
  });

  test("sets the exit reason if the server reports none, but not after the exit", async () => {
    const reason = async (terminate: "before" | "after") => {
      const { client, process, exit } = await startOne({ ...PLAIN, "process/terminate": terminated });
      if (terminate === "before") await process.terminate();
      exit(1);
      await flushEventLoop();
      if (terminate === "after") await process.terminate();
      const { exitReason } = await process.wait();
      const { exitReason: noted } = process.follower;
      await client.close();
      return [exitReason, noted];
    };
    assert.deepEqual(await reason("before"), ["terminated", "terminated"]);
    assert.deepEqual(await reason("after"), ["exited", null]);
  });

  async function terminateTwice(answers: Answers, running = false): Promise<unknown> {
    const { client, server, process } = await startOne({
      "process/read": () => ({ ...PAGE, nextSeq: 1 }),
      "process/terminate": () => NO_ANSWER,
      ...answers,
    });
    const terminating = process.terminate();
    await flushEventLoop();
    server.answers["process/terminate"] = () => ({ running });
    server.current.cut();
    try {
      return (await terminating).running;
    } finally {
      await client.close();
    }
  }

  test("returns running: true if a resent call finds the process terminated by its first copy", async () => {
    const waited = (exitReason: string) => () => ({ ...WAITED, exitReason });
    assert.equal(await terminateTwice({ "process/wait": waited("terminated") }), true);
    assert.equal(await terminateTwice({ "process/wait": waited("exited") }), false);
    assert.equal(await terminateTwice({ "process/wait": reject("unknown process id p") }), false);
    assert.equal(await terminateTwice({ ...PLAIN, "process/wait": waited("terminated") }), false);
    const unexpected = { "process/wait": () => assert.fail("the result is known") };
    assert.equal(await terminateTwice(unexpected, true), true);
  });

  test("does not request the exit reason if the call was sent once", async () => {
    const { client, server, process } = await startOne({
      "process/terminate": () => ({ running: false }),
      "process/wait": () => ({ ...WAITED, exitReason: "terminated" }),
    });
    assert.deepEqual(await process.terminate(), { running: false });
    assert.deepEqual(server.calls("process/wait"), []);
    await client.close();
  });
});

describe("disposal of a RemoteProcess", () => {
  test("waits at most 5 s for the exit of the terminated process, then fails its log", async () => {
    const { client, clock, server, process } = await startOne({
      "process/terminate": () => ({ running: true }),
      "process/read": () => ({ ...PAGE, nextSeq: 1 }),
    });
    let isDisposed = false;
    const disposing = process[Symbol.asyncDispose]().then(() => {
      isDisposed = true;
    });
    await flushEventLoop();
    await clock.advance(4999);
    await flushEventLoop();
    assert.equal(isDisposed, false);
    await clock.advance(1);
    await disposing;
    assert.equal(process.log.failure?.message, "process p was disposed");
    assert.equal(server.calls("process/read").length, 1);
    await client.close();
  });

  test("does not terminate a closed process", async () => {
    const { client, server, process, exit, close } = await startOne();
    exit(1);
    close(2);
    await flushEventLoop();
    await process[Symbol.asyncDispose]();
    assert.deepEqual(server.calls("process/terminate"), []);
    assert.deepEqual(server.calls("process/read"), []);
    await client.close();
  });

  test("rejects if the server violates the protocol", async () => {
    const { client, process } = await startOne({ "process/terminate": () => "nonsense" });
    await assert.rejects(process[Symbol.asyncDispose](), /invalid response to process\/terminate/);
    await client.close();
  });

  test("succeeds if the process can no longer be tracked meanwhile", async () => {
    const { client, server, process } = await startOne({ "process/terminate": () => ({ running: true }) });
    const disposing = process[Symbol.asyncDispose]();
    await flushEventLoop();
    server.current.notify("process/failed", { processId: "p", message: "its reader broke" });
    await disposing;
    await client.close();
  });

  test("succeeds if the server rejects the termination or is disconnected", async () => {
    const { client, server, process } = await startOne({
      "process/terminate": reject("unknown process id p"),
      "process/read": reject("unknown process id p"),
    });
    await process[Symbol.asyncDispose]();
    assert.equal(process.log.failure?.message, "process p was disposed");
    const other = await client.start({ ...START, processId: "q" });
    server.answers["process/terminate"] = () => NO_ANSWER;
    const disposing = other[Symbol.asyncDispose]();
    await flushEventLoop();
    await client.close();
    await disposing;
  });
});
