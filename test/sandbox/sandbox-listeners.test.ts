import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { closeSync, readdirSync, readlinkSync } from "node:fs";
import { createServer, type Server } from "node:net";
import { describe, test } from "node:test";
import type { ExitStatus, StartParams } from "../../src/exec/exec-process.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { localSandbox } from "../../src/host/local-sandbox.ts";
import { resolveSandbox } from "../../src/sandbox/resolve-sandbox.ts";
import { until } from "../support/system/until.ts";
import { noSandbox } from "./sandbox-fixture.ts";

const PORTS = [61128, 61080];

const DISABLED = { permissions: { type: "disabled" }, windowsSandboxLevel: "disabled" };
const MINIMAL = {
  permissions: {
    type: "managed",
    file_system: {
      type: "restricted",
      entries: [{ path: { type: "special", value: { kind: "minimal" } }, access: "read" }],
    },
    network: "enabled",
  },
  windowsSandboxLevel: "disabled",
};

/** Starts a command whose sandbox listens at `ports`. Every connection receives the port and is closed. */
async function run(script: string, more: Partial<StartParams> = {}, ports: readonly number[] = PORTS) {
  const sandbox = localSandbox();
  const servers: Server[] = [];
  let received: Promise<readonly number[]> | undefined;
  await using backend = createLocalBackend({
    resolveSandbox: async (request, start) => {
      const resolved = await sandbox.resolve(request, { ...start, listenPorts: ports });
      assert.ok(resolved.type === "sandboxed");
      received = resolved.listeners;
      void received?.then((descriptors) => {
        for (const [index, fd] of descriptors.entries())
          servers.push(createServer((socket) => socket.end(`served ${ports[index]}\n`)).listen({ fd }));
      });
      return resolved;
    },
  });
  const process = await backend.start({
    processId: randomUUID(),
    argv: ["/bin/bash", "-c", script],
    cwd: "/",
    env: { PATH: "/usr/bin:/bin", HOME: "/var/empty" },
    tty: false,
    sandbox: DISABLED,
    ...more,
  });
  let output = "";
  let exit: ExitStatus | null = null;
  for await (const event of process.events()) {
    if (event.type === "output") output += new TextDecoder().decode(event.chunk);
    if (event.type === "exited") exit = event;
  }
  const listeners = (await received)?.length;
  for (const server of servers) {
    server.close();
    await once(server, "close");
  }
  return { output, exitCode: exit?.exitCode, denied: exit?.sandboxDenied, listeners, type: process.sandboxType };
}

const CONNECT = PORTS.map((port) => `cat </dev/tcp/127.0.0.1/${port}`).join("; ");
const SERVED = PORTS.map((port) => `served ${port}\n`).join("");

/** Returns the open sockets of this process. */
function openSockets(): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      return target.startsWith("socket:") ? [target] : [];
    } catch {
      return [];
    }
  });
}

describe("a sandbox with listeners", { skip: noSandbox }, () => {
  test("passes them to the server, in a network namespace with loopback only", async () => {
    const { output, exitCode, type, listeners } = await run(`${CONNECT}; tail -n +3 /proc/net/dev | cut -d: -f1`);
    assert.deepEqual([output, exitCode, type, listeners], [`${SERVED}    lo\n`, 0, "linuxSeccomp", 2]);
  });

  test("works in a terminal, with limits, and without a visible file system", async () => {
    assert.equal((await run(CONNECT, { tty: true })).output.replaceAll("\r", ""), SERVED);
    assert.equal((await run(CONNECT, { sandbox: MINIMAL })).output, SERVED);
    const limits = { memoryBytes: 512 * 1024 * 1024, openFiles: 64 };
    assert.equal((await run(CONNECT, { limits, sandbox: MINIMAL })).output, SERVED);
    assert.equal((await run(CONNECT, { argv: ["/bin/bash", "-lc", CONNECT] })).output, SERVED);
  });

  test("reaches no listener of the host", async () => {
    using host = Object.assign(createServer().listen(0, "127.0.0.1"), {
      [Symbol.dispose]: () => void host.close(),
    });
    await once(host, "listening");
    const address = host.address();
    assert.ok(typeof address === "object" && address);
    const { output, exitCode, denied } = await run(`cat </dev/tcp/127.0.0.1/${address.port}`);
    assert.match(output, /Connection refused/);
    assert.deepEqual([exitCode, denied], [1, true]);
  });

  test("leaves no descriptor if a start fails, if the command exits at once, and if the sandbox fails", async () => {
    await run(CONNECT);
    const before = openSockets();
    await assert.rejects(run("true", { cwd: "/nowhere" }));
    assert.equal((await run("true")).listeners, 2);
    // Bubblewrap cannot enter the directory, so the program that listens never runs.
    const failed = await run("true", { sandbox: MINIMAL, cwd: "/var" });
    assert.notEqual(failed.exitCode, 0);
    assert.equal(failed.listeners, 0);
    await until("the sockets to close", () => openSockets().length <= before.length);
  });

  test("ends with exit code 101 if a port cannot be bound", async () => {
    const { output, exitCode, listeners } = await run("echo ran", {}, [61128, 1]);
    assert.equal(output, "cannot open the managed network of the sandbox: listen at port 1: Permission denied\n");
    assert.deepEqual([exitCode, listeners], [101, 0]);
  });

  test("is rejected on a host without the native addon", async () => {
    const start = { argv: ["true"], cwd: "/", env: {}, listenPorts: PORTS };
    await assert.rejects(resolveSandbox(DISABLED, start), /a managed network requires the native addon/);
  });

  test("releases the channel if the sandbox cannot be built", async () => {
    const before = openSockets();
    const start = { processId: "p", argv: ["true"], cwd: "/", env: { A: "\0" }, tty: false, listenPorts: PORTS };
    await assert.rejects(localSandbox().resolve(DISABLED, start), /nul byte/);
    assert.equal(openSockets().length, before.length);
  });

  test("hands listeners over after the command has exited, so that the receiver can close them", async () => {
    const sandbox = localSandbox();
    const before = openSockets();
    const start = { processId: "p", argv: ["true"], cwd: "/", env: {}, tty: false };
    const resolved = await sandbox.resolve(DISABLED, { ...start, listenPorts: PORTS });
    assert.ok(resolved.type === "sandboxed");
    await using backend = createLocalBackend({ resolveSandbox: async () => resolved });
    const process = await backend.start({ ...start, sandbox: DISABLED });
    for await (const event of process.events()) if (event.type === "exited") assert.equal(event.exitCode, 0);
    for (const fd of (await resolved.listeners) ?? []) closeSync(fd);
    assert.equal(openSockets().length, before.length);
  });
});
