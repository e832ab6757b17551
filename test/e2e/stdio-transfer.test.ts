import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync, readFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { BRIDGE_READY_LINE } from "../../src/client/node/connect-url.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { PROCWIRE, ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { UserServerDirectory } from "../support/servers/user-server.ts";
import { openDescriptors } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

const SENT_BYTES = 4 * 1024 * 1024;
const CAT = { processId: "cat", argv: ["cat"], cwd: "/", env: { PATH: "/usr/bin:/bin" }, tty: false, pipeStdin: true };

describe("procwire connect", { timeout: 600_000 }, () => {
  test("passes its stdio to the server, and copies no byte of the client", async () => {
    await using place = new UserServerDirectory();
    const pidFile = join(place.directory, "pid");
    await using client = await NodeExecServerClient.connectWebSocket({
      url: place.url(`echo $$ > '${pidFile}';`),
      logLimits: { retainedBytes: 2 * SENT_BYTES },
    });
    const bridge = Number(readFileSync(pidFile, "utf8"));
    const before = readAndWrittenBytes(bridge);
    await using process = await client.start(CAT);
    let echoed = 0;
    const echo = (async () => {
      for await (const event of process.events({ lossless: true })) {
        if (event.type === "output") echoed += event.chunk.length;
      }
    })();
    for (let sent = 0; sent < SENT_BYTES; sent += 65_536) await process.write(Buffer.alloc(65_536, "x"));
    await process.closeStdin();
    await echo;
    assert.equal(echoed, SENT_BYTES);
    assert.ok(readAndWrittenBytes(bridge) - before < 65_536);
  });

  test("ends when the server closes the connection, and the connection ends with it", async () => {
    await using place = new UserServerDirectory();
    const pidFile = join(place.directory, "pid");
    const client = await NodeExecServerClient.connectWebSocket({
      url: place.url(`echo $$ > '${pidFile}';`),
      reconnect: false,
    });
    const [server = 0] = place.serverPids().slice(-1);
    const bridge = Number(readFileSync(pidFile, "utf8"));
    process.kill(bridge, "SIGKILL");
    const call = () => client.call("environment/info", {});
    await until("calls to fail", () =>
      call().then(
        () => false,
        () => true,
      ),
    );
    await client.close();
    const next = await NodeExecServerClient.connectWebSocket({ url: place.url(`echo $$ > '${pidFile}';`) });
    await next.close();
    await until("the second bridge has exited", () => !isRunning(Number(readFileSync(pidFile, "utf8"))));
    assert.ok(isRunning(server));
  });

  test("copies bytes if the server does not confirm the transfer", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "socket");
    const received: string[] = [];
    await using server = createServer((socket) => {
      socket.once("data", (chunk: Buffer) => {
        received.push(chunk.toString());
        // A server without the addon rejects the line as an invalid HTTP request.
        if (received.length === 1) socket.end("HTTP/1.1 400 Bad Request\r\n\r\n");
        else socket.end(`echo ${chunk}`);
      });
    }).listen(path);
    await once(server, "listening");
    const child = spawn(PROCWIRE, ["connect", `unix://${path}`], { stdio: ["pipe", "pipe", "inherit"] });
    const output = text(child.stdout);
    child.stdin.write("request");
    assert.equal(await output, `\n${BRIDGE_READY_LINE}\necho request`);
    assert.deepEqual(received, ["procwire stdio transfer 1\n", "request"]);
  });
});

describe("a server that receives descriptors", { timeout: 600_000 }, () => {
  test("closes connections that pass other descriptors than pipes and Unix sockets, and leaks none", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "socket");
    await using server = await new ServeChild(["--listen", `unix://${path}`]).listening();
    const loaded = loadAddon();
    assert.ok(loaded.type === "loaded", "the native addon must be built");
    const { transferStdio } = loaded.addon;
    await using tcp = createServer((accepted) => accepted.destroy()).listen(0, "127.0.0.1");
    await once(tcp, "listening");
    const address = tcp.address();
    assert.ok(address !== null && typeof address === "object");
    const tcpSocket = await opened(connect({ port: address.port, host: "127.0.0.1", allowHalfOpen: true }));
    const file = openSync("/dev/null", "r+");
    const listener = descriptorOf(tcp);
    const before = openDescriptors(server.serverPid()).length;
    const passAll: ((connection: number) => number | null)[] = [
      (connection) => transferStdio(connection, file, file),
      (connection) => transferStdio(connection, connection, file),
      (connection) => transferStdio(connection, descriptorOf(tcpSocket), descriptorOf(tcpSocket)),
      (connection) => transferStdio(connection, listener, listener),
    ];
    for (const pass of passAll) {
      const connection = await opened(connect({ path }));
      assert.equal(pass(descriptorOf(connection)), null);
      await closed(connection);
    }
    tcpSocket.destroy();
    // The line alone is an invalid HTTP request.
    const alone = await opened(connect({ path }));
    alone.write("procwire stdio transfer 1\n\r\n\r\n");
    assert.match(await text(alone), /^HTTP\/1\.1 400 /);
    const late = await opened(connect({ path }));
    late.write("GET /healthz HTTP/1.1\r\n");
    assert.equal(transferStdio(descriptorOf(late), file, file), null);
    late.end("\r\n\r\n");
    await closed(late);
    await until("all descriptors are closed", () => openDescriptors(server.serverPid()).length === before);
    await using client = await NodeExecServerClient.connectUnix({ path });
    assert.equal((await client.call("process/list", {})).processes.length, 0);
    closeSync(file);
  });
});

function readAndWrittenBytes(pid: number): number {
  const counted = readFileSync(`/proc/${pid}/io`, "utf8").matchAll(/^[rw]char: (\d+)$/gm);
  return [...counted].reduce((sum, [, bytes]) => sum + Number(bytes), 0);
}

function isRunning(pid: number): boolean {
  try {
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
}

async function opened(socket: Socket): Promise<Socket> {
  await once(socket, "connect");
  socket.on("error", () => undefined);
  return socket;
}

/** Resolves when the socket is closed, also by a reset. */
function closed(socket: Socket): Promise<void> {
  socket.resume();
  return new Promise((resolve) => socket.once("close", () => resolve()));
}

/** Returns the descriptor of a socket or listener, which has no public name in Node. */
function descriptorOf(owner: object): number {
  const { _handle: handle } = owner as { _handle: { fd: number } };
  return handle.fd;
}
