import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { JsonRpcChannel } from "../../../src/client/rpc/json-rpc-channel.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import type { ParamsOf, ResultOf } from "../../../src/protocol/methods.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import type { FileMethod } from "../../../src/server/rpc/file-methods.ts";
import { memoryConnectionPair } from "../../support/servers/memory-connection.ts";

const sandbox = {
  permissions: { type: "managed", file_system: { type: "restricted", entries: [] }, network: "restricted" },
  windowsSandboxLevel: "disabled",
};

/** Counts the calls that an inner server executes at once. Its files report `size` bytes. */
class CountingFileServer {
  readonly calls: string[] = [];
  #inFlight = 0;
  peak = 0;
  readonly #size: number;

  constructor(size: number) {
    this.#size = size;
  }

  async call<M extends FileMethod | "capabilityRoots/discoverV1">(method: M, _: ParamsOf<M>): Promise<ResultOf<M>> {
    this.calls.push(method);
    if (method === "fs/getMetadata") return { size: this.#size } as ResultOf<M>;
    this.peak = Math.max(this.peak, ++this.#inFlight);
    for (let turn = 0; turn < 5; turn++) await nextTurn();
    this.#inFlight--;
    return (method === "fs/readFile" ? { dataBase64: new Uint8Array(3) } : { entries: [] }) as ResultOf<M>;
  }
}

async function connect(inner: CountingFileServer) {
  const files = { forSandbox: async () => inner, forRoots: async () => inner, close: async () => undefined };
  const server = new ExecServer({ ...createLocalHost(), sandboxedFiles: files });
  const [ours, theirs] = memoryConnectionPair();
  void server.accept(theirs);
  const caller = new JsonRpcChannel(ours, { onNotification: () => undefined, onClosed: () => undefined });
  await caller.call("initialize", { clientName: "test" });
  caller.initialized();
  const close = async () => {
    caller.close();
    await server.close();
  };
  return { caller, [Symbol.asyncDispose]: close };
}

test("a connection waits for memory before a sandboxed file server sends a large file", async () => {
  const inner = new CountingFileServer(64 * 1024 * 1024);
  await using connected = await connect(inner);
  const { caller } = connected;
  const reads = Array.from({ length: 20 }, () => caller.call("fs/readFile", { path: "file:///tmp/large", sandbox }));
  for (const { dataBase64 } of await Promise.all(reads)) assert.equal(dataBase64.length, 3);
  assert.equal(inner.peak, 1);
});

test("a connection reads small files of a sandbox concurrently", async () => {
  const inner = new CountingFileServer(1000);
  await using connected = await connect(inner);
  const { caller } = connected;
  await Promise.all(
    Array.from({ length: 8 }, () => caller.call("fs/readFile", { path: "file:///tmp/small", sandbox })),
  );
  assert.equal(inner.peak, 8);
});
