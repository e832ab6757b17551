/** `process/resized` notifications, on a manual clock. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { memoryWire, WireClient } from "../support/servers/raw-connection.ts";

function setup() {
  const host = new FakeHost({ retainedBytes: 1000 });
  const server = new ExecServer(host, { retainedOutputBytes: 1000 });
  const ready = async (params: Record<string, unknown> = { extensions: ["attach"] }) => {
    const client = new WireClient(memoryWire((connection) => server.accept(connection)));
    await client.handshake(params);
    return client;
  };
  return { host, ready };
}

const resize = (client: WireClient, processId: string, cols: number) =>
  client.call("process/resize", { processId, size: { rows: 10, cols } });
const attach = (client: WireClient, handle: string, role = "viewer") =>
  client.call("process/attach", { handle, role, processId: "v" });
const start = (client: WireClient) =>
  client.start("p", ["x"], { tty: true, size: { rows: 10, cols: 20 } }).then(({ handle }) => String(handle));

/** Output as its text, sizes as their columns and the seq after which they hold. */
const received = (client: WireClient) =>
  client.messages.flatMap(({ method, params }) => {
    if (method === "process/output") return [Buffer.from(String(params?.chunk), "base64").toString()];
    if (method !== "process/resized") return [];
    const { size, afterSeq } = params as { size: { cols: number }; afterSeq: number };
    return [`${size.cols} after ${afterSeq}`];
  });

describe("process/resized", () => {
  test("reports all earlier changes on attach, and each new change to all sessions before the output that follows it", async () => {
    const { host, ready } = setup();
    const owner = await ready();
    const handle = await start(owner);
    const process = host.process("p");
    process.print("a");
    await resize(owner, "p", 30);
    process.print("b");
    const viewer = await ready();
    assert.deepEqual((await attach(viewer, handle)).size, { rows: 10, cols: 30 });
    await host.clock.advance(5);
    await viewer.outputContains("v", "ab");
    assert.deepEqual(received(viewer), ["20 after 0", "30 after 1", "a", "b"]);
    const driver = await ready();
    await attach(driver, handle, "driver");
    await resize(driver, "v", 40);
    process.print("c");
    await host.clock.advance(5);
    for (const [client, id] of [
      [viewer, "v"],
      [driver, "v"],
      [owner, "p"],
    ] as const)
      await client.outputContains(id, "abc");
    assert.deepEqual(received(viewer).slice(4), ["40 after 2", "c"]);
    assert.deepEqual(received(owner), ["a", "20 after 0", "30 after 1", "b", "40 after 2", "c"]);
    assert.deepEqual(received(driver).at(-2), "40 after 2");
  });

  test("is sent again after a resume, including missed changes", async () => {
    const { host, ready } = setup();
    const owner = await ready();
    const handle = await start(owner);
    const viewer = await ready();
    await attach(viewer, handle);
    void viewer.close();
    host.process("p").print("a");
    await resize(owner, "p", 30);
    host.process("p").print("b");
    const again = await ready({ extensions: ["attach"], resumeSessionId: viewer.sessionId });
    assert.deepEqual(received(again), ["20 after 0", "30 after 1"]);
  });

  test("is not sent if the size stays the same", async () => {
    const { host, ready } = setup();
    const owner = await ready();
    const handle = await start(owner);
    const viewer = await ready();
    await attach(viewer, handle);
    host.process("p").print("a");
    await host.clock.advance(5);
    await viewer.outputContains("v", "a");
    assert.deepEqual(received(viewer), ["a"]);
  });

  test("is not sent to clients without the extension", async () => {
    const { host, ready } = setup();
    const owner = await ready({});
    await start(owner);
    const { processes } = await owner.call("process/list", {});
    const [{ handle } = { handle: "" }] = processes as { handle: string }[];
    const driver = await ready();
    await attach(driver, handle, "driver");
    await resize(driver, "v", 40);
    host.process("p").print("a");
    await owner.outputContains("p", "a");
    assert.deepEqual(received(driver), ["20 after 0", "40 after 0", "a"]);
    assert.deepEqual(received(owner), ["a"]);
  });

  test("does not fill the queue of a stalled viewer, which still receives the last size", async () => {
    const { host, ready } = setup();
    const owner = await ready();
    const handle = await start(owner);
    const viewer = await ready();
    await attach(viewer, handle);
    viewer.pause();
    const process = host.process("p");
    process.print("a");
    await host.clock.advance(5);
    const changes = 50_000;
    for (let change = 1; change <= changes; change++) await process.resize({ rows: 10, cols: 20 + change });
    process.print("b");
    viewer.resume();
    await host.clock.advance(50);
    await viewer.outputContains("v", "b");
    const sizes = received(viewer).filter((word) => / after /.test(word));
    assert.ok(sizes.length < changes / 2, `${sizes.length}`);
    assert.deepEqual(received(viewer).slice(-2), [`${20 + changes} after 1`, "b"]);
  });
});
