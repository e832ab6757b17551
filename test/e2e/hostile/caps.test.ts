import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { startParams, type WireClient } from "../../support/servers/raw-connection.ts";
import { type ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

/** The server counts each kind of resource and rejects a request above the cap; the error names the cap. */

const WAITS_OF_A_CONNECTION = 1024;
const WAITS_OF_THE_SERVER = 16_384;
const HANDLES_OF_A_CONNECTION = 128;
const HANDLES_OF_THE_SERVER = 2048;
const PATHS_OF_A_CONNECTION = 64;
const WATCHED_PATHS_OF_THE_SERVER = 4096;
const HTTP_REQUESTS_OF_A_CONNECTION = 128;
const HTTP_REQUESTS_OF_THE_SERVER = 1024;

async function ready(server: ServeChild): Promise<WireClient> {
  const client = await server.connect();
  await client.handshake();
  return client;
}

/** Returns connected clients whose connections are cut when the stack is disposed. */
async function readyClients(server: ServeChild, count: number, stack: DisposableStack): Promise<WireClient[]> {
  const clients: WireClient[] = [];
  while (clients.length < count) clients.push(stack.adopt(await ready(server), (client) => client.cut()));
  return clients;
}

/** Answers each request with a head and the first bytes of its body; the rest waits until a test releases it. */
async function unfinishedWeb(stack: DisposableStack): Promise<{ url: string; sockets: Socket[] }> {
  const sockets: Socket[] = [];
  const web = createServer((socket) => {
    sockets.push(socket);
    socket.on("error", () => undefined);
    socket.once("data", () => socket.write("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello"));
  }).listen(0, "127.0.0.1");
  stack.defer(() => {
    web.close();
    for (const socket of sockets) socket.destroy();
  });
  await once(web, "listening");
  return { url: `http://127.0.0.1:${(web.address() as AddressInfo).port}/`, sockets };
}

describe("the limits of a server's resources", { timeout: 600_000 }, () => {
  test("live processes of all sessions together, as many as --max-server-processes says", async () => {
    await using server = await serve("--max-server-processes", "2");
    using stack = new DisposableStack();
    const [one, other] = await readyClients(server, 2, stack);
    assert.ok(one && other);
    await one.start("a", ["cat"], { pipeStdin: true });
    await other.start("b", ["cat"], { pipeStdin: true });
    const refused = await other.refused("process/start", startParams("c", ["true"]));
    assert.equal(
      refused.message,
      "too many processes: this server may have 2 live processes at once; end one first, or raise --max-server-processes",
    );
    await one.call("process/terminate", { processId: "a" });
    await one.finished("a");
    await other.start("c", ["true"]);
    await other.finished("c");
  });

  test(`${WAITS_OF_A_CONNECTION} waits of a connection`, async () => {
    await using server = await serve();
    await using client = await ready(server);
    await client.start("cat", ["cat"], { pipeStdin: true });
    const wait = (id: number) =>
      client.raw(JSON.stringify({ id, method: "process/wait", params: { processId: "cat" } }));
    for (let id = 10_000; id < 10_000 + WAITS_OF_A_CONNECTION; id++) wait(id);
    const refused = await client.refused("process/wait", { processId: "cat" });
    assert.equal(refused.code, -32600);
    assert.equal(
      refused.message,
      "too many waits: this connection may have 1024 at once; await the response of one first",
    );
    // Each connection has a separate cap on waits.
    await using other = await ready(server);
    await other.start("true", ["true"]);
    assert.equal((await other.call("process/wait", { processId: "true" })).reason, "exited");
    await client.call("process/terminate", { processId: "cat" });
    await client.answer(10_000 + WAITS_OF_A_CONNECTION - 1);
    assert.equal((await client.call("process/wait", { processId: "cat" })).reason, "exited");
  });

  test(`${WAITS_OF_THE_SERVER} waits of all connections`, async () => {
    await using server = await serve();
    using stack = new DisposableStack();
    const count = WAITS_OF_THE_SERVER / WAITS_OF_A_CONNECTION;
    const [late, ...clients] = await readyClients(server, count + 1, stack);
    assert.ok(late);
    for (const client of clients) {
      await client.start("cat", ["cat"], { pipeStdin: true });
      for (let at = 0; at < WAITS_OF_A_CONNECTION; at++)
        client.raw(JSON.stringify({ id: 10_000 + at, method: "process/wait", params: { processId: "cat" } }));
    }
    // The server has accepted all requests of a connection once it responds to a later request of that connection.
    await Promise.all(clients.map((client) => client.call("environment/status", {})));
    await late.start("late", ["cat"], { pipeStdin: true });
    const refused = await late.refused("process/wait", { processId: "late" });
    assert.equal(
      refused.message,
      "too many waits: this server may have 16384 at once; await the response of one first",
    );
    // The waits of a connection end with it.
    clients[0]?.cut();
    await until("capacity is free again", async () => {
      const params = { processId: "late", timeoutMs: 1 };
      return (await late.request("process/wait", params)).error === undefined;
    });
  });

  test(`${HANDLES_OF_THE_SERVER} open files of all connections`, async () => {
    using scratch = scratchDirectory();
    const path = `file://${join(scratch.path, "file")}`;
    writeFileSync(join(scratch.path, "file"), "x");
    await using server = await serve();
    using stack = new DisposableStack();
    const count = HANDLES_OF_THE_SERVER / HANDLES_OF_A_CONNECTION;
    const [late, ...clients] = await readyClients(server, count + 1, stack);
    assert.ok(late);
    for (const client of clients) {
      for (let at = 1; at < HANDLES_OF_A_CONNECTION; at++)
        client.raw(JSON.stringify({ id: 10_000 + at, method: "fs/open", params: { handleId: `h${at}`, path } }));
      await client.call("fs/open", { handleId: "h0", path });
      await client.answer(10_000 + HANDLES_OF_A_CONNECTION - 1);
    }
    const refused = await late.refused("fs/open", { handleId: "h", path });
    assert.equal(
      refused.message,
      "too many file handles: this server may have 2048 at once; close one with fs/close first",
    );
    await clients[0]?.call("fs/close", { handleId: "h0" });
    await late.call("fs/open", { handleId: "h", path });
    assert.ok((await late.refused("fs/open", { handleId: "i", path })).message.startsWith("too many file"));
    // A closed connection releases its resources; a failed open is not counted.
    await clients[1]?.close();
    await until("its files are closed", async () => {
      return (await late.request("fs/open", { handleId: "i", path })).error === undefined;
    });
    for (let at = 0; at < 3; at++)
      await late.refused("fs/open", { handleId: `n${at}`, path: "file:///nowhere/at/all" });
    await late.call("fs/open", { handleId: "j", path });
  });

  test(`${WATCHED_PATHS_OF_THE_SERVER} watched paths of all connections`, async () => {
    using scratch = scratchDirectory();
    const missing = Array.from({ length: PATHS_OF_A_CONNECTION }, (_, at) => `file://${scratch.path}/missing-${at}`);
    await using server = await serve();
    using stack = new DisposableStack();
    const count = WATCHED_PATHS_OF_THE_SERVER / PATHS_OF_A_CONNECTION;
    const [late, ...clients] = await readyClients(server, count + 1, stack);
    assert.ok(late);
    for (const client of clients) await client.call("fs/watchMissing", { watchId: 1, missing });
    const refused = await late.refused("fs/watchMissing", { watchId: 1, missing });
    assert.equal(
      refused.message,
      "too many watched paths: this server may have 4096 at once (64 more requested); watch fewer paths",
    );
    // A watch that replaces another watch of its connection is counted once.
    assert.equal((await clients[0]?.call("fs/watchMissing", { watchId: 2, missing }))?.watching, true);
    // A watch ends once it has reported.
    writeFileSync(join(scratch.path, "missing-0"), "");
    await Promise.all(
      clients.map((client) => client.waitFor("a change", ({ method }) => method === "fs/missingChanged")),
    );
    const others = missing.slice(1);
    assert.equal((await late.call("fs/watchMissing", { watchId: 2, missing: others })).watching, true);
  });

  test(`${HTTP_REQUESTS_OF_A_CONNECTION} HTTP requests of a connection, streamed bodies included`, async () => {
    using stack = new DisposableStack();
    const { url, sockets } = await unfinishedWeb(stack);
    await using server = await serve();
    await using client = await ready(server);
    const get = (requestId: string) => ({ method: "GET", url, requestId, streamResponse: true });
    await Promise.all(
      Array.from({ length: HTTP_REQUESTS_OF_A_CONNECTION }, (_, at) => client.call("http/request", get(`r${at}`))),
    );
    const refused = await client.refused("http/request", get("more"));
    assert.equal(
      refused.message,
      "too many HTTP requests: this connection may have 128 at once; await the end of one first",
    );
    sockets[0]?.end("there");
    await client.waitFor(
      "the end of a body",
      ({ method, params }) => method === "http/request/bodyDelta" && params?.done === true,
    );
    await client.call("http/request", get("more"));
  });

  test(`${HTTP_REQUESTS_OF_THE_SERVER} HTTP requests of all connections, streamed bodies included`, async () => {
    using stack = new DisposableStack();
    const { url, sockets } = await unfinishedWeb(stack);
    await using server = await serve();
    const count = HTTP_REQUESTS_OF_THE_SERVER / HTTP_REQUESTS_OF_A_CONNECTION;
    const [late, ...clients] = await readyClients(server, count + 1, stack);
    assert.ok(late);
    const get = (requestId: string) => ({ method: "GET", url, requestId, streamResponse: true });
    for (const client of clients)
      await Promise.all(
        Array.from({ length: HTTP_REQUESTS_OF_A_CONNECTION }, (_, at) => client.call("http/request", get(`r${at}`))),
      );
    const refused = await late.refused("http/request", get("late"));
    assert.equal(
      refused.message,
      "too many HTTP requests: this server may have 1024 at once; await the end of one first",
    );
    sockets[0]?.end("there");
    await until("capacity is free again", async () => {
      return (await late.request("http/request", get("late"))).error === undefined;
    });
  });
});
