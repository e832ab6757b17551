import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { describe, test } from "node:test";
import { rawTcp, sh, startParams } from "../../support/servers/raw-connection.ts";
import { childrenOf, residentBytes, serve } from "../../support/servers/serve.ts";
import { openDescriptors } from "../../support/system/process-stats.ts";
import { until } from "../../support/system/until.ts";

const threads = (pid: number) => readdirSync(`/proc/${pid}/task`).length;
const MIB = 1024 * 1024;

describe("a server that runs for long", () => {
  test("frees everything that connections and processes used", async () => {
    await using server = await serve("--detached-session-ttl", "0");
    const pid = server.serverPid();
    const round = async (connections: number) => {
      for (let n = 0; n < connections; n++) {
        const client = await server.connect();
        await client.handshake();
        // Starts all processes at once, so that every spawning thread exists from the first round on.
        await Promise.all([
          client.start("a", sh("head -c 200000 /dev/zero; echo done")),
          client.start("b", ["cat"], { pipeStdin: true }),
          client.start("c", ["cat"], { tty: true }),
        ]);
        await client.finished("a");
        if (n % 2 === 0) await client.close();
        else {
          client.cut();
          await client.ended();
        }
      }
    };
    await round(20);
    const before = { files: openDescriptors(pid).length, threads: threads(pid), memory: residentBytes(pid) };
    await round(120);
    await until("every descriptor is back", () => openDescriptors(pid).length <= before.files);
    assert.ok(threads(pid) <= before.threads);
    const grown = residentBytes(pid) - before.memory;
    assert.ok(grown < 40 * MIB, `it grew by ${Math.round(grown / MIB)} MiB`);
  });

  test("keeps serving when connections close at arbitrary moments", async () => {
    await using server = await serve("--detached-session-ttl", "0.05", "--log-level", "info");
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 48_271) % 2_147_483_647;
      return seed % below;
    };
    const cutAtRandom = async () => {
      const client = await server.connect();
      const hello = client.request("initialize", { clientName: "x", extensions: ["started", "outputAck"] });
      client.notify("initialized");
      const requests: Promise<unknown>[] = [hello];
      const ask = (method: string, params: unknown) => requests.push(client.request(method, params));
      for (let n = 0; n < 4; n++) {
        const processId = `p${n}`;
        const argv = [["cat"], sh("head -c 3000000 /dev/zero"), sh("echo hi; exit 3"), ["/no/such/program"]][n] ?? [];
        ask("process/start", startParams(processId, argv, { tty: n === 0, pipeStdin: true }));
        ask("process/write", { processId, chunk: Buffer.alloc(random(100_000)).toString("base64") });
        ask("process/read", { processId, waitMs: 60_000, afterSeq: 1000 });
        ask("process/wait", { processId, until: { type: "output", pattern: "never" } });
        ask("process/terminate", { processId, mode: { type: "graceful", timeoutMs: 60_000 } });
      }
      ask("command/exec", { argv: sh("sleep 1000"), cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty: true });
      ask("fs/readFile", { path: "file:///etc/hostname" });
      ask("fs/open", { handleId: "h", path: "file:///etc/hostname" });
      // The client disconnects before the responses arrive, so the calls reject.
      for (const answer of requests) void answer.catch(() => undefined);
      for (let tick = random(60); tick > 0; tick--) await new Promise((resolve) => setImmediate(resolve));
      client.cut();
      await client.ended();
    };
    for (let round = 0; round < 15; round++) await Promise.all(Array.from({ length: 8 }, cutAtRandom));
    await using client = await server.connect();
    await client.handshake();
    const pid = server.serverPid();
    await until("everything they started is gone", () => childrenOf(pid).length === 0);
    assert.deepEqual(await client.call("environment/status"), { status: "ready" });
    const complaints = server.stderr.split("\n").filter((line) => line.includes('"level":"error"'));
    assert.deepEqual(complaints, []);
  });

  test("keeps serving when peers speak another protocol", async () => {
    await using server = await serve();
    await using client = await server.connect();
    await client.handshake();
    const http = server.url.replace("ws", "http");
    const upgrade =
      "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let seed = 42;
    const randomBytesOf = (length: number) =>
      Buffer.from(
        Array.from({ length }, () => {
          seed = (seed * 48_271) % 2_147_483_647;
          return seed & 255;
        }),
      );
    for (let n = 0; n < 60; n++) {
      const { socket, closed } = await rawTcp(http);
      if (n % 3 !== 0) socket.write(upgrade);
      if (n % 3 === 2) socket.write(Buffer.from([0x81, 0xfe]));
      socket.write(randomBytesOf(1 + n * 7));
      if (n % 2 === 0) socket.end();
      else socket.destroy();
      if (n % 2 === 0) {
        setTimeout(() => socket.destroy(), 50).unref();
        await closed;
      }
    }
    assert.deepEqual(await client.call("environment/status"), { status: "ready" });
    await until("all connections are closed", async () => {
      const health = (await (await fetch(`${http}/healthz`)).json()) as { connections: number };
      return health.connections === 1;
    });
  });

  test("logs JSON lines to stderr only", async () => {
    await using server = await serve("--log-level", "debug");
    const client = await server.connect();
    client.notify("nonsense");
    await client.ended();
    await server.stop();
    const [banner, ...lines] = server.stderr.trim().split("\n");
    assert.ok(banner?.includes(server.url));
    assert.ok(lines.length > 0);
    const logged = lines.map((line) => JSON.parse(line) as { time: string; level: string; message: string });
    assert.ok(logged.every(({ time, level, message }) => time && level && message));
    assert.ok(
      logged.some(
        ({ level, message }) => level === "warn" && message.includes("unexpected notification method: nonsense"),
      ),
    );
    assert.equal(server.stdout, `${server.url}\n`);
  });
});
