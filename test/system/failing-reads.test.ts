import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { describe, test } from "node:test";
import { Environment, type ExecEvent, type SpawnedProcess } from "../../src/index.ts";
import { InjectedFault, whyNoStrace } from "../support/faults/injected-faults.ts";
import { serve } from "../support/servers/serve.ts";
import { descendantsOf } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

const missing = whyNoStrace();
if (missing !== null && process.env.CI) throw new Error(`${missing}; the tests of test/system need it`);

const FAILURE = "failed to read the output of the process: I/O error (os error 5)";
const CAT = "echo ready; cat; sleep 1000";

describe("a read of a process's output that fails", { skip: missing ?? false, timeout: 600_000 }, () => {
  for (const tty of [false, true]) {
    const kind = tty ? "a terminal" : "a pipe";

    test(`is reported by a client's handle as the failure of the process: ${kind}`, async () => {
      await using server = await serve();
      await using environment = await Environment.create(server.url);
      await using healthy = await environment.spawn(["cat"]);
      const before = outputsOf(server.serverPid());
      await using process = await environment.spawn(["/bin/sh", "-c", CAT], { tty });
      await process.waitFor("ready");
      await using _fault = await failingRead(server.serverPid(), before);
      const waiting = assert.rejects(process.wait(), { message: FAILURE, code: "FAILED" });
      await process.write("more\n");
      await waiting;
      assert.equal((await process.read()).failure, FAILURE);
      const failed = await lastEvent(process);
      assert.ok(failed?.type === "failed");
      assert.deepEqual([failed.message, failed.error.code], [FAILURE, "FAILED"]);
      // The server can no longer read the output, so it terminates the process; other processes continue.
      await until("one process below the server", () => descendantsOf(server.serverPid()).length === 1);
      await healthy.write("still here\n");
      await healthy.waitFor("still here");
    });

    test(`is reported as exited and closed to a client without the extension: ${kind}`, async () => {
      await using server = await serve();
      await using client = await server.connect();
      await client.handshake();
      const before = outputsOf(server.serverPid());
      await client.start("p", ["/bin/sh", "-c", CAT], { tty, pipeStdin: true });
      await client.waitFor("output", ({ method }) => method === "process/output");
      await using _fault = await failingRead(server.serverPid(), before);
      await client.write("p", "more\n");
      await client.finished("p");
      const [exited, closed] = client.messages.slice(-2);
      assert.deepEqual([exited?.method, exited?.params?.exitCode], ["process/exited", -1]);
      assert.equal(closed?.method, "process/closed");
      const { failure, closed: isClosed } = await client.call("process/read", { processId: "p" });
      assert.deepEqual([failure, isClosed], [FAILURE, true]);
      assert.ok(!client.messages.some(({ method }) => method === "process/failed"));
    });
  }

  test("is reported once as an exit to a v0 client", async () => {
    await using server = await serve();
    await using client = await server.connect();
    await client.handshake();
    const before = outputsOf(server.serverPid());
    const { sessionId } = await client.call("command/exec", {
      argv: ["/bin/sh", "-c", CAT],
      cwd: "/",
      env: { PATH: process.env.PATH },
      tty: true,
    });
    await client.waitFor("output", ({ method }) => method === "command/exec/outputDelta");
    await using _fault = await failingRead(server.serverPid(), before);
    await client.call("command/exec/write", { sessionId, chunk: Buffer.from("more\n").toString("base64") });
    await client.waitFor("the exit", ({ method }) => method === "command/exec/exited");
    await until("no process below the server", () => descendantsOf(server.serverPid()).length === 0);
    const exits = client.messages.filter(({ method }) => method === "command/exec/exited");
    assert.deepEqual(
      exits.map(({ params }) => params?.exitCode),
      [-1],
    );
  });
});

/** Returns the readable descriptors of a process with their targets in `/proc/PID/fd`. */
function outputsOf(pid: number): Map<string, string> {
  const names = new Map<string, string>();
  for (const fd of readdirSync(`/proc/${pid}/fd`)) {
    try {
      const [, flags] = /^flags:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8")) ?? [];
      const isReadable = (Number.parseInt(flags ?? "1", 8) & 3) !== 1;
      if (isReadable) names.set(fd, readlinkSync(`/proc/${pid}/fd/${fd}`));
    } catch {
      // The process closed this descriptor meanwhile.
    }
  }
  return names;
}

/** Makes every read fail of the first pipe or terminal that the server opened after `before`. */
function failingRead(pid: number, before: Map<string, string>): Promise<InjectedFault> {
  const opened = [...outputsOf(pid)].filter(([fd, name]) => before.get(fd) !== name).map(([, name]) => name);
  const path = opened.find((name) => /^(pipe:|.*ptmx)/.test(name));
  assert.ok(path, `no pipe and no terminal was opened: ${opened}`);
  return InjectedFault.into(pid, { syscall: "read", error: "EIO", when: "1+", path });
}

async function lastEvent(process: SpawnedProcess): Promise<ExecEvent | undefined> {
  let last: ExecEvent | undefined;
  for await (const event of process.events()) last = event;
  return last;
}
