import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { listen } from "../../src/server/listen/listen.ts";
import type { ListeningServer } from "../../src/server/listen/websocket-gateway.ts";
import { FaultProxy } from "../support/faults/fault-proxy.ts";

const runFile = promisify(execFile);
const FROM_SOURCE = fileURLToPath(new URL("../support/system/procwire-from-source.mjs", import.meta.url));

/** Runs an example and returns its output. */
function example(name: string, ...args: string[]) {
  const file = fileURLToPath(new URL(`../../examples/${name}.mjs`, import.meta.url));
  return runFile(process.execPath, [`--import=${FROM_SOURCE}`, file, ...args]);
}

describe("examples", { timeout: 600_000 }, () => {
  let server: ExecServer;
  let listening: ListeningServer;
  before(async () => {
    server = new ExecServer(createLocalHost());
    listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
  });
  after(async () => {
    await listening.close();
    await server.close();
  });

  test("run a command locally and on a server", async () => {
    const here = await example("run-a-command");
    const there = await example("run-a-command", listening.url);
    assert.match(here.stdout, /^\S+ \S+ \(exit code 0\)\n$/);
    assert.equal(there.stdout, here.stdout);
  });

  test("talk to a REPL in a terminal", async () => {
    const { stdout } = await example("interactive-repl", listening.url);
    assert.equal(stdout, "echo $((6 * 7))  ->  42\nstty size  ->  24 80\nthe shell exited with 3\n");
  });

  test("follow a build log over a connection that breaks", async () => {
    await using proxy = await FaultProxy.before(listening.url);
    const running = example("follow-build-log", proxy.url);
    let timer: NodeJS.Timeout | undefined;
    // Only once it is connected: a first connection that fails is an error, and is not retried.
    running.child.stdout?.once("data", () => {
      timer = setInterval(() => proxy.cut(), 200);
    });
    try {
      const { stdout, stderr } = await running;
      const parts = Array.from({ length: 50 }, (_, index) => `compiling part ${index + 1}\n`).join("");
      assert.equal(stdout, `${parts}built\n`);
      assert.match(stderr, /connection lost, reconnecting/);
    } finally {
      clearInterval(timer);
    }
  });

  test("upload a script and run it", async () => {
    for (const args of [[], [listening.url]]) {
      const { stdout } = await example("upload-and-run-script", ...args);
      assert.equal(stdout, "4 words, exit code 0\n");
    }
  });

  test("use an in-process server", async () => {
    const { stdout } = await example("in-process");
    assert.equal(stdout, "apple < fig < pear\n");
  });
});
