import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { StartParams } from "../../../src/exec/exec-process.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { ErrorCode, RequestError } from "../../../src/protocol/errors.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "../scripted-server.ts";

const START: StartParams = { processId: "p", argv: ["cat"], cwd: "/", env: {}, tty: false };
const PAGE = { chunks: [], nextSeq: 1, exited: false, exitCode: null, closed: false, failure: null };
const EXITED = { ...PAGE, nextSeq: 3, exited: true, exitCode: 9, closed: true };

type Answers = ConstructorParameters<typeof ScriptedServer>[0];

const output = (seq: number, bytes: number) => ({
  ...{ processId: "p", seq, stream: "stdout", chunk: encodeBase64(new Uint8Array(bytes).fill(seq)) },
});

/** Responds to `process/read` with the output after `afterSeq`. */
function reads(chunks: ReturnType<typeof output>[], rest: object): NonNullable<Answers>[string] {
  return ({ afterSeq }) => ({ ...PAGE, chunks: chunks.filter(({ seq }) => seq > Number(afterSeq)), ...rest });
}

async function startOne(answers: Answers = {}) {
  const rig = await connectScripted({}, new ScriptedServer({ "process/list": () => ({ processes: [] }), ...answers }));
  const process = await rig.client.start(START);
  const acks = () => rig.server.notifications("process/ack");
  return { ...rig, process, acks };
}

describe("ProcessFollower", () => {
  test("reads a missing event as soon as a later one arrives", async () => {
    const { client, server, process } = await startOne({
      "process/read": reads([output(1, 5)], { nextSeq: 3 }),
    });
    server.current.notify("process/output", output(2, 5));
    await flushEventLoop();
    assert.equal(process.log.nextSeq, 3);
    assert.equal(server.calls("process/read").length, 1);
    await client.close();
  });

  test("reads the events before a notified gap, and records a gap without reading otherwise", async () => {
    const { client, server, process } = await startOne({
      "process/read": ({ afterSeq }) =>
        afterSeq === 1 ? { ...PAGE, chunks: [output(2, 5)], nextSeq: 3 } : { ...PAGE, nextSeq: 5, gap: gap(3, 4) },
    });
    server.current.notify("process/gap", { processId: "p", ...gap(1, 1) });
    await flushEventLoop();
    assert.equal(process.log.nextSeq, 2);
    assert.deepEqual(server.calls("process/read"), []);
    server.current.notify("process/gap", { processId: "p", ...gap(3, 4) });
    await flushEventLoop();
    assert.equal(process.log.nextSeq, 5);
    assert.equal(server.calls("process/read").length, 2);
    await client.close();
  });

  test("reads nothing before the start result, and everything after a connection was lost before it", async () => {
    const server = new ScriptedServer({
      "process/start": () => NO_ANSWER,
      "process/read": ({ afterSeq }) =>
        afterSeq === 0
          ? { ...PAGE, chunks: [output(1, 5), output(2, 5), output(3, 5)], nextSeq: 5 }
          : { ...PAGE, nextSeq: 5, gap: gap(4, 4) },
      "process/list": () => ({ processes: [] }),
    });
    const { client } = await connectScripted({}, server);
    const starting = client.start(START);
    await flushEventLoop();
    server.current.notify("process/output", output(2, 5));
    server.current.notify("process/gap", { processId: "p", ...gap(4, 4) });
    await flushEventLoop();
    assert.deepEqual(server.calls("process/read"), []);
    server.answers["process/start"] = ({ processId }) => ({ processId });
    server.current.cut();
    const process = await starting;
    await flushEventLoop();
    assert.equal(process.log.nextSeq, 5);
    await client.close();
  });

  test("repeats its ack on a new connection and acknowledges the events it read", async () => {
    const { client, server, process, clock, acks } = await startOne({
      "process/read": reads([output(2, 5)], { nextSeq: 3 }),
    });
    server.current.notify("process/output", output(1, 5));
    await flushEventLoop();
    await clock.advance(25);
    assert.deepEqual(acks(), [{ processId: "p", seq: 1 }]);
    server.current.cut();
    await flushEventLoop();
    assert.equal(process.log.nextSeq, 3);
    assert.deepEqual(acks().slice(1), [
      { processId: "p", seq: 1 },
      { processId: "p", seq: 2 },
    ]);
    await client.close();
  });

  test("requests a small page again if the connection breaks during a large one", async () => {
    const { client, server } = await startOne({ "process/read": () => NO_ANSWER });
    let reads = 0;
    server.answers["process/read"] = ({ afterSeq }) => {
      if (++reads === 2) return NO_ANSWER;
      const seq = Number(afterSeq) + 1;
      return seq > 3 ? { ...PAGE, nextSeq: 4 } : { ...PAGE, chunks: [output(seq, 5)], nextSeq: 4 };
    };
    server.current.cut();
    await flushEventLoop();
    server.current.cut();
    await flushEventLoop();
    assert.deepEqual(
      server.calls("process/read").map(({ maxBytes }) => maxBytes),
      [65_536, 131_072, 65_536, 65_536, 131_072],
    );
    await client.close();
  });

  test("requests signal, reason and limit of an exit that it read from an extended server", async () => {
    const { client, server, process } = await startOne({
      "process/read": () => ({ ...EXITED, sandboxDenied: true }),
      "process/wait": () => ({
        ...{
          reason: "exited",
          exitCode: 9,
          signal: "SIGXCPU",
          exitReason: "limit",
          limit: "cpuTimeMs",
          seq: 2,
        },
      }),
    });
    server.current.cut();
    const { value } = await process.events().next();
    assert.deepEqual(value, {
      ...{ type: "exited", seq: 1, exitCode: 9, signal: "SIGXCPU", reason: "limit", limit: "cpuTimeMs" },
      sandboxDenied: true,
    });
    assert.deepEqual(server.calls("process/wait"), [{ processId: "p", timeoutMs: 0 }]);
    await client.close();
  });

  test("guesses the reason of an exit that it read from a plain server", async () => {
    const plain = { initialize: () => ({ sessionId: "S" }) };
    const { client, server, process } = await startOne({
      ...plain,
      "process/read": () => ({ ...EXITED, exitCode: null }),
    });
    server.current.cut();
    const { value } = await process.events().next();
    assert.deepEqual(value, {
      ...{ type: "exited", seq: 1, exitCode: -1, signal: null, reason: "exited", sandboxDenied: false },
    });
    assert.deepEqual(server.calls("process/wait"), []);
    assert.deepEqual(server.calls("process/list"), []);
    await client.close();
  });

  test("does not request a pid that it already has", async () => {
    const { client, server, process } = await startOne({ "process/read": () => PAGE });
    server.current.notify("process/started", { processId: "p", pid: 7 });
    await flushEventLoop();
    server.current.cut();
    await flushEventLoop();
    assert.deepEqual(server.calls("process/list"), []);
    assert.equal(process.pid, 7);
    await client.close();
  });

  test("has no pid if the server does not list the process", async () => {
    const { client, server, process } = await startOne({ "process/read": () => PAGE });
    server.current.cut();
    await flushEventLoop();
    assert.equal(server.calls("process/list").length, 1);
    assert.equal(process.pid, null);
    await client.close();
  });

  test("fails the log if the server cannot be read, with the server's error as the cause", async () => {
    const { client, server, process } = await startOne({
      "process/read": () => {
        throw new RequestError(ErrorCode.invalidRequest, "unknown process id p");
      },
    });
    server.current.cut();
    await flushEventLoop();
    const failure = process.log.failure;
    assert.equal(failure?.message, "process p can no longer be followed: unknown process id p");
    assert.ok(failure?.cause instanceof RequestError);
    await client.close();
  });

  test("acknowledges nothing while a lossless reader is slow, and the connection keeps reading", async () => {
    const { client, server, process, clock, acks } = await startOne();
    await clock.advance(0);
    const events = process.events({ lossless: true });
    void events.next();
    for (let seq = 1; seq <= 10; seq++) server.current.notify("process/output", output(seq, 500_000));
    await flushEventLoop();
    await clock.advance(100);
    assert.equal(process.log.nextSeq, 11);
    const before = acks().length;
    assert.ok(before < 10);
    await events.return?.();
    await flushEventLoop();
    assert.deepEqual(acks().slice(before), [{ processId: "p", seq: 10 }]);
    await client.close();
  });
});

function gap(fromSeq: number, toSeq: number): object {
  return { fromSeq, toSeq, bytes: 5 };
}
