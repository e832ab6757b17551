import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ErrorCode, RequestError } from "../../../src/protocol/errors.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "../scripted-server.ts";

const START = { processId: "p", argv: ["true"], cwd: "/", env: {}, tty: false };
const READ = { chunks: [], exited: true, exitCode: 0, closed: false, failure: null };

/** Starts a process and disposes it after its exit, before it closed. */
async function disposeOne(answers: ConstructorParameters<typeof ScriptedServer>[0] = {}) {
  const server = new ScriptedServer({
    "process/terminate": () => ({ running: false }),
    "process/read": () => ({ ...READ, nextSeq: 2 }),
    ...answers,
  });
  const { client } = await connectScripted({}, server);
  const process = await client.start(START);
  server.current.notify("process/exited", { processId: "p", seq: 1, exitCode: 0 });
  await flushEventLoop();
  await process[Symbol.asyncDispose]();
  await flushEventLoop();
  const acks = () => server.notifications("process/ack");
  return { client, server, acks };
}

describe("a process that was disposed before it closed", () => {
  test("gets acks for the events that the server emitted before and after the disposal", async () => {
    const { client, server, acks } = await disposeOne({
      "process/read": () => ({ ...READ, nextSeq: 4 }),
    });
    assert.deepEqual(acks().at(-1), { processId: "p", seq: 3 });
    server.current.notify("process/output", { processId: "p", seq: 4, stream: "stdout", chunk: "" });
    await flushEventLoop();
    assert.deepEqual(acks().at(-1), { processId: "p", seq: 4 });
    server.current.notify("process/closed", { processId: "p", seq: 5 });
    await flushEventLoop();
    assert.deepEqual(acks().at(-1), { processId: "p", seq: 5 });
    const before = acks().length;
    // The last event was acknowledged, so nothing more follows.
    server.current.notify("process/output", { processId: "p", seq: 6, stream: "stdout", chunk: "" });
    await flushEventLoop();
    assert.equal(acks().length, before);
    await client.close();
  });

  test("is forgotten if it had closed meanwhile, or if the server does not know it", async () => {
    const reads = [
      () => ({ ...READ, nextSeq: 3, closed: true }),
      () => {
        throw new RequestError(ErrorCode.invalidRequest, "unknown process id p");
      },
    ];
    for (const read of reads) {
      const { client, server, acks } = await disposeOne({ "process/read": read });
      const before = acks().length;
      server.current.notify("process/output", { processId: "p", seq: 9, stream: "stdout", chunk: "" });
      await flushEventLoop();
      assert.equal(acks().length, before);
      await client.close();
    }
  });

  test("gets acks for events that the server emitted without a connection", async () => {
    const { client, server, acks } = await disposeOne();
    server.answers["process/read"] = () => ({ ...READ, nextSeq: 9 });
    server.current.cut();
    await flushEventLoop();
    assert.deepEqual(acks().at(-1), { processId: "p", seq: 8 });
    await client.close();
  });

  test("is not confused with a new process of the same id", async () => {
    const { client, server, acks } = await disposeOne();
    const before = acks().length;
    const next = await client.start(START);
    server.current.notify("process/output", { processId: "p", seq: 2, stream: "stdout", chunk: "" });
    await flushEventLoop();
    // Event 1 of the new process is missing, so that nothing is acknowledged yet.
    assert.equal(acks().length, before);
    assert.equal(next.log.nextSeq, 1);
    await client.close();
  });

  test("sends no late ack for a new process of the same id", async () => {
    const { client, server, acks } = await disposeOne({ "process/read": () => NO_ANSWER });
    const before = acks().length;
    const pending = server.received.findLast((message) => message.type === "request");
    assert.ok(pending?.type === "request" && pending.method === "process/read");
    await client.start(START);
    server.current.respond(pending.id, { ...READ, nextSeq: 9 });
    await flushEventLoop();
    assert.equal(acks().length, before);
    await client.close();
  });

  test("is not read from a server without acknowledgements", async () => {
    const { client, server } = await disposeOne({
      initialize: () => ({ sessionId: "S", extensions: [] }),
    });
    assert.deepEqual(server.calls("process/read"), []);
    await client.close();
  });
});
