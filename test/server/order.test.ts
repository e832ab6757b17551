import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { FileSystem } from "../../src/files/file-system.ts";
import { createLocalFileSystem } from "../../src/files/local-file-system.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { FakeHost } from "../support/servers/fake-host.ts";
import { memoryWire, startParams, WireClient } from "../support/servers/raw-connection.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { flushEventLoop } from "../support/system/flush-event-loop.ts";

const localFileSystem = createLocalFileSystem();

async function setup(host = new FakeHost()) {
  const server = new ExecServer(host);
  const ready = async (params: Record<string, unknown> = {}) => {
    const client = new WireClient(memoryWire((connection) => server.accept(connection)));
    await client.handshake(params);
    return client;
  };
  return { host, client: await ready(), ready };
}

const base64 = (text: string) => Buffer.from(text).toString("base64");

/** Returns a list that receives the name of each request when its response arrives. */
function watch(responses: Record<string, Promise<unknown>>): string[] {
  const arrived: string[] = [];
  for (const [name, response] of Object.entries(responses)) void response.then(() => arrived.push(name));
  return arrived;
}

describe("request order", () => {
  test("requests for a process wait for its start, then run in order", async () => {
    const { host, client } = await setup();
    const gate = Promise.withResolvers<void>();
    host.startGate = gate.promise;
    const arrived = watch({
      start: client.request("process/start", startParams("p", ["x"], { tty: true })),
      write: client.request("process/write", { processId: "p", chunk: base64("1") }),
      resize: client.request("process/resize", { processId: "p", size: { rows: 2, cols: 3 } }),
      again: client.request("process/write", { processId: "p", chunk: base64("4") }),
      close: client.request("process/closeStdin", { processId: "p" }),
      signal: client.request("process/signal", { processId: "p", signal: "interrupt" }),
      read: client.request("process/read", { processId: "p" }),
      terminate: client.request("process/terminate", { processId: "p" }),
      status: client.request("environment/status"),
    });
    await flushEventLoop();
    assert.deepEqual(arrived, ["status"]);
    gate.resolve();
    await client.until("all responses", () => arrived.length === 9);
    assert.deepEqual(host.process("p").written, ["1", "<2x3>", "4", "<closed>"]);
    assert.deepEqual(host.process("p").signals, ["interrupt", "force"]);
    for (const { error } of client.messages) assert.equal(error, undefined);
  });

  test("reads of a client that does not read start when their responses fit into its queue", async () => {
    const { host, client } = await setup();
    await client.start("p", ["x"]);
    const { log } = host.process("p");
    host.process("p").print("x".repeat(1024 * 1024));
    await flushEventLoop();
    let reads = 0;
    const read = log.read.bind(log);
    log.read = (params) => {
      reads++;
      return read(params);
    };
    client.pause();
    const answers = Array.from({ length: 50 }, () => client.request("process/read", { processId: "p" }));
    await flushEventLoop();
    assert.ok(reads >= 2 && reads <= 12, `${reads} reads have started`);
    client.resume();
    for (const { result } of await Promise.all(answers)) assert.equal(result?.nextSeq, 5);
    assert.equal(reads, 50);
  });

  test("a blocked write delays later requests for its process only", async () => {
    const { host, client } = await setup();
    await client.start("slow", ["x"]);
    await client.start("other", ["x"]);
    const gate = Promise.withResolvers<void>();
    host.process("slow").writeGate = gate.promise;
    const arrived = watch({
      write: client.request("process/write", { processId: "slow", chunk: base64("1") }),
      close: client.request("process/closeStdin", { processId: "slow" }),
      elsewhere: client.request("process/write", { processId: "other", chunk: base64("x") }),
      signal: client.request("process/signal", { processId: "slow", signal: "SIGUSR1" }),
      list: client.request("process/list"),
      snapshot: client.request("process/snapshot", { processId: "slow" }),
      terminate: client.request("process/terminate", { processId: "slow" }),
    });
    await client.until("the others", () => arrived.length === 5);
    assert.ok(!arrived.includes("write") && !arrived.includes("close"));
    gate.resolve();
    await client.until("all", () => arrived.length === 7);
    assert.deepEqual(host.process("slow").written, ["1", "<closed>"]);
  });

  test("input for an unknown process is rejected even if a start follows, and delays nothing", async () => {
    const { host, client } = await setup();
    const early = client.request("process/write", { processId: "p", chunk: base64("early") });
    const resize = client.request("process/resize", { processId: "p", size: { rows: 2, cols: 3 } });
    const close = client.request("process/closeStdin", { processId: "p" });
    const start = client.request("process/start", startParams("p", ["x"]));
    const write = client.request("process/write", { processId: "p", chunk: base64("1") });
    const snapshot = client.request("process/snapshot", { processId: "p" });
    assert.deepEqual((await early).result, { status: "unknownProcess" });
    assert.equal((await resize).error?.message, "unknown process id p");
    assert.deepEqual((await close).result, { status: "unknownProcess" });
    assert.equal((await start).error, undefined);
    assert.deepEqual((await write).result, { status: "accepted" });
    assert.equal((await snapshot).error, undefined);
    assert.deepEqual(host.process("p").written, ["1"]);
  });

  test("a failed start frees the id and fails the requests that wait for it", async () => {
    const { host, client } = await setup();
    const gate = Promise.withResolvers<void>();
    host.startGate = gate.promise;
    const start = client.request("process/start", startParams("p", ["x"]));
    const duplicate = client.request("process/start", startParams("p", ["x"]));
    const write = client.request("process/write", { processId: "p", chunk: base64("1") });
    const read = client.request("process/read", { processId: "p" });
    const terminate = client.request("process/terminate", { processId: "p" });
    assert.equal((await duplicate).error?.message, "process p already exists");
    gate.reject(new Error("no such luck"));
    assert.deepEqual((await start).error, { code: -32603, message: "internal error" });
    assert.deepEqual((await write).result, { status: "unknownProcess" });
    assert.equal((await read).error?.message, "unknown process id p");
    assert.deepEqual((await terminate).result, { running: false });
    host.startGate = null;
    await client.start("p", ["x"]);
    assert.ok(host.logged.some((line) => line.includes("process/start failed unexpectedly")));
  });

  test("file changes keep their order across a lost connection", async () => {
    using scratch = scratchDirectory();
    const path = `file://${scratch.path}/f`;
    const gate = Promise.withResolvers<void>();
    let writes = 0;
    const slow: FileSystem = {
      ...localFileSystem,
      writeFile: async (params) => {
        if (++writes === 1) await gate.promise;
        await localFileSystem.writeFile(params);
      },
    };
    const host = new FakeHost();
    const { client, ready } = await setup(Object.assign(host, { files: async () => slow }));
    client.raw(JSON.stringify({ id: 50, method: "fs/writeFile", params: { path, dataBase64: base64("first") } }));
    await flushEventLoop();
    assert.equal(writes, 1);
    await client.close();
    await flushEventLoop();
    await using next = await ready({ resumeSessionId: client.sessionId });
    const second = next.request("fs/writeFile", { path, dataBase64: base64("second") });
    await flushEventLoop();
    assert.equal(writes, 1);
    gate.resolve();
    assert.deepEqual((await second).result, {});
    const { dataBase64 } = await next.call("fs/readFile", { path });
    assert.equal(Buffer.from(String(dataBase64), "base64").toString(), "second");
  });

  test("reading a file does not wait for pending changes", async () => {
    using scratch = scratchDirectory();
    const gate = Promise.withResolvers<void>();
    const slow: FileSystem = { ...localFileSystem, writeFile: () => gate.promise };
    const { client } = await setup(Object.assign(new FakeHost(), { files: async () => slow }));
    const write = client.request("fs/writeFile", { path: `file://${scratch.path}/f`, dataBase64: "" });
    const metadata = await client.call("fs/getMetadata", { path: `file://${scratch.path}` });
    assert.equal(metadata.isDirectory, true);
    gate.resolve();
    assert.deepEqual((await write).result, {});
  });
});
