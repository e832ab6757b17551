import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { sandboxPrograms } from "../../../src/sandbox/sandbox-probe.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";

const COMPILE_CACHE = new URL("../../support/system/compile-cache.mjs", import.meta.url).href;
const MEMORY_CONNECTION = new URL("../../support/servers/memory-connection.ts", import.meta.url).href;
const source = (path: string) => new URL(`../../../src/${path}`, import.meta.url).href;

/** The common part of every test program: opens a server, runs `body`, and reports that it reached its end. */
const program = (body: string) => `
import { createLocalHost, ExecServer, ExecServerClient, listen, run } from "${source("index.ts")}";
import { JsonRpcChannel } from "${source("client/rpc/json-rpc-channel.ts")}";
import { memoryConnectionPair } from "${MEMORY_CONNECTION}";
import { uriFromPath } from "${source("protocol/path-uri.ts")}";

const server = new ExecServer(createLocalHost());
const special = (kind) => ({ type: "special", value: { kind } });
const sandbox = {
  permissions: {
    type: "managed",
    file_system: { type: "restricted", entries: [{ path: special("root"), access: "read" }] },
    network: "restricted",
  },
  windowsSandboxLevel: "disabled",
};
async function openCaller() {
  const [ours, theirs] = memoryConnectionPair();
  void server.accept(theirs);
  const caller = new JsonRpcChannel(ours, { onNotification: () => undefined, onClosed: () => undefined });
  await caller.call("initialize", { clientName: "program" });
  caller.initialized();
  return caller;
}
const readSandboxed = (caller) => caller.call("fs/readFile", { path: uriFromPath(process.argv[1]), sandbox });
${body}
await server.close();
console.log("closed");
`;

/**
 * Runs the program to its end in a temporary directory, which also holds its temporary files. Returns the files that it
 * left there.
 */
async function runProgram(body: string) {
  using scratch = scratchDirectory();
  const path = join(scratch.path, "program.ts");
  const TMPDIR = join(scratch.path, "tmp");
  mkdirSync(TMPDIR);
  writeFileSync(path, program(body));
  const child = spawn(process.execPath, ["--no-warnings", `--import=${COMPILE_CACHE}`, path], {
    cwd: scratch.path,
    env: { ...process.env, TMPDIR },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "close")]);
  return { code, stdout, stderr, left: readdirSync(TMPDIR) };
}

const ROUNDS = repetitions(30);
const CLOSED = { code: 0, stdout: "closed\n", stderr: "", left: [] };
const skip = skipUnless(sandboxPrograms() !== null, "bubblewrap does not work here; run `npm run setup:debian`");

describe("a program that closes the server it has embedded", { timeout: 600_000 }, () => {
  test("exits without help after it used commands, terminals and sockets", async () => {
    const used = await runProgram(`
      const client = await ExecServerClient.connectInProcess(server);
      await run(client.backend, ["echo", "hello"]);
      const env = { PATH: "/usr/bin:/bin" };
      await client.start({ processId: "shell", argv: ["sh"], cwd: "/", env, tty: true });
      await client.start({ processId: "sleep", argv: ["sleep", "100"], cwd: "/", env, tty: false });
      const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
      const remote = await ExecServerClient.connectWebSocket({ url: listening.url });
      await run(remote.backend, ["true"]);
      await remote.close();
      await listening.close();
      await client.close();
    `);
    assert.deepEqual(used, CLOSED);
    assert.deepEqual(await runProgram(""), CLOSED);
  });

  test("continues after close() while a sandboxed server is still exiting", {
    skip,
  }, async () => {
    for (let count = 0; count < ROUNDS; count++) {
      const closed = await runProgram(
        "const caller = await openCaller(); await readSandboxed(caller); caller.close();",
      );
      assert.deepEqual(closed, CLOSED);
    }
  });

  test("continues after close() while sandboxed commands and a sandboxed file request run", {
    skip,
  }, async () => {
    for (let count = 0; count < ROUNDS; count++) {
      const closed = await runProgram(`
        const caller = await openCaller();
        const client = await ExecServerClient.connectInProcess(server);
        const env = { PATH: "/usr/bin:/bin" };
        await client.start({ processId: "sandboxed", argv: ["sleep", "100"], cwd: "/", env, tty: false, sandbox });
        readSandboxed(caller).catch(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, ${(count % 5) * 20}));
      `);
      assert.deepEqual(closed, CLOSED);
    }
  });
});
