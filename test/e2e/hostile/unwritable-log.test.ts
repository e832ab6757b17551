import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, openSync, readSync } from "node:fs";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { sh, WireClient, webSocketWire } from "../../support/servers/raw-connection.ts";
import { makePipe, PROCWIRE, scratchDirectory } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

const servers: ChildProcess[] = [];
after(() => {
  for (const server of servers) server.kill("SIGKILL");
});

/** Starts a server with the given stderr and reads its URL from stdout. */
async function serveWith(stderr: "pipe" | number, args: string[] = ["serve"]) {
  const listen = args[0] === "start" ? [] : ["--listen", "ws://127.0.0.1:0"];
  const child = spawn(PROCWIRE, [...args, ...listen], { stdio: ["ignore", "pipe", stderr] });
  servers.push(child);
  const exited = once(child, "exit");
  let stdout = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  await until("a URL on stdout", () => stdout.includes("\n"), exited);
  return { child, url: stdout.trim(), exited };
}

/** Makes the server log a warning: an unknown notification ends its connection. */
async function causeWarning(url: string): Promise<void> {
  const client = new WireClient(await webSocketWire(url, {}));
  await client.handshake();
  client.notify("nobody/knows", {});
  await client.ended();
}

/** Starts a process, makes the server log a few times, and checks that the process and its connection continue. */
async function assertProcessContinues(url: string): Promise<void> {
  const client = new WireClient(await webSocketWire(url, {}));
  await client.handshake();
  await client.start("p", sh("cat"), { pipeStdin: true });
  for (let time = 0; time < 3; time++) await causeWarning(url);
  await client.write("p", "still here\n");
  await client.outputContains("p", "still here");
  await client.close();
}

async function assertGracefulExit(child: ChildProcess, exited: Promise<unknown[]>): Promise<void> {
  child.kill("SIGTERM");
  assert.deepEqual(await exited, [0, null]);
}

describe("a log that cannot be written", { timeout: 600_000 }, () => {
  test("because its reader exited, ends neither the server nor a process", async () => {
    const { child, url, exited } = await serveWith("pipe");
    child.stderr?.destroy();
    await assertProcessContinues(url);
    await assertGracefulExit(child, exited);
  });

  test("because the disk is full, ends neither the server nor a process", async () => {
    const full = openSync("/dev/full", "w");
    const { child, url, exited } = await serveWith(full);
    closeSync(full);
    await assertProcessContinues(url);
    await assertGracefulExit(child, exited);
  });

  test("does not stop `procwire start`, even if its first lines are lost", async () => {
    const full = openSync("/dev/full", "w");
    const { child, url, exited } = await serveWith(full, ["start"]);
    closeSync(full);
    await assertProcessContinues(url);
    await assertGracefulExit(child, exited);
  });

  test("has its dropped lines counted, and reports their number when it can be written again", async () => {
    using directory = scratchDirectory();
    const pipe = join(directory.path, "log");
    makePipe(pipe);
    let reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
    const writer = openSync(pipe, constants.O_WRONLY);
    const { child, url, exited } = await serveWith(writer);
    closeSync(writer);
    assert.match(read(reader), /listening/);
    closeSync(reader);
    for (let time = 0; time < 3; time++) await causeWarning(url);
    reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
    await causeWarning(url);
    let log = "";
    await until("the number of dropped lines", () => {
      log += read(reader);
      return log.includes("nobody/knows");
    });
    // One more line without the addon, because the server logs that the addon is missing.
    assert.match(log, /[34] log lines were dropped/);
    assert.equal(log.split("\n").length, 3, log);
    await assertGracefulExit(child, exited);
    closeSync(reader);
  });

  test("because its reader stalls, is dropped instead of buffered, and SIGTERM still ends the server", async () => {
    using directory = scratchDirectory();
    const pipe = join(directory.path, "log");
    makePipe(pipe);
    const reader = openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK);
    const writer = openSync(pipe, constants.O_WRONLY);
    const { child, url, exited } = await serveWith(writer, ["serve", "--log-level", "debug"]);
    closeSync(writer);
    const client = new WireClient(await webSocketWire(url, {}));
    await client.handshake();
    await client.start("p", sh("cat"), { pipeStdin: true });
    // The server logs the whole name of each invalid method.
    const longName = "x".repeat(100_000);
    for (let time = 0; time < 20; time++) {
      const other = new WireClient(await webSocketWire(url, {}));
      other.notify(longName, {});
      await other.ended();
    }
    await client.write("p", "still here\n");
    await client.outputContains("p", "still here");
    await client.close();
    await assertGracefulExit(child, exited);
    closeSync(reader);
  });
});

test("`procwire mcp` keeps serving when its stderr has no reader", { timeout: 600_000 }, async () => {
  const child = spawn(PROCWIRE, ["mcp"], { stdio: ["pipe", "pipe", "pipe"] });
  servers.push(child);
  child.stderr.destroy();
  let stdout = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    stdout += text;
  });
  const exited = once(child, "exit");
  const ask = (id: number) => {
    const params = {
      protocolVersion: "2025-06-18",
      capabilities: {},
      clientInfo: { name: "t", version: "1" },
    };
    child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method: "initialize", params })}\n`);
  };
  ask(1);
  await until("the first answer", () => stdout.includes('"id":1'), exited);
  for (let time = 0; time < 3; time++) child.stdin.write('{"jsonrpc":"2.0","id":{}}\n');
  child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 2, method: "ping" })}\n`);
  await until("an answer after what was no message", () => stdout.includes('"id":2'), exited);
  child.stdin.end();
  assert.deepEqual(await exited, [0, null]);
});

describe("a server whose stdout is closed after the URL", { timeout: 600_000 }, () => {
  test("keeps serving, and its processes continue", async () => {
    const { child, url, exited } = await serveWith("pipe");
    child.stderr?.resume();
    child.stdout?.destroy();
    await assertProcessContinues(url);
    await assertGracefulExit(child, exited);
  });

  test("keeps serving when the URL itself could not be written", async () => {
    const full = openSync("/dev/full", "w");
    const child = spawn(PROCWIRE, ["serve", "--listen", "ws://127.0.0.1:0"], {
      stdio: ["ignore", full, "pipe"],
    });
    servers.push(child);
    closeSync(full);
    const exited = once(child, "exit");
    let stderr = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    await until("the URL on stderr", () => stderr.includes("\n"), exited);
    const url = /ws:\S+/.exec(stderr)?.[0];
    assert.ok(url);
    await assertProcessContinues(url);
    await assertGracefulExit(child, exited);
  });
});

function read(descriptor: number): string {
  const bytes = Buffer.alloc(65536);
  try {
    return bytes.toString("utf8", 0, readSync(descriptor, bytes));
  } catch {
    return "";
  }
}
