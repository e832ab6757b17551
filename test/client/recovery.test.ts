import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServerClient } from "../../src/client/exec-server-client.ts";
import type { ExecEvent, StartParams } from "../../src/exec/exec-process.ts";
import { encodeBase64 } from "../../src/protocol/base64.ts";
import { DisconnectedError, ErrorCode, RequestError } from "../../src/protocol/errors.ts";
import { EXTENSIONS } from "../../src/protocol/methods.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { runPromiseReactions } from "../support/system/promise-reactions.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "./scripted-server.ts";

const START: StartParams = { processId: "p", argv: ["true"], cwd: "/", env: {}, tty: false, pipeStdin: true };
const bytes = (text: string) => new TextEncoder().encode(text);
const chunk = (seq: number, text: string) => ({ seq, stream: "stdout", chunk: encodeBase64(bytes(text)) });
const NOTHING_NEW = { exited: false, exitCode: null, closed: false, failure: null };

describe("first connection", () => {
  const reset = () => Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" });

  test("is retried at most twice if it is lost before the first response", async () => {
    const server = new ScriptedServer();
    const clock = new ManualClock();
    const { initialize } = server.answers;
    assert.ok(initialize);
    server.refuse = reset;
    server.answers.initialize = (_, peer) => {
      peer.cut("server is being replaced");
      return NO_ANSWER;
    };
    const connecting = ExecServerClient.connect(server.open, { clock });
    await runPromiseReactions();
    server.refuse = null;
    await clock.advance(100);
    await runPromiseReactions();
    assert.equal(server.connections.length, 1);
    server.answers.initialize = initialize;
    await clock.advance(100);
    const client = await connecting;
    assert.equal(server.calls("initialize").length, 2);
    await client.close();

    // A Unix socket that the server has closed reports EPIPE to a client that writes first.
    const closed = () => Object.assign(new Error("write EPIPE"), { code: "EPIPE" });
    for (const error of [reset, closed]) {
      let attempts = 0;
      server.refuse = () => {
        attempts++;
        return error();
      };
      const refused = assert.rejects(ExecServerClient.connect(server.open, { clock }), { code: error().code });
      await runPromiseReactions();
      await clock.advance(200);
      await refused;
      assert.equal(attempts, 3);
    }
  });

  test("is not retried if no server listens, or if a session may have been resumed", async () => {
    const server = new ScriptedServer();
    server.refuse = () => Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
    await assert.rejects(ExecServerClient.connect(server.open), /ECONNREFUSED/);
    server.refuse = reset;
    await assert.rejects(ExecServerClient.connect(server.open, { resumeSessionId: "S" }), /ECONNRESET/);
  });
});

describe("reconnect after a lost connection", () => {
  test("resumes the session at once, with takeover and the extensions", async () => {
    const { server, client, states } = await connectScripted();
    server.current.cut();
    await runPromiseReactions();
    assert.deepEqual(server.calls("initialize").at(-1), {
      clientName: "procwire",
      resumeSessionId: "S",
      // This transport has no binary messages.
      extensions: EXTENSIONS.filter((extension) => extension !== "binaryBlocks"),
      takeOver: true,
    });
    assert.equal(server.notifications("initialized").length, 2);
    assert.deepEqual(
      states.map((state) => state.type),
      ["connected", "reconnecting", "connected"],
    );
    await client.close();
  });

  test("requests no takeover from a server without the extensions", async () => {
    const server = new ScriptedServer();
    server.answers.initialize = () => ({ sessionId: "S" });
    const { client } = await connectScripted({}, server);
    server.current.cut();
    await runPromiseReactions();
    const resumed = server.calls("initialize").at(-1);
    assert.equal(resumed?.resumeSessionId, "S");
    assert.equal(resumed?.takeOver, undefined);
    await client.close();
  });

  test("reads missed events, and the same process object continues", async () => {
    const { server, client } = await connectScripted();
    const process = await client.start(START);
    server.current.notify("process/output", { processId: "p", ...chunk(1, "one ") });
    await runPromiseReactions();
    server.answers["process/read"] = ({ afterSeq }) =>
      afterSeq === 1
        ? { chunks: [chunk(2, "two ")], nextSeq: 3, ...NOTHING_NEW }
        : { chunks: [], nextSeq: 3, ...NOTHING_NEW };
    server.current.cut();
    await runPromiseReactions();
    // Events arrive twice, out of order, and again after the loss: each counts once.
    server.current.notify("process/output", { processId: "p", ...chunk(2, "two ") });
    server.current.notify("process/output", { processId: "p", ...chunk(3, "three") });
    server.current.notify("process/exited", { processId: "p", seq: 4, exitCode: 0 });
    server.current.notify("process/closed", { processId: "p", seq: 5 });
    let text = "";
    const types: ExecEvent["type"][] = [];
    for await (const event of process.events()) {
      types.push(event.type);
      if (event.type === "output") text += new TextDecoder().decode(event.chunk);
    }
    assert.equal(text, "one two three");
    assert.deepEqual(types, ["output", "output", "output", "exited", "closed"]);
    await client.close();
  });

  test("fetches the pid of a process if process/started was lost", async () => {
    const { server, client } = await connectScripted();
    const process = await client.start(START);
    assert.equal(process.pid, null);
    const listing = { argv: ["true"], cwd: "/", tty: false, running: true, exitCode: null, signal: null };
    server.answers["process/read"] = () => ({ chunks: [], nextSeq: 1, ...NOTHING_NEW });
    server.answers["process/list"] = () => ({
      processes: ["other", "p"].map((processId, at) => ({
        ...{ processId, pid: 4710 + at, startedAtMs: 0, outputBytes: 0 },
        ...listing,
      })),
    });
    server.current.cut();
    await runPromiseReactions();
    assert.equal(process.pid, 4711);
    await client.close();
  });

  test("polls every 20 ms while the server still starts the process, and fails it after 10 s", async () => {
    const { server, client, clock } = await connectScripted();
    const processes = [await client.start(START), await client.start({ ...START, processId: "never" })];
    const [process, never] = processes;
    assert.ok(process && never);
    let isStarting = true;
    server.answers["process/list"] = () => ({ processes: [] });
    server.answers["process/read"] = ({ processId }) => {
      if (isStarting || processId === "never")
        throw new RequestError(ErrorCode.invalidRequest, `process ${processId} is starting`);
      return { chunks: [chunk(1, "one")], nextSeq: 2, ...NOTHING_NEW };
    };
    server.current.cut();
    await runPromiseReactions();
    const reads = () => server.calls("process/read").filter(({ processId }) => processId === "p").length;
    assert.equal(reads(), 1);
    await clock.advance(19);
    await runPromiseReactions();
    assert.equal(reads(), 1);
    await clock.advance(1);
    await runPromiseReactions();
    assert.equal(reads(), 2);
    isStarting = false;
    await clock.advance(20);
    await runPromiseReactions();
    assert.equal(process.log.nextSeq, 2);
    await clock.advance(9_900);
    await runPromiseReactions();
    assert.equal(never.log.failure === null, true);
    for (let attempt = 0; attempt < 5; attempt++) {
      await clock.advance(20);
      await runPromiseReactions();
    }
    assert.match(
      String(never.log.failure?.message),
      /^process never can no longer be followed: .*process never is starting$/,
    );
    assert.equal(process.log.failure, null);
    await client.close();
  });

  test("reads an exit that was never notified", async () => {
    const { server, client } = await connectScripted();
    const process = await client.start(START);
    server.answers["process/read"] = () => ({
      chunks: [],
      nextSeq: 3,
      exited: true,
      exitCode: 137,
      closed: true,
      failure: null,
    });
    server.answers["process/wait"] = () => ({ reason: "exited", exitCode: 137, signal: "SIGKILL", seq: 2 });
    server.current.cut();
    const seen: ExecEvent[] = [];
    for await (const event of process.events()) seen.push(event);
    assert.deepEqual(seen, [
      { type: "exited", seq: 1, exitCode: 137, signal: "SIGKILL", reason: "signaled", sandboxDenied: false },
      { type: "closed", seq: 2 },
    ]);
    await client.close();
  });

  test("resends writes in order with their write ids", async () => {
    const { server, client } = await connectScripted();
    const process = await client.start(START);
    server.answers["process/write"] = () => NO_ANSWER;
    const writes = [process.write(bytes("a")), process.write(bytes("b"))];
    await runPromiseReactions();
    server.answers["process/write"] = () => ({ status: "accepted" });
    server.answers["process/read"] = () => ({ chunks: [], nextSeq: 1, ...NOTHING_NEW });
    server.current.cut();
    assert.deepEqual(await Promise.all(writes), [{ status: "accepted" }, { status: "accepted" }]);
    const sent = server.calls("process/write");
    assert.equal(sent.length, 4);
    assert.deepEqual(sent.slice(2), sent.slice(0, 2));
    assert.notEqual(sent[0]?.writeId, sent[1]?.writeId);
    await client.close();
  });

  test("does not resend a signal, and rejects because its outcome is unknown", async () => {
    const { server, client } = await connectScripted();
    const process = await client.start(START);
    server.answers["process/signal"] = () => NO_ANSWER;
    server.answers["process/read"] = () => ({ chunks: [], nextSeq: 1, ...NOTHING_NEW });
    const signalled = process.signal("SIGUSR1");
    await runPromiseReactions();
    server.current.cut();
    await assert.rejects(signalled, (error: Error) => {
      assert.ok(error instanceof DisconnectedError);
      assert.match(error.message, /^exec-server transport disconnected: .*may have been executed/);
      return true;
    });
    await runPromiseReactions();
    assert.equal(server.calls("process/signal").length, 1);
    await client.close();
  });

  test("sends a signal that waits for a connection", async () => {
    const { server, client, clock } = await connectScripted();
    const process = await client.start(START);
    server.answers["process/signal"] = () => ({});
    server.answers["process/read"] = () => ({ chunks: [], nextSeq: 1, ...NOTHING_NEW });
    server.refuse = () => new Error("network is down");
    server.current.cut();
    await runPromiseReactions();
    const signalled = process.signal("SIGUSR1");
    server.refuse = null;
    await clock.advance(100);
    await signalled;
    assert.equal(server.calls("process/signal").length, 1);
    await client.close();
  });

  test("reports a resent closeStdin as accepted if its first copy closed stdin", async () => {
    const cases: [params: Partial<StartParams>, expected: string[]][] = [
      [{ pipeStdin: true }, ["accepted", "stdinClosed"]],
      [{ pipeStdin: false }, ["stdinClosed", "stdinClosed"]],
    ];
    for (const [params, expected] of cases) {
      const { server, client } = await connectScripted();
      const process = await client.start({ ...START, ...params });
      server.answers["process/closeStdin"] = () => NO_ANSWER;
      server.answers["process/read"] = () => ({ chunks: [], nextSeq: 1, ...NOTHING_NEW });
      const closing = [process.closeStdin(), process.closeStdin()];
      await runPromiseReactions();
      server.answers["process/closeStdin"] = () => ({ status: "stdinClosed" });
      server.current.cut();
      assert.deepEqual(
        (await Promise.all(closing)).map(({ status }) => status),
        expected,
      );
      await client.close();
    }
  });

  test("times out on a start without a result, and reports that the process may have started", async () => {
    const { server, client, clock } = await connectScripted();
    server.answers["process/start"] = () => NO_ANSWER;
    const starting = client.start(START);
    const outcome = assert.rejects(starting, {
      code: "TIMEOUT",
      message: /process p to start.*the process may have started.* 10000 ms/,
    });
    await runPromiseReactions();
    server.answers["process/start"] = () => {
      throw new RequestError(ErrorCode.invalidRequest, "process p already exists");
    };
    server.answers["process/read"] = () => {
      throw new RequestError(ErrorCode.invalidRequest, "process id p is starting");
    };
    server.current.cut();
    await runPromiseReactions();
    await clock.advance(11_000);
    await outcome;
    await client.close();
  });

  test("is forced if an in-order server would block on an aborted HTTP request", async () => {
    const server = new ScriptedServer();
    server.answers.initialize = () => ({ sessionId: "S" });
    const { client, states } = await connectScripted({}, server);
    server.answers["http/request"] = () => NO_ANSWER;
    for (const ask of [client.http.request.bind(client.http), client.http.stream.bind(client.http)]) {
      const controller = new AbortController();
      const request = ask({ url: "http://127.0.0.1/", signal: controller.signal });
      await runPromiseReactions();
      controller.abort(new Error("no longer wanted"));
      await assert.rejects(request, { message: "no longer wanted" });
      await runPromiseReactions();
    }
    assert.equal(server.connections.length, 3);
    assert.equal(states.at(-1)?.type, "connected");
    await client.close();
  });

  test("starts after a transport ping without reply, for a server that handles requests in order", async () => {
    const server = new ScriptedServer();
    server.answers.initialize = () => ({ sessionId: "S" });
    const pings: (() => void)[] = [];
    const open = server.open;
    const withPings = () => Object.assign(open(), { ping: (onAnswer: () => void) => pings.push(onAnswer) });
    const clock = new ManualClock();
    const states: string[] = [];
    const client = await ExecServerClient.connect(withPings, {
      clock,
      onConnectionState: ({ type }) => states.push(type),
    });
    await clock.advance(15_000);
    assert.equal(pings.length, 1);
    pings[0]?.();
    await runPromiseReactions();
    await clock.advance(15_000);
    assert.equal(pings.length, 2);
    assert.deepEqual(states, ["connected"]);
    await clock.advance(10_000);
    await runPromiseReactions();
    assert.deepEqual(states, ["connected", "reconnecting", "connected"]);
    assert.equal(server.calls("environment/status").length, 0);
    await client.close();
  });

  test("treats `already exists` as success if the result of the start was lost", async () => {
    const { server, client } = await connectScripted();
    server.answers["process/start"] = () => NO_ANSWER;
    const starting = client.start(START);
    await runPromiseReactions();
    server.answers["process/start"] = () => {
      throw new RequestError(ErrorCode.invalidRequest, "process p already exists");
    };
    server.answers["process/read"] = () => ({ chunks: [chunk(1, "hi")], nextSeq: 2, ...NOTHING_NEW });
    server.answers["process/list"] = () => ({ processes: [] });
    server.current.cut();
    const process = await starting;
    const first = await process.events().next();
    assert.equal(first.value?.type, "output");
    await client.close();
  });

  test("reports why a start failed if its first error response was lost", async () => {
    const { server, client } = await connectScripted();
    server.answers["process/start"] = () => NO_ANSWER;
    const starting = client.start(START);
    await runPromiseReactions();
    let tries = 0;
    server.answers["process/start"] = () => {
      if (tries++ === 0) throw new RequestError(ErrorCode.invalidRequest, "process p already exists");
      throw new RequestError(ErrorCode.internal, "No such file or directory (os error 2)");
    };
    server.answers["process/read"] = () => {
      throw new RequestError(ErrorCode.invalidRequest, "unknown process id p");
    };
    server.current.cut();
    await assert.rejects(starting, { code: "ENOENT", message: "no such program: `true`" });
    await client.close();
  });

  test("does not resend a start to a replacement of the server", async () => {
    const { server, client } = await connectScripted();
    server.answers["process/start"] = () => NO_ANSWER;
    const starting = client.start(START);
    await runPromiseReactions();
    server.answers.initialize = () => ({ sessionId: "S", extensions: [], generation: "bbbbbbbb-2" });
    server.current.cut();
    await assert.rejects(
      starting,
      /the server was replaced \(generation unknown, now bbbbbbbb-2\) before the response arrived; the request may have been executed/,
    );
    assert.equal(server.calls("process/start").length, 1);
    await client.close();
  });

  test("treats `already exists` as an error if the start was sent once", async () => {
    const { server, client } = await connectScripted();
    server.answers["process/start"] = () => {
      throw new RequestError(ErrorCode.invalidRequest, "process p already exists");
    };
    await assert.rejects(client.start(START), { message: "process p already exists" });
    await client.close();
  });

  test("reduces the timeout of a resent wait", async () => {
    const { server, client, clock } = await connectScripted();
    const process = await client.start(START);
    server.answers["process/wait"] = () => NO_ANSWER;
    const waiting = process.wait({ timeoutMs: 1000 });
    await runPromiseReactions();
    await clock.advance(400);
    server.answers["process/wait"] = () => ({ reason: "timeout", exitCode: null, signal: null, seq: 0 });
    server.answers["process/read"] = () => ({ chunks: [], nextSeq: 1, ...NOTHING_NEW });
    server.current.cut();
    assert.equal((await waiting).reason, "timeout");
    assert.deepEqual(
      server.calls("process/wait").map(({ timeoutMs }) => timeoutMs),
      [1000, 600],
    );
    await client.close();
  });

  test("retries after 100 ms, doubling to 2 s, until 25 s have passed", async () => {
    const server = new ScriptedServer();
    const { clock, client, states } = await connectScripted({}, server);
    const startedAt = clock.now();
    const tries: number[] = [];
    server.refuse = () => {
      tries.push(clock.now() - startedAt);
      return new Error("network is down");
    };
    server.current.cut();
    await runPromiseReactions();
    await clock.advance(30_000);
    assert.deepEqual(tries.slice(0, 7), [0, 100, 300, 700, 1500, 3100, 5100]);
    assert.ok((tries.at(-1) ?? 0) < 25_000);
    const last = states.at(-1);
    assert.ok(last?.type === "sessionLost");
    assert.match(
      last.error.message,
      /^exec-server transport disconnected: connection lost; failed to resume exec-server session: network is down$/,
    );
    const listing = assert.rejects(client.list(), {
      name: "DisconnectedError",
      message: "exec-server transport disconnected: session lost; failed to open a new session: network is down",
    });
    await clock.advance(5000);
    await listing;
    await client.close();
  });

  test("retries while another connection has the session", async () => {
    const { server, client, clock, states } = await connectScripted();
    let refusals = 0;
    server.answers.initialize = () => {
      if (refusals++ < 3)
        throw new RequestError(ErrorCode.sessionAttached, "session S is already attached to another connection");
      return { sessionId: "S", extensions: [] };
    };
    server.current.cut();
    await runPromiseReactions();
    await clock.advance(1000);
    assert.equal(refusals, 4);
    assert.equal(states.at(-1)?.type, "connected");
    await client.close();
  });

  test("fails at once if the session is unknown", async () => {
    const { server, states } = await connectScripted();
    server.answers.initialize = () => {
      throw new RequestError(ErrorCode.invalidRequest, "unknown session id S");
    };
    server.current.cut();
    await runPromiseReactions();
    const last = states.at(-1);
    assert.ok(last?.type === "sessionLost");
    assert.match(last.error.message, /unknown session id S/);
  });

  test("fails at once if the server opens a new session instead", async () => {
    const { server, states } = await connectScripted();
    server.answers.initialize = () => ({ sessionId: "OTHER", extensions: [] });
    server.current.cut();
    await runPromiseReactions();
    const last = states.at(-1);
    assert.ok(last?.type === "sessionLost");
    assert.match(last.error.message, /unknown session id S: the server opened another one/);
  });

  for (const code of ["ECONNREFUSED", "ENOENT"]) {
    const refusal = () => Object.assign(new Error(`connect ${code}`), { code });

    test(`retries while no server listens, until the client's deadline (${code})`, async () => {
      const { server, client, clock, states } = await connectScripted();
      server.refuse = refusal;
      server.current.cut();
      await runPromiseReactions();
      await clock.advance(20_000);
      assert.equal(states.at(-1)?.type, "reconnecting");
      server.refuse = null;
      await clock.advance(2000);
      assert.equal(states.at(-1)?.type, "connected");
      await client.close();
    });

    test(`fails if no server listens for 25 s (${code})`, async () => {
      const { server, clock, states } = await connectScripted();
      server.refuse = refusal;
      server.current.cut();
      await runPromiseReactions();
      await clock.advance(25_000);
      assert.equal(states.at(-1)?.type, "sessionLost");
      assert.equal(server.connections.length, 1);
    });
  }

  test("sends its attachment id, and fails if another client has taken over the session", async () => {
    const { server, states } = await connectScripted();
    server.answers.initialize = () => ({ sessionId: "S", extensions: [], attachmentId: "7" });
    server.current.cut();
    await runPromiseReactions();
    server.answers.initialize = () => {
      throw new RequestError(ErrorCode.sessionAttached, "session S was taken over by another connection", {
        reason: "sessionTakenOver",
      });
    };
    server.current.cut();
    await runPromiseReactions();
    const { takeOver, takeOverFrom } = server.calls("initialize").at(-1) ?? {};
    assert.deepEqual([takeOver, takeOverFrom], [true, "7"]);
    const last = states.at(-1);
    assert.ok(last?.type === "disconnected");
    assert.match(last.error.message, /session S was taken over by another connection/);
  });

  test("starts after a heartbeat without reply", async () => {
    const { server, client, clock, states } = await connectScripted();
    await clock.advance(14_999);
    assert.equal(server.calls("environment/status").length, 0);
    await clock.advance(1);
    assert.equal(server.calls("environment/status").length, 1);
    server.answers["environment/status"] = () => NO_ANSWER;
    await clock.advance(15_000);
    assert.equal(server.calls("environment/status").length, 2);
    await clock.advance(10_000);
    await runPromiseReactions();
    assert.deepEqual(
      states.map((state) => state.type),
      ["connected", "reconnecting", "connected"],
    );
    await client.close();
  });

  test("does not happen with reconnect: false", async () => {
    const { server, client, states } = await connectScripted({ reconnect: false });
    const process = await client.start(START);
    server.answers["process/write"] = () => NO_ANSWER;
    const writing = process.write(bytes("x"));
    const reading = process.read({ waitMs: 60_000 });
    await runPromiseReactions();
    server.current.cut();
    await assert.rejects(writing, { message: "exec-server transport disconnected" });
    const result = await reading;
    assert.equal(result.failure, "exec-server transport disconnected");
    assert.equal(result.closed, true);
    const events: ExecEvent[] = [];
    for await (const event of process.events()) events.push(event);
    const [failed] = events;
    assert.ok(failed?.type === "failed" && events.length === 1);
    assert.equal(failed.message, "exec-server transport disconnected");
    assert.ok(failed.error instanceof DisconnectedError);
    await assert.rejects(process.write(bytes("y")), DisconnectedError);
    await assert.rejects(process.wait(), DisconnectedError);
    assert.equal(server.connections.length, 1);
    assert.equal(states.at(-1)?.type, "disconnected");
  });

  test("ends v0 processes", async () => {
    const { server, client } = await connectScripted();
    server.answers["command/exec"] = () => ({ sessionId: "session-1" });
    const events = client.eventReceiver();
    await client.exec({ argv: ["cat"], cwd: "/", env: {}, tty: true });
    server.current.notify("command/exec/outputDelta", {
      sessionId: "session-1",
      stream: "stdout",
      chunk: encodeBase64(bytes("hi")),
    });
    await runPromiseReactions();
    server.current.cut();
    assert.deepEqual((await events.next()).value?.type, "output");
    assert.deepEqual((await events.next()).value, {
      type: "exited",
      sessionId: "session-1",
      exitCode: -1,
    });
    await client.close();
    assert.equal((await events.next()).done, true);
  });

  test("reports one exit for a v0 process that exits in the packet of its start result", async () => {
    const { server, client } = await connectScripted();
    server.answers["command/exec"] = (_params, peer) => {
      queueMicrotask(() => peer.notify("command/exec/exited", { sessionId: "session-1", exitCode: 0 }));
      return { sessionId: "session-1" };
    };
    const events = client.eventReceiver();
    await client.exec({ argv: ["true"], cwd: "/", env: {}, tty: false });
    await runPromiseReactions();
    server.current.cut();
    await runPromiseReactions();
    await client.close();
    const seen: unknown[] = [];
    for await (const event of events) seen.push(event);
    assert.deepEqual(seen, [{ type: "exited", sessionId: "session-1", exitCode: 0 }]);
  });

  test("does not happen if the peer violates the protocol", async () => {
    const { server, states } = await connectScripted();
    server.current.notify("process/output", {
      processId: "p",
      seq: 1,
      stream: "stdout",
      chunk: "not base64!",
    });
    await runPromiseReactions();
    assert.equal(states.at(-1)?.type, "disconnected");
    assert.equal(server.connections.length, 1);
  });
});
