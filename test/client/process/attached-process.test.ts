import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AttachRole } from "../../../src/client/process/attached-process.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { ErrorCode, RequestError } from "../../../src/protocol/errors.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "../scripted-server.ts";

const SIZE = { rows: 24, cols: 80 };
const LARGE = { rows: 50, cols: 200 };
const ATTACHED = {
  ...{ processId: "p", handle: "h", argv: ["vim"], cwd: "file:///src", tty: true },
  ...{ size: SIZE, startedAtMs: 99, running: true, nextSeq: 7 },
};

function attachServer(): ScriptedServer {
  return new ScriptedServer({
    initialize: () => ({ sessionId: "S", extensions: ["attach", "outputAck"] }),
    "process/attach": ({ role, processId = "h" }) => ({ ...ATTACHED, role, processId }),
    "process/detach": () => ({}),
    "process/read": () => ({
      ...{ chunks: [], nextSeq: 1, exited: false, exitCode: null, closed: false, failure: null },
    }),
  });
}

async function attachOne() {
  const { client, server, clock } = await connectScripted({}, attachServer());
  const process = await client.attach("h", { processId: "p" });
  return { client, server, clock, process };
}

describe("AttachedProcess", () => {
  test("attaches as viewer by default, under its handle", async () => {
    const { client, server } = await connectScripted({}, attachServer());
    const process = await client.attach("h");
    assert.deepEqual(server.calls("process/attach"), [{ handle: "h", processId: "h", role: "viewer" }]);
    assert.deepEqual([process.handle, process.processId, process.role], ["h", "h", "viewer"]);
    assert.deepEqual([process.size, process.nextSeq], [SIZE, 7]);
    const { argv, cwd, tty, startedAtMs, handle } = process.listing();
    assert.deepEqual([argv, cwd, tty, startedAtMs, handle], [["vim"], "file:///src", true, 99, "h"]);
    await client.close();
  });

  test("has the requested screen, and starts its log after it", async () => {
    const { client, server } = await connectScripted({}, attachServer());
    const screen = {
      ...{ seq: 4, size: SIZE, cursor: { row: 1, col: 2 }, alternate: true, title: "vim" },
      ...{ data: encodeBase64(Buffer.from("text")), incomplete: "" },
    };
    server.answers["process/attach"] = ({ role }) => ({ ...ATTACHED, role, processId: "p", screen });
    server.answers["process/screen"] = () => ({ ...screen, seq: 6 });
    const process = await client.attach("h", { processId: "p", screen: true });
    assert.equal(server.calls("process/attach")[0]?.screen, true);
    assert.deepEqual([process.screen?.seq, process.screen?.title, process.log.nextSeq], [4, "vim", 5]);
    assert.equal(Buffer.from(process.screen?.data ?? []).toString(), "text");
    assert.equal((await process.renderScreen()).seq, 6);
    // A later call without a screen keeps the first one.
    server.answers["process/attach"] = ({ role }) => ({ ...ATTACHED, role, processId: "p" });
    await process.becomeDriver();
    assert.equal(process.screen?.seq, 4);
    const other = await client.attach("h2", { processId: "q" });
    assert.equal(other.screen, null);
    await client.close();
  });

  test("keeps output from before its result until the caller can subscribe, then evicts it", async () => {
    const server = attachServer();
    server.answers["process/attach"] = ({ role, processId }, peer) => {
      for (let seq = 1; seq <= 3; seq++) {
        const chunk = encodeBase64(new Uint8Array(10));
        peer.notify("process/output", { processId, seq, stream: "pty", chunk });
      }
      return { ...ATTACHED, role, processId };
    };
    const { client, clock } = await connectScripted({ logLimits: { retainedBytes: 10 } }, server);
    const { keepAliveTimers } = clock;
    const process = await client.attach("h", { processId: "p" });
    assert.equal(process.log.retainedBytes, 30);
    assert.equal(clock.keepAliveTimers, keepAliveTimers);
    await clock.advance(0);
    assert.equal(process.log.retainedBytes, 10);
    await client.close();
  });

  test("is attached again on a replacement of the server", async () => {
    const { client, server } = await connectScripted({}, attachServer());
    const { "process/attach": attach } = server.answers;
    assert.ok(attach);
    server.answers.initialize = () => ({ sessionId: "S", extensions: ["attach"], generation: "a" });
    server.current.cut();
    await flushEventLoop();
    server.answers["process/attach"] = () => NO_ANSWER;
    const attaching = client.attach("h", { processId: "p" });
    await flushEventLoop();
    server.answers.initialize = () => ({ sessionId: "S", extensions: ["attach"], generation: "b" });
    server.answers["process/attach"] = attach;
    server.current.cut();
    assert.equal((await attaching).handle, "h");
    assert.equal(server.calls("process/attach").length, 2);
    await client.close();
  });

  test("returns the same object with the new role if it is already attached", async () => {
    const { client, server, process } = await attachOne();
    assert.equal(await client.attach("h", { processId: "p", role: "driver", size: LARGE }), process);
    assert.equal(process.role, "driver");
    assert.deepEqual(server.calls("process/attach").at(-1), {
      ...{ handle: "h", processId: "p", role: "driver", size: LARGE },
    });
    await assert.rejects(client.attach("other", { processId: "p" }), /process p already exists/);
    assert.equal(server.calls("process/attach").length, 2);
    await client.close();
  });

  test("attaches again after a detachment that is in progress", async () => {
    const { client, server, process } = await attachOne();
    const [detached, again] = await Promise.all([process.detach(), client.attach("h", { processId: "p" })]);
    assert.equal(detached, undefined);
    assert.notEqual(again, process);
    assert.deepEqual([process.log.failure === null, again.log.failure], [false, null]);
    assert.deepEqual([server.calls("process/attach").length, server.calls("process/detach").length], [2, 1]);
    await client.close();
  });

  test("frees its id if the server rejects the attachment", async () => {
    const { client, server } = await connectScripted({}, attachServer());
    const { "process/attach": attach } = server.answers;
    assert.ok(attach);
    server.answers["process/attach"] = () => {
      throw new RequestError(ErrorCode.notFound, "unknown handle h");
    };
    await assert.rejects(client.attach("h"), /unknown handle h/);
    server.answers["process/attach"] = attach;
    assert.equal((await client.attach("h")).role, "viewer");
    await client.close();
  });

  test("rejects an attachment if the server does not grant `attach`", async () => {
    const { client, server } = await connectScripted();
    await assert.rejects(client.attach("h"), /process\/attach is not supported by this server/);
    assert.deepEqual(server.calls("process/attach"), []);
    await client.close();
  });

  test("becomes driver and viewer in the order of the calls", async () => {
    const { client, server, process } = await attachOne();
    await Promise.all([process.becomeDriver(LARGE), process.becomeViewer(), process.becomeDriver()]);
    assert.deepEqual(
      server.calls("process/attach").map(({ role, size }) => [role, size]),
      [
        ["viewer", undefined],
        ["driver", LARGE],
        ["viewer", undefined],
        ["driver", undefined],
      ],
    );
    assert.equal(process.role, "driver");
    await client.close();
  });

  test("reports a role that another client changed", async () => {
    const { client, server, process } = await attachOne();
    await process.becomeDriver();
    const changes: [AttachRole, string][] = [];
    process.onRoleChanged = (role, reason) => changes.push([role, reason]);
    server.current.notify("process/roleChanged", { processId: "p", role: "viewer", reason: "taken" });
    await flushEventLoop();
    assert.deepEqual(changes, [["viewer", "taken"]]);
    assert.equal(process.role, "viewer");
    await client.close();
  });

  test("keeps a role change that arrives during the call of a viewer that becomes driver", async () => {
    const { client, server, process } = await attachOne();
    server.answers["process/attach"] = ({ role }, peer) => {
      peer.notify("process/roleChanged", { processId: "p", role: "viewer", reason: "taken" });
      return { ...ATTACHED, role };
    };
    await process.becomeDriver();
    assert.equal(process.role, "viewer");
    assert.equal(server.calls("process/attach").length, 2);
    await client.close();
  });

  test("repeats the call of a driver if a role change arrives during it", async () => {
    const { client, server, process } = await attachOne();
    await process.becomeDriver();
    let notified = false;
    server.answers["process/attach"] = ({ role }, peer) => {
      if (!notified) peer.notify("process/roleChanged", { processId: "p", role: "viewer", reason: "taken" });
      notified = true;
      return { ...ATTACHED, role };
    };
    await process.becomeDriver(LARGE);
    assert.equal(process.role, "driver");
    assert.equal(server.calls("process/attach").length, 4);
    notified = false;
    await process.becomeViewer();
    assert.equal(process.role, "viewer");
    assert.equal(server.calls("process/attach").length, 5);
    await client.close();
  });

  test("returns the terminal size that applies to each sequence number", async () => {
    const { client, server, process } = await attachOne();
    assert.deepEqual(process.sizeAt(3), SIZE);
    const resized: unknown[] = [];
    process.onResized = (change) => resized.push(change);
    const change = { size: LARGE, afterSeq: 4, atMs: 10 };
    server.current.notify("process/resized", { processId: "p", size: SIZE, afterSeq: 1, atMs: 5 });
    server.current.notify("process/resized", { processId: "p", ...change });
    await flushEventLoop();
    assert.deepEqual(resized.at(-1), change);
    assert.deepEqual([process.sizeAt(4), process.sizeAt(5), process.size], [SIZE, LARGE, LARGE]);
    await client.close();
  });

  test("detaches on disposal and frees its output, but does not terminate the process", async () => {
    const { client, server, process } = await attachOne();
    const chunk = encodeBase64(new Uint8Array(10));
    server.current.notify("process/output", { processId: "p", seq: 1, stream: "pty", chunk });
    await flushEventLoop();
    assert.equal(process.log.retainedBytes, 10);
    await process[Symbol.asyncDispose]();
    assert.deepEqual(server.calls("process/detach"), [{ processId: "p" }]);
    assert.deepEqual(server.calls("process/terminate"), []);
    assert.equal(process.log.failure?.message, "detached from process p");
    assert.equal(process.log.retainedBytes, 0);
    await process.detach();
    assert.equal(server.calls("process/detach").length, 1);
    await client.close();
  });

  test("counts as detached if the server no longer knows it or is disconnected", async () => {
    const { client, server, process } = await attachOne();
    server.answers["process/detach"] = () => {
      throw new RequestError(ErrorCode.invalidRequest, "unknown process id p");
    };
    await process.detach();
    assert.equal(process.log.failure?.message, "detached from process p");
    const other = await client.attach("h", { processId: "q" });
    server.answers["process/detach"] = () => NO_ANSWER;
    const detaching = other.detach();
    await client.close();
    await detaching;
  });

  test("pauses the connection as a viewer and withholds acks as a driver while its reader is slow", async () => {
    const { client, server, clock, process } = await attachOne();
    const events = process.events({ lossless: true });
    void events.next();
    const chunk = encodeBase64(new Uint8Array(500_000));
    const output = (seq: number) =>
      server.current.notify("process/output", { processId: "p", seq, stream: "pty", chunk });
    const acks = () => server.notifications("process/ack").length;
    for (let seq = 1; seq <= 10; seq++) output(seq);
    await flushEventLoop();
    await clock.advance(100);
    assert.ok(process.log.nextSeq < 10);
    assert.equal(acks(), process.log.nextSeq - 1);
    // The pending call reads on. Its result makes this client the driver: the connection continues, but acks stop.
    await process.becomeDriver();
    const acksAsViewer = acks();
    output(11);
    await flushEventLoop();
    await clock.advance(100);
    assert.equal(process.log.nextSeq, 12);
    assert.equal(acks(), acksAsViewer);
    await events.return?.();
    await flushEventLoop();
    assert.equal(acks(), acksAsViewer + 1);
    await client.close();
  });
});
