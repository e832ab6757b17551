import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type ExecServerEvent, V0Client } from "../../../src/client/process/v0-client.ts";
import { encodeBase64 } from "../../../src/protocol/base64.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { connectScripted, NO_ANSWER, ScriptedServer } from "../scripted-server.ts";

const MIB = 1024 * 1024;
/** Cost of an event in addition to its bytes. */
const EVENT_COST_BYTES = 128;
const EXEC = { argv: ["true"], cwd: "/", env: {}, tty: false };

/** A client that makes no calls. */
function receiveOnly(): V0Client {
  const fail = () => assert.fail("no call expected");
  return new V0Client({
    run: fail,
    get current() {
      return fail();
    },
  });
}

function output(client: V0Client, stamp: number): void {
  const chunk = new Uint8Array(MIB - EVENT_COST_BYTES).fill(stamp);
  client.onNotification({
    method: "command/exec/outputDelta",
    params: { sessionId: "s", stream: "stdout", chunk },
  });
}

async function read(events: AsyncIterator<ExecServerEvent>, count: number): Promise<unknown[]> {
  const seen: unknown[] = [];
  for (let at = 0; at < count; at++) {
    const { value } = await events.next();
    seen.push(value?.type === "output" ? value.chunk[0] : value);
  }
  return seen;
}

describe("V0Client", () => {
  test("drops the older half of more than 8 MiB of unread events, and reports how many", async () => {
    const client = receiveOnly();
    const events = client.receiver();
    for (let stamp = 1; stamp <= 9; stamp++) output(client, stamp);
    assert.deepEqual(await read(events, 5), [{ type: "lagged", skipped: 5 }, 6, 7, 8, 9]);
  });

  test("keeps 8 MiB of unread events", async () => {
    const client = receiveOnly();
    const events = client.receiver();
    for (let stamp = 1; stamp <= 8; stamp++) output(client, stamp);
    assert.deepEqual(await read(events, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
  });

  test("adds up the dropped events if it drops its own report", async () => {
    const client = receiveOnly();
    const events = client.receiver();
    for (let stamp = 1; stamp <= 13; stamp++) output(client, stamp);
    assert.deepEqual(await read(events, 5), [{ type: "lagged", skipped: 9 }, 10, 11, 12, 13]);
  });

  test("drops unread events without output too", async () => {
    const client = receiveOnly();
    const events = client.receiver();
    const most = (8 * MIB) / EVENT_COST_BYTES;
    for (let exitCode = 0; exitCode <= most; exitCode++)
      client.onNotification({ method: "command/exec/exited", params: { sessionId: "s", exitCode } });
    const skipped = most / 2 + 1;
    assert.deepEqual(await read(events, 2), [
      { type: "lagged", skipped },
      { type: "exited", sessionId: "s", exitCode: skipped },
    ]);
  });

  test("ends its receivers with the connection, also later ones", async () => {
    const client = receiveOnly();
    const [early, returned] = [client.receiver(), client.receiver()];
    await returned.return?.();
    client.onEnded();
    assert.equal((await early.next()).done, true);
    assert.equal((await client.receiver().next()).done, true);
  });

  test("reports the exit of its processes if the client does not reconnect", async () => {
    const server = new ScriptedServer({ "command/exec": () => ({ sessionId: "s" }) });
    const { client } = await connectScripted({ reconnect: false }, server);
    const events = client.eventReceiver();
    await client.exec(EXEC);
    server.current.cut();
    assert.deepEqual(await read(events, 2), [{ type: "exited", sessionId: "s", exitCode: -1 }, undefined]);
  });

  test("returns the results of its calls, and rejects with the reason of an abort", async () => {
    const { client, server } = await connectScripted(
      {},
      new ScriptedServer({
        "command/exec": () => ({ sessionId: "s" }),
        "command/exec/write": () => ({ accepted: true }),
        "command/exec/terminate": () => ({ running: true }),
      }),
    );
    assert.deepEqual(await client.exec(EXEC), { sessionId: "s" });
    assert.deepEqual(await client.write("s", new Uint8Array([104, 105])), { accepted: true });
    assert.deepEqual(await client.terminate("s"), { running: true });
    assert.deepEqual(server.calls("command/exec/write"), [
      { sessionId: "s", chunk: encodeBase64(new Uint8Array([104, 105])) },
    ]);
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(client.exec(EXEC, { signal }), /enough/);
    await assert.rejects(client.write("s", new Uint8Array(1), { signal }), /enough/);
    await assert.rejects(client.terminate("s", { signal }), /enough/);
    await client.close();
  });

  test("rejects invalid arguments without a request", async () => {
    const { client, server } = await connectScripted();
    const sent = server.received.length;
    const calls: [(...args: never[]) => unknown, unknown[], RegExp][] = [
      [client.exec, [{ ...EXEC, argv: "cat" }], /exec: invalid `(params.)?argv`: got "cat"/],
      [client.exec, [EXEC, { wait: 5 }], /exec: unknown option `wait`/],
      [client.write, [5, "x"], /write: invalid `sessionId`: got 5/],
      [client.write, ["s", 5], /write: invalid `data`: got 5/],
      [client.terminate, [5], /terminate: invalid `sessionId`: got 5/],
    ];
    for (const [call, args, message] of calls)
      await assert.rejects(async () => await Reflect.apply(call, client, args), { code: "EINVAL", message });
    assert.equal(server.received.length, sent);
    await client.close();
  });

  test("reports an exit before the start result once, also among other starts", async () => {
    const ids: (string | number | bigint)[] = [];
    const { client, server } = await connectScripted({}, new ScriptedServer({ "command/exec": () => NO_ANSWER }));
    const events = client.eventReceiver();
    const starts = [client.exec(EXEC), client.exec(EXEC)];
    await flushEventLoop();
    for (const message of server.received)
      if (message.type === "request" && message.method === "command/exec") ids.push(message.id);
    const [first = "", second = ""] = ids;
    server.current.notify("command/exec/exited", { sessionId: "two", exitCode: 7 });
    server.current.notify("command/exec/exited", { sessionId: "unknown", exitCode: 8 });
    server.current.respond(first, { sessionId: "one" });
    server.current.respond(second, { sessionId: "two" });
    await Promise.all(starts);
    // No start is pending, so an exit now says nothing about a later process.
    server.current.notify("command/exec/exited", { sessionId: "later", exitCode: 9 });
    await flushEventLoop();
    for (const sessionId of ["later", "unknown"]) {
      server.answers["command/exec"] = () => ({ sessionId });
      await client.exec(EXEC);
    }
    server.current.cut();
    await flushEventLoop();
    await client.close();
    const exits: unknown[] = [];
    for await (const event of events) if (event.type === "exited") exits.push([event.sessionId, event.exitCode]);
    assert.deepEqual(exits, [
      ...[
        ["two", 7],
        ["unknown", 8],
        ["later", 9],
      ],
      ...[
        ["one", -1],
        ["later", -1],
        ["unknown", -1],
      ],
    ]);
  });
});
