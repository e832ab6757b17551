import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { after, before, describe, type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { WebSocket, WebSocketServer } from "ws";
import { copyFiles } from "../../../src/client/copy/copy-files.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { nodeSocketProvider } from "../../../src/connection/socket-provider.ts";
import { Environment } from "../../../src/host/local-environment.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { nativeSocketsIfAvailable } from "../../../src/host/native-support.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import type { ListeningServer } from "../../../src/server/listen/websocket-gateway.ts";
import { Scratch } from "../../files/scratch.ts";

const MIB = 1024 * 1024;

/** A binary block as it is sent; `claimedBytes` is the claimed length of the text. */
function blockOf(message: object, bytes: Uint8Array, claimedBytes?: number): Buffer {
  const text = Buffer.from(JSON.stringify(message));
  const length = Buffer.alloc(4);
  length.writeUInt32BE(claimedBytes ?? text.length);
  return Buffer.concat([length, text, bytes]);
}

/** A client that sends frames by hand and stores what it receives. */
class RawClient {
  readonly #socket: WebSocket;
  readonly received: { isBinary: boolean; bytes: Buffer }[] = [];

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: Buffer, isBinary) => void this.received.push({ isBinary, bytes: data }));
  }

  static async connect(t: TestContext, url: string, extensions: string[] | undefined) {
    const client = new RawClient(new WebSocket(url));
    t.after(() => client.#socket.terminate());
    await once(client.#socket, "open");
    const { bytes } = await client.exchange(
      JSON.stringify({ id: 0, method: "initialize", params: { clientName: "raw", extensions } }),
    );
    client.#socket.send(JSON.stringify({ method: "initialized" }));
    return { client, granted: JSON.parse(String(bytes)).result.extensions };
  }

  /** Sends a message and returns the next one. */
  async exchange(message: string | Buffer) {
    const position = this.received.length;
    this.#socket.send(message);
    if (this.received.length === position) await once(this.#socket, "message");
    const received = this.received[position];
    assert.ok(received);
    return received;
  }

  async call(id: number, method: string, params: object) {
    return JSON.parse(String((await this.exchange(JSON.stringify({ id, method, params }))).bytes));
  }
}

for (const kind of ["native", "node"] as const) {
  describe(`binary blocks, ${kind} sockets`, { timeout: 120_000 }, () => {
    let server: ExecServer;
    let listening: ListeningServer;
    before(async () => {
      const sockets = kind === "native" ? nativeSocketsIfAvailable() : nodeSocketProvider;
      assert.ok(sockets, "the native addon must be built");
      server = new ExecServer({ ...createLocalHost(), sockets });
      listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
    });
    after(async () => {
      await listening.close();
      await server.close();
    });

    test("carry the bytes of reads and writes", async (t) => {
      const scratch = new Scratch(t);
      const { client, granted } = await RawClient.connect(t, listening.url, ["binaryBlocks"]);
      assert.deepEqual(granted, ["binaryBlocks"]);
      const path = String(pathToFileURL(scratch.path("file")));
      await client.call(1, "fs/openPartial", { handleId: "h", path });
      const bytes = randomBytes(MIB);
      const params = { handleId: "h", offset: 0, chunk: "" };
      const written = await client.exchange(blockOf({ id: 2, method: "fs/writeBlock", params }, bytes));
      assert.deepEqual(JSON.parse(String(written.bytes)), { id: 2, result: {} });
      assert.ok(readFileSync(scratch.path("file")).equals(bytes));
      const read = await client.exchange(
        JSON.stringify({ id: 3, method: "fs/readBlock", params: { handleId: "h", offset: 0, len: MIB } }),
      );
      assert.ok(read.isBinary);
      assert.ok(read.bytes.equals(blockOf({ id: 3, result: { chunk: "", eof: false } }, bytes)));
    });

    test("are neither sent to nor accepted from a client that did not request them", async (t) => {
      const scratch = new Scratch(t);
      const path = String(pathToFileURL(scratch.file("file", "content")));
      const { client, granted } = await RawClient.connect(t, listening.url, undefined);
      assert.deepEqual(granted, []);
      await client.call(1, "fs/open", { handleId: "h", path });
      const read = await client.call(2, "fs/readBlock", { handleId: "h", offset: 0, len: 100 });
      assert.deepEqual(read.result, { chunk: Buffer.from("content").toString("base64"), eof: true });
      const params = { handleId: "h", offset: 0, chunk: "" };
      const rejected = await client.exchange(blockOf({ id: 3, method: "fs/writeBlock", params }, Buffer.from("x")));
      assert.equal(JSON.parse(String(rejected.bytes)).id, -1);
    });

    test("of a hostile client are rejected, and the connection stays usable", async (t) => {
      const scratch = new Scratch(t);
      const { client } = await RawClient.connect(t, listening.url, ["binaryBlocks"]);
      const path = String(pathToFileURL(scratch.path("file")));
      await client.call(1, "fs/openPartial", { handleId: "h", path });
      const request = { id: 2, method: "fs/writeBlock", params: { handleId: "h", offset: 0, chunk: "" } };
      const unreadable = {
        "a text longer than the message": blockOf(request, Buffer.alloc(10), 1_000_000),
        "a text longer than the limit": blockOf({ ...request, more: "x".repeat(9_000) }, Buffer.alloc(10)),
        "the largest length": blockOf(request, Buffer.alloc(10), 0xffffff),
        "a length that cuts the text": blockOf(request, Buffer.alloc(10), 20),
        "no length": Buffer.from([0, 0]),
        "a text without chunk": blockOf({ id: 2, method: "fs/writeBlock", params: {} }, Buffer.alloc(10)),
        "a chunk of its own": blockOf({ ...request, params: { ...request.params, chunk: "AAAA" } }, Buffer.alloc(10)),
        "an array": blockOf([request], Buffer.alloc(10)),
        "text that is not UTF-8": Buffer.concat([Buffer.from([0, 0, 0, 2, 0xff, 0xff]), Buffer.alloc(100_000)]),
      };
      for (const [name, message] of Object.entries(unreadable)) {
        const { id, error } = JSON.parse(String((await client.exchange(message)).bytes));
        assert.equal(id, -1, name);
        assert.ok(error.message.startsWith("failed to parse websocket JSON-RPC message"), error.message);
      }
      const tooLong = JSON.parse(String((await client.exchange(blockOf(request, Buffer.alloc(MIB + 1)))).bytes));
      assert.match(tooLong.error.message, /^file write block length must be between 1 and 1048576$/);
      await client.exchange(blockOf(request, Buffer.from("end")));
      assert.equal(readFileSync(scratch.path("file"), "utf8"), "end");
    });
  });
}

describe("binary blocks of the client", { timeout: 120_000 }, () => {
  /** Responds to each request with the result of `respond`; null sends nothing. */
  async function serve(
    t: TestContext,
    extensions: string[],
    respond: (request: { id: number; method: string }, isBinary: boolean) => string | Buffer | null,
  ) {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    await once(server, "listening");
    t.after(() => {
      for (const socket of server.clients) socket.terminate();
      server.close();
    });
    server.on("connection", (socket) =>
      socket.on("message", (data: Buffer, isBinary) => {
        const request = JSON.parse(String(isBinary ? data.subarray(4, 4 + data.readUInt32BE()) : data));
        if (request.id === undefined) return;
        const result = { protocolVersion: "exec-server.v0", sessionId: "S", extensions };
        const response =
          request.method === "initialize" ? JSON.stringify({ id: request.id, result }) : respond(request, isBinary);
        if (response !== null) socket.send(response);
      }),
    );
    // The address of a listening TCP server.
    const { port } = server.address() as AddressInfo;
    const client = await NodeExecServerClient.connectWebSocket({ url: `ws://127.0.0.1:${port}` });
    t.after(() => client.close());
    return client;
  }

  for (const isOffered of [false, true])
    test(`are ${isOffered ? "sent to a server that offers" : "not sent to a server without"} them`, async (t) => {
      const kinds: [string, boolean][] = [];
      const client = await serve(t, isOffered ? ["attach", "binaryBlocks"] : ["attach"], ({ id, method }, isBinary) => {
        kinds.push([method, isBinary]);
        return JSON.stringify({ id, result: method === "fs/writeBlock" ? null : { handleId: "h" } });
      });
      const file = await client.files.open("/file", "replace");
      await file.write(0, Buffer.from("content"));
      assert.deepEqual(kinds, [
        ["fs/open", false],
        ["fs/writeBlock", isOffered],
      ]);
    });

  test("with a wrong length end the connection", async (t) => {
    const client = await serve(t, ["binaryBlocks"], ({ id, method }) =>
      method === "fs/readBlock"
        ? blockOf({ id, result: { chunk: "", eof: false } }, Buffer.alloc(10), 5000)
        : JSON.stringify({ id, result: { handleId: "h" } }),
    );
    const file = await client.files.open("/file");
    await assert.rejects(file.read(0, 10), /a binary block of \d+ bytes has a text of 5000 bytes/);
  });

  test("that change on their way fail the copy, and no file appears", async (t) => {
    const scratch = new Scratch(t);
    const server = new ExecServer(createLocalHost());
    const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
    const here = await Environment.create(null);
    const target = new URL(listening.url);
    /** Inverts one byte of the first block. */
    const proxy = createServer((socket) => {
      const upstream = connect(Number(target.port), target.hostname);
      let position = 0;
      socket.on("data", (chunk: Buffer) => {
        const at = 600_000 - position;
        if (at >= 0 && at < chunk.length) chunk[at] = ~(chunk[at] ?? 0);
        position += chunk.length;
        upstream.write(chunk);
      });
      upstream.pipe(socket);
      socket.on("error", () => upstream.destroy());
    }).listen(0, "127.0.0.1");
    await once(proxy, "listening");
    // The address of a listening TCP server.
    const { port } = proxy.address() as AddressInfo;
    const far = await NodeExecServerClient.connectWebSocket({ url: `ws://127.0.0.1:${port}` });
    t.after(async () => {
      await far.close();
      await here.close();
      proxy.close();
      await listening.close();
      await server.close();
    });
    const source = scratch.file("source", randomBytes(2 * MIB));
    const copied = copyFiles(
      { files: here.files, path: source },
      { files: far.files, path: scratch.path("target/copy"), within: scratch.directory("target") },
    );
    await assert.rejects(copied, /checksum of the partial file differs/);
    assert.throws(() => readFileSync(scratch.path("target/copy")));
  });
});
