import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { RawWebSocket, rawFrame } from "../../support/faults/raw-frames.ts";
import { sh, type WireClient } from "../../support/servers/raw-connection.ts";
import { cpuTicks, residentBytes, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { settledPeak, settledValue } from "../../support/system/process-stats.ts";
import { until } from "../../support/system/until.ts";

/** Memory of the shipped server under hostile peers. The tests measure its resident set, never a time. */

const MIB = 1024 * 1024;
const TEXT = 1;
const PING = 9;

/** The shipped server, with the addon's sockets and processes and without it. */
const KINDS = [
  { name: "the addon", env: {} },
  { name: "Node alone", env: { PROCWIRE_NATIVE_SPAWNER: "/nonexistent/procwire.node" } },
];

for (const { name, env } of KINDS) {
  const serve = (...flags: string[]) => new ServeChild(["--listen", "ws://127.0.0.1:0", ...flags], { env }).listening();

  describe(`a server on ${name}`, () => {
    test("stops reading a peer that pings and never reads, and resumes when it reads", async () => {
      await using server = await serve();
      const peer = await silent(server);
      const ping = rawFrame({ opcode: PING, payload: Buffer.alloc(109, "p") });
      const sent = await sendUntilStopped(
        peer,
        server,
        Buffer.concat(Array.from({ length: 2000 }, () => ping)),
        80 * MIB,
      );
      assert.ok(sent < 60 * MIB, `it was read on and on: ${Math.round(sent / MIB)} MiB`);
      await assertServes(server);
      peer.socket.resume();
      await until("the server to read all pings", () => peer.socket.writableLength === 0);
      peer.socket.destroy();
    });

    test("refuses over-long ids", async () => {
      await using server = await serve();
      await using client = await ready(server);
      await client.start("cat", sh("cat"), { pipeStdin: true });
      const long = "i".repeat(1025);
      const refusals = [
        await client.request("process/write", { processId: "cat", writeId: long, chunk: "YQ==" }),
        await client.request("process/read", { processId: long }),
        await client.request("fs/open", { handleId: long, path: "file:///etc/hostname" }),
        await client.request("http/request", { requestId: long, method: "GET", url: "http://127.0.0.1:1/" }),
      ];
      for (const { error } of refusals)
        assert.match(error?.message ?? "", /an id is at most 1024 characters long, this one has 1025/);
      client.raw(JSON.stringify({ id: long, method: "environment/status" }));
      await client.until("the id is refused", () =>
        client.messages.some(({ id, error }) => id === -1 && /at most 1024/.test(error?.message ?? "")),
      );
      // The longest allowed id is accepted, by the byte parser and by the general one.
      const longest = "i".repeat(1024);
      const { result } = await client.request("process/write", {
        processId: "cat",
        writeId: longest,
        chunk: "YQ==",
      });
      assert.equal(result?.status, "accepted");
    });

    test("remembers write ids up to a total size, so more short ids than long ids", async () => {
      await using server = await serve();
      await using client = await ready(server);
      await client.start("cat", sh("cat"), { pipeStdin: true });
      const write = (writeId: string, text: string) =>
        client.call("process/write", {
          processId: "cat",
          writeId,
          chunk: Buffer.from(text).toString("base64"),
        });
      await write("first", "1");
      for (let at = 0; at < 300; at++) await write(`${at}`, "");
      await write("first", "[again]");
      // 256 KiB of ids are remembered; 300 of 1,000 characters are more.
      for (let at = 0; at < 300; at++) await write(`${at}`.padEnd(1000, "x"), "");
      await write("299".padEnd(1000, "x"), "[299 again]");
      await write("first", "[forgotten]");
      await write("last", ".");
      await client.outputContains("cat", ".");
      const output = client.output("cat");
      assert.ok(!output.includes("again]"), output);
      assert.ok(output.includes("[forgotten]"), output);
    });

    test("buffers little for a peer that requests files and does not read them", async () => {
      using scratch = scratchDirectory();
      const content = Buffer.alloc(16 * MIB, "x");
      writeFileSync(join(scratch.path, "large"), content);
      await using server = await serve();
      const pid = server.serverPid();
      await using client = await ready(server);
      const before = residentBytes(pid);
      client.pause();
      const path = `file://${scratch.path}/large`;
      const answers = Array.from({ length: 8 }, () => client.request("fs/readFile", { path }));
      const grown = (await settledPeak(pid)) - before;
      assert.ok(grown < 100 * MIB, `it grew by ${Math.round(grown / MIB)} MiB for eight files of 16 MiB`);
      client.resume();
      for (const { result } of await Promise.all(answers)) {
        assert.ok(Buffer.from(String(result?.dataBase64), "base64").equals(content));
      }
    });

    test("keeps the order of answers after a long answer", async () => {
      using scratch = scratchDirectory();
      writeFileSync(join(scratch.path, "large"), Buffer.alloc(5 * MIB + 1, "x"));
      await using server = await serve();
      await using client = await ready(server);
      await client.start("cat", sh("cat"), { pipeStdin: true });
      client.pause();
      const requests = [
        client.request("fs/readFile", { path: `file://${scratch.path}/large` }),
        client.request("process/write", { processId: "cat", writeId: "w", chunk: "aGkK" }),
        client.request("environment/status", {}),
      ];
      await assertServes(server);
      // While the long answer is being sent, direct input must not insert its answer into the middle of it.
      for (let n = 0; n < 50; n++)
        requests.push(client.request("process/write", { processId: "cat", writeId: `w${n}`, chunk: "aGkK" }));
      client.resume();
      const [file, , status, ...writes] = await Promise.all(requests);
      assert.equal(Buffer.from(String(file?.result?.dataBase64), "base64").length, 5 * MIB + 1);
      assert.equal(status?.result?.status, "ready");
      for (const { result } of writes) assert.equal(result?.status, "accepted");
      await client.until("all was echoed", () => client.output("cat").length === 51 * 3);
    });

    test("stops working on the requests of a peer that has left", async () => {
      await using server = await serve();
      const peer = await initialized(server);
      peer.send(request(2, "process/start", start("p", "head -c 1000000 /dev/zero; sleep 60")));
      await until("all its output", () => peer.received > 1_300_000);
      peer.socket.pause();
      const reads = Array.from({ length: 4000 }, (_, n) =>
        request(n + 3, "process/read", { processId: "p", afterSeq: 0, maxBytes: MIB, waitMs: 0 }),
      );
      peer.send(...reads);
      await until("all of it is sent", () => peer.socket.writableLength === 0);
      await assertServes(server);
      const before = cpuTicks(server.serverPid());
      peer.socket.destroy();
      for (let n = 0; n < 3; n++) await assertServes(server);
      // 4000 answers of 1.4 MB would be many seconds of work; a second is a hundred ticks.
      const ticks = cpuTicks(server.serverPid()) - before;
      assert.ok(ticks < 200, `it worked for ${ticks} ticks after its peer had left`);
    });

    test("processes large messages of many peers one after another", async () => {
      await using server = await serve();
      const pid = server.serverPid();
      const peers = await Promise.all(Array.from({ length: 12 }, () => silent(server)));
      const before = residentBytes(pid);
      const params = { processId: "none", chunk: "A".repeat(24 * MIB) };
      const message = request(7, "process/write", params);
      for (const peer of peers) {
        peer.socket.resume();
        peer.send(message);
      }
      let peak = 0;
      await until("all are answered", () => {
        peak = Math.max(peak, residentBytes(pid));
        return peers.every(({ received, greeted }) => received > greeted);
      });
      const grown = peak - before;
      assert.ok(grown < 450 * MIB, `it grew by ${Math.round(grown / MIB)} MiB for twelve messages of 24 MiB`);
      for (const peer of peers) peer.socket.destroy();
    });

    test("refuses a message with too many keys before it builds their values", async () => {
      await using server = await serve();
      const pid = server.serverPid();
      await using client = await ready(server);
      const before = residentBytes(pid);
      const keys = Array.from({ length: 1_500_000 }, (_, n) => `"k${n}":${n}`).join(",");
      client.raw(`{"id":1,"method":"environment/status","params":{${keys}}}`);
      let peak = 0;
      await until("it is refused", () => {
        peak = Math.max(peak, residentBytes(pid));
        return client.messages.some(({ error }) => /limit of 262144 JSON values/.test(error?.message ?? ""));
      });
      const grown = peak - before;
      assert.ok(grown < 110 * MIB, `it grew by ${Math.round(grown / MIB)} MiB for ${keys.length} bytes`);
    });
  });
}

const request = (id: number | string, method: string, params: unknown) =>
  rawFrame({ opcode: TEXT, payload: Buffer.from(JSON.stringify({ id, method, params })) });

const start = (processId: string, script: string) => ({
  processId,
  argv: ["/bin/sh", "-c", script],
  cwd: "file:///tmp",
  env: { PATH: "/usr/bin:/bin" },
  tty: false,
});

async function ready(server: ServeChild): Promise<WireClient> {
  const client = await server.connect();
  await client.handshake();
  return client;
}

type RawPeer = RawWebSocket & { received: number; greeted: number };

/** Connects a peer that counts the bytes it receives. */
async function initialized(server: ServeChild): Promise<RawPeer> {
  const socket = await RawWebSocket.open(Number(new URL(server.url).port));
  const peer = Object.assign(socket, { received: 0, greeted: 0 });
  peer.socket.on("data", (chunk: Buffer) => {
    peer.received += chunk.length;
  });
  peer.send(
    request(1, "initialize", { clientName: "hostile" }),
    rawFrame({ opcode: TEXT, payload: Buffer.from('{"method":"initialized","params":{}}') }),
  );
  return peer;
}

async function silent(server: ServeChild): Promise<RawPeer> {
  const peer = await initialized(server);
  await until("the response to initialize", () => peer.received > 0);
  peer.greeted = peer.received;
  peer.socket.pause();
  return peer;
}

/** Sends until `most` bytes are sent or the server stops reading. Returns the number of bytes sent. */
function sendUntilStopped(peer: RawPeer, server: ServeChild, bytes: Buffer, most: number): Promise<number> {
  const { socket } = peer;
  const sent = () => socket.bytesWritten - socket.writableLength;
  return settledValue(() => {
    while (sent() < most && socket.writableLength < bytes.length) socket.write(bytes);
    return sent();
  }, server.serverPid());
}

/** Asserts that the server responds to another client. */
async function assertServes(server: ServeChild): Promise<boolean> {
  await using client = await ready(server);
  const { result } = await client.request("environment/status", {});
  assert.equal(result?.status, "ready");
  return true;
}
