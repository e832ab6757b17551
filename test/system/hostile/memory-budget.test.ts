import assert from "node:assert/strict";
import { once } from "node:events";
import { truncateSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { NO_ADDON } from "../../native/started.ts";
import { RawWebSocket, rawFrame } from "../../support/faults/raw-frames.ts";
import { sh, type WireClient } from "../../support/servers/raw-connection.ts";
import { residentBytes, type ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { settledPeak } from "../../support/system/process-stats.ts";
import { until } from "../../support/system/until.ts";

/**
 * Memory that the shipped server holds for peers that send requests and do not read. The tests measure its resident
 * set, never a time.
 */

const MIB = 1024 * 1024;

async function ready(server: ServeChild): Promise<WireClient> {
  const client = await server.connect();
  await client.handshake();
  return client;
}

const rawText = (text: string) => rawFrame({ opcode: 1, payload: Buffer.from(text), mask: 0 });

function ask(client: WireClient, firstId: number, count: number, method: string, params: unknown): void {
  for (let id = firstId; id < firstId + count; id++) client.raw(JSON.stringify({ id, method, params }));
}

describe("responses that the client does not read", { skip: NO_ADDON, timeout: 600_000 }, () => {
  test("250 blocks of 1 MiB are not all in memory, and all arrive once the client reads", async () => {
    using scratch = scratchDirectory();
    writeFileSync(join(scratch.path, "large"), Buffer.alloc(2 * MIB, "x"));
    await using server = await serve();
    await using client = await ready(server);
    await client.call("fs/open", { handleId: "h", path: `file://${scratch.path}/large` });
    const before = residentBytes(server.serverPid());
    client.pause();
    ask(client, 10_000, 250, "fs/readBlock", { handleId: "h", offset: 0, len: MIB });
    const grown = (await settledPeak(server.serverPid())) - before;
    assert.ok(grown < 120 * MIB, `it grew by ${Math.round(grown / MIB)} MiB`);
    client.resume();
    const { result } = await client.answer(10_249);
    assert.equal(Buffer.from(String(result?.chunk), "base64").length, MIB);
  });

  test("files of 380 MiB are never in memory as a whole, and other clients are served meanwhile", async () => {
    using scratch = scratchDirectory();
    const large = join(scratch.path, "large");
    writeFileSync(large, "");
    truncateSync(large, 380 * MIB);
    await using server = await serve();
    const { port } = new URL(server.url);
    await using client = await ready(server);
    await client.call("fs/getMetadata", { path: `file://${large}` });
    const before = residentBytes(server.serverPid());
    using stack = new DisposableStack();
    const readers = Array.from({ length: 4 }, async () => {
      const reader = stack.adopt(await server.connect(), (peer) => peer.cut());
      await reader.handshake();
      reader.pause();
      ask(reader, 10_000, 3, "fs/readFile", { path: `file://${large}` });
    });
    await Promise.all(readers);
    const peer = stack.adopt(await RawWebSocket.open(Number(port)), ({ socket }) => socket.destroy());
    let receivedBytes = 0;
    peer.socket.removeAllListeners("data").on("data", (bytes: Buffer) => {
      receivedBytes += bytes.length;
    });
    peer.send(rawText(JSON.stringify({ id: 1, method: "initialize", params: { clientName: "reader" } })));
    peer.send(rawText(JSON.stringify({ method: "initialized", params: {} })));
    peer.send(rawText(JSON.stringify({ id: 2, method: "fs/readFile", params: { path: `file://${large}` } })));
    await until("the whole file", () => receivedBytes > ((380 * MIB) / 3) * 4);
    const grown = (await settledPeak(server.serverPid())) - before;
    assert.ok(grown < 32 * MIB, `it grew by ${Math.round(grown / MIB)} MiB`);
    assert.equal((await client.call("environment/status")).status, "ready");
  });

  test("a file that is truncated while the client reads it ends where it ends", async () => {
    using scratch = scratchDirectory();
    const large = join(scratch.path, "large");
    writeFileSync(large, "");
    truncateSync(large, 100 * MIB);
    await using server = await serve();
    await using client = await ready(server);
    client.pause();
    ask(client, 10_000, 1, "fs/readFile", { path: `file://${large}` });
    await settledPeak(server.serverPid());
    truncateSync(large, 20 * MIB);
    client.resume();
    const { result } = await client.answer(10_000);
    assert.equal(Buffer.from(String(result?.dataBase64), "base64").length, 20 * MIB);
    assert.equal((await client.call("environment/status")).status, "ready");
  });

  test("120 snapshots of 2 MiB are not all in memory, and all arrive once the client reads", async () => {
    await using server = await serve();
    await using client = await ready(server);
    await client.start("p", sh(`head -c ${2 * MIB} /dev/zero; head -c ${2 * MIB} /dev/zero >&2`));
    await client.finished("p");
    const before = residentBytes(server.serverPid());
    client.pause();
    ask(client, 10_000, 120, "process/snapshot", { processId: "p" });
    const grown = (await settledPeak(server.serverPid())) - before;
    assert.ok(grown < 120 * MIB, `it grew by ${Math.round(grown / MIB)} MiB`);
    client.resume();
    const { result } = await client.answer(10_119);
    assert.equal(result?.totalBytes, 4 * MIB);
  });
});

describe("one budget for all retained memory", { skip: NO_ADDON, timeout: 600_000 }, () => {
  const BUDGET = 64 * MIB;

  test("bounds output, files, HTTP bodies and large writes together, and the server responds to every client afterwards", async () => {
    using scratch = scratchDirectory();
    writeFileSync(join(scratch.path, "large"), Buffer.alloc(16 * MIB, "x"));
    const web = createServer((_, response) => response.end(Buffer.alloc(12 * MIB, "y")));
    web.listen(0, "127.0.0.1");
    using stack = new DisposableStack();
    stack.defer(() => {
      web.closeAllConnections();
      web.close();
    });
    await once(web, "listening");
    const url = `http://127.0.0.1:${(web.address() as AddressInfo).port}/`;
    await using server = await serve("--memory-budget-bytes", String(BUDGET), "--detached-session-ttl", "0");
    const pid = server.serverPid();
    const peers: WireClient[] = [];
    for (let at = 0; at < 8; at++) peers.push(stack.adopt(await ready(server), (peer) => peer.cut()));
    await peers[0]?.call("fs/getMetadata", { path: "file:///tmp" });
    const before = residentBytes(pid);
    for (const [at, peer] of peers.entries()) {
      for (let n = 0; n < 6; n++) await peer.start(`flood-${n}`, ["cat", "/dev/zero"]);
      await peer.start("deaf", ["sleep", "1000"], { pipeStdin: true });
      peer.pause();
      ask(peer, 10_000, 4, "fs/readFile", { path: `file://${scratch.path}/large` });
      ask(peer, 20_000, 4, "http/request", { method: "GET", url, requestId: `r${at}` });
      const chunk = Buffer.alloc(MIB, "z").toString("base64");
      ask(peer, 30_000, 24, "process/write", { processId: "deaf", chunk });
    }
    const grown = (await settledPeak(pid)) - before;
    // The resident set also holds each peer's queue, copies in transit and the heap. Without the budget it grows by 700
    // MiB.
    assert.ok(grown < 400 * MIB, `it grew by ${Math.round(grown / MIB)} MiB`);
    const { result } = await (await connectObserver(server, stack)).request("environment/status");
    assert.equal(result?.status, "ready");
    for (const peer of peers) peer.cut();
    const client = await connectObserver(server, stack);
    await until("a body fits again", async () => {
      const { result } = await client.request("http/request", { method: "GET", url, requestId: "r" });
      return result?.status === 200;
    });
    const { dataBase64 } = await client.call("fs/readFile", { path: `file://${scratch.path}/large` });
    assert.equal(Buffer.from(String(dataBase64), "base64").length, 16 * MIB);
    await client.start("p", sh("echo done"));
    assert.equal((await client.finished("p")).output, "done\n");
  });

  test("rejects HTTP bodies that do not fit, with a remedy", async () => {
    const body = Buffer.alloc(10 * MIB, "y");
    const web = createServer((_, response) => response.end(body));
    web.listen(0, "127.0.0.1");
    using stack = new DisposableStack();
    stack.defer(() => {
      web.closeAllConnections();
      web.close();
    });
    await once(web, "listening");
    const url = `http://127.0.0.1:${(web.address() as AddressInfo).port}/`;
    // A quarter of the budget is for HTTP bodies: it holds one of these bodies, not two.
    await using server = await serve("--memory-budget-bytes", String(BUDGET));
    await using client = await ready(server);
    client.pause();
    const get = (requestId: string, more = {}) => ({ method: "GET", url, requestId, ...more });
    ask(client, 10_000, 4, "http/request", get("r"));
    await settledPeak(server.serverPid());
    client.resume();
    const answers = await Promise.all([0, 1, 2, 3].map((at) => client.answer(10_000 + at)));
    const refused = answers.filter(({ error }) => error);
    assert.ok(refused.length >= 1 && refused.length <= 3, `${refused.length} were refused`);
    assert.match(
      refused[0]?.error?.message ?? "",
      /does not fit: the memory budget .* is exhausted; use streamResponse, or retry later/,
    );
    assert.equal((await client.call("http/request", get("s", { streamResponse: true }))).status, 200);
    await client.waitFor(
      "the whole body",
      ({ method, params }) => method === "http/request/bodyDelta" && params?.done === true,
    );
    assert.equal((await client.call("http/request", get("t"))).status, 200);
  });
});

describe("incomplete messages", { skip: NO_ADDON, timeout: 600_000 }, () => {
  test("are assembled by the addon up to its own limit, however many connections send them", async () => {
    await using server = await serve("--memory-budget-bytes", String(64 * MIB));
    const { port } = new URL(server.url);
    const before = residentBytes(server.serverPid());
    const text = `{"id":1,"method":"none","params":"${"x".repeat(1.4 * MIB)}"}`;
    const frame = rawFrame({ opcode: 1, payload: Buffer.from(text), mask: 0 });
    using stack = new DisposableStack();
    const peers = await Promise.all(
      Array.from({ length: 200 }, async () => {
        const peer = stack.adopt(await RawWebSocket.open(Number(port)), ({ socket }) => socket.destroy());
        peer.send(frame.subarray(0, -10));
        return peer;
      }),
    );
    const grown = (await settledPeak(server.serverPid())) - before;
    // The clients sent 280 MiB, and without the budget the addon holds all of it.
    assert.ok(grown < 140 * MIB, `it grew by ${Math.round(grown / MIB)} MiB`);
    for (const peer of peers) peer.send(frame.subarray(-10));
    for (const peer of peers) assert.match((await peer.heard(1)).join(), /^text /);
  });

  test("of many connections are not all in memory, and each is answered once it is complete", async () => {
    await using server = await serve("--memory-budget-bytes", String(64 * MIB));
    const { port } = new URL(server.url);
    const before = residentBytes(server.serverPid());
    const request = (bytes: number) => Buffer.from(`{"id":1,"method":"none","params":"${"x".repeat(bytes)}"}`);
    // A message that the addon assembles, a message that it passes on, and a fragmented message.
    const short = rawFrame({ opcode: 1, payload: request(1.4 * MIB), mask: 0 });
    const long = rawFrame({ opcode: 1, payload: request(1.9 * MIB), mask: 0 });
    const text = request(1.9 * MIB);
    const parts = Array.from({ length: 20 }, (_, at) => {
      const payload = text.subarray(at * 100_000, (at + 1) * 100_000);
      return rawFrame({ opcode: at === 0 ? 1 : 0, fin: at === 19, payload, mask: 0 });
    });
    const whole = [short, long, short, Buffer.concat(parts), short];
    using stack = new DisposableStack();
    const sockets = await Promise.all(
      Array.from({ length: 120 }, async (_, at) => {
        const bytes = whole[at % whole.length] ?? short;
        const peer = stack.adopt(await RawWebSocket.open(Number(port)), ({ socket }) => socket.destroy());
        peer.send(bytes.subarray(0, -10));
        return { peer, rest: bytes.subarray(-10) };
      }),
    );
    const grown = (await settledPeak(server.serverPid())) - before;
    // The clients sent 190 MiB.
    assert.ok(grown < 110 * MIB, `it grew by ${Math.round(grown / MIB)} MiB`);
    for (const { peer, rest } of sockets) peer.send(rest);
    for (const { peer } of sockets) assert.match((await peer.heard(1)).join(), /^text /);
  });
});

async function connectObserver(server: ServeChild, stack: DisposableStack): Promise<WireClient> {
  return stack.adopt(await ready(server), (client) => client.cut());
}
