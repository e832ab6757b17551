import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { describe, test } from "node:test";
import type { StartParams } from "../../src/exec/exec-process.ts";
import { RetentionBudget } from "../../src/exec/log/retention-budget.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { LocalBackend } from "../../src/local/local-backend.ts";
import { nodePlatform } from "../../src/local/platform.ts";
import { SpawnError } from "../../src/local/spawn-error.ts";
import { ExecServerError } from "../../src/protocol/exec-server-error.ts";
import { isRunning, NO_ADDON } from "../native/started.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { until } from "../support/system/until.ts";

let ids = 0;
const start = (backend: LocalBackend, script: string, params: Partial<StartParams> = {}) =>
  backend.start({
    processId: `p${++ids}`,
    argv: ["/bin/sh", "-c", script],
    cwd: "/",
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    ...params,
  });

const isError = (code: number, message: string | RegExp) => (error: unknown) => {
  assert.ok(error instanceof ExecServerError);
  assert.equal(error.rpcCode, code);
  if (typeof message === "string") assert.equal(error.message, message);
  else assert.match(error.message, message);
  return true;
};

describe("LocalBackend", { skip: NO_ADDON }, () => {
  test("rejects arguments that no system call accepts, with the error of the wire protocol", async () => {
    await using backend = createLocalBackend();
    const refusals: [Partial<StartParams>, number, string | RegExp][] = [
      [{ argv: [] }, -32602, "argv must not be empty"],
      [{ argv: [""] }, -32603, "missing program for pipe spawn"],
      [{ argv: [""], tty: true }, -32603, "missing program for PTY spawn"],
      [{ argv: ["sh", "a\0b"] }, -32603, "nul byte found in provided data"],
      [{ arg0: "a\0b" }, -32603, "nul byte found in provided data"],
      [{ env: { A: "a\0b" } }, -32603, "data provided contains a nul byte"],
      [{ cwd: "relative" }, -32602, "cwd `relative` must be an absolute path or a file: URI"],
      [
        { cwd: "file://elsewhere/x" },
        -32602,
        "cwd URI `file://elsewhere/x` is not valid on this exec-server host: 'file://elsewhere/x' is invalid on 'linux'",
      ],
      [{ sandbox: { permissions: {} } }, -32602, "missing field `windowsSandboxLevel`"],
    ];
    for (const [params, code, message] of refusals)
      await assert.rejects(start(backend, "true", params), isError(code, message), JSON.stringify(params));
  });

  test("keeps names unique among live processes and lists names and labels", async () => {
    await using backend = createLocalBackend();
    const api = await start(backend, "read line", { pipeStdin: true, name: "api", labels: { team: "x" } });
    const [listed] = await backend.list();
    assert.deepEqual([listed?.name, listed?.labels], ["api", { team: "x" }]);
    const inUse = `name \`api\` is in use by process ${api.processId}; end that process, or choose another name`;
    await assert.rejects(start(backend, "true", { name: "api" }), isError(-32600, inUse));
    const invalid = (message: RegExp) => ({ code: "EINVAL", message });
    await assert.rejects(start(backend, "true", { name: "Api" }), invalid(/^invalid name `Api`/));
    await assert.rejects(start(backend, "true", { labels: { "a b": "" } }), invalid(/^invalid label key `a b`/));
    await api.terminate();
    // The exit frees the name, and follows the kill.
    await api.wait();
    await assert.rejects(start(backend, "true", { name: "api", cwd: "/missing" }), isError(-32603, /os error 2/));
    const starts = [1, 2, 3].map(() => start(backend, "sleep 300", { name: "api" }));
    const settled = await Promise.allSettled(starts);
    assert.deepEqual(settled.map(({ status }) => status).sort(), ["fulfilled", "rejected", "rejected"]);
  });

  test("rejects every sandbox request without a sandbox resolver", async () => {
    await using backend = new LocalBackend(nodePlatform("disabled by a test"), { isLibrary: true });
    await assert.rejects(
      start(backend, "true", { sandbox: { permissions: {} } }),
      isError(-32602, "sandbox intent cannot be enforced on this executor"),
    );
  });

  test("keeps the system error as the cause of the wire error", async () => {
    await using backend = createLocalBackend();
    for (const tty of [false, true]) {
      await assert.rejects(start(backend, "true", { cwd: "/etc/passwd", tty }), (error) => {
        assert.ok(error instanceof ExecServerError && error.cause instanceof Error);
        assert.ok(error.cause.cause instanceof SpawnError);
        assert.equal(error.message, "Not a directory (os error 20)");
        const { code, errno, syscall, path, target } = error.cause.cause;
        assert.deepEqual(
          { code, errno, syscall, path, target },
          { code: "ENOTDIR", errno: 20, syscall: "chdir", path: "/etc/passwd", target: "cwd" },
        );
        return true;
      });
    }
  });

  test("starts in a directory given as a file URI", async () => {
    await using backend = createLocalBackend();
    for (const cwd of ["file:///usr/bin", "file://localhost/usr/bin", "file:///usr/%62in", "/usr/bin"]) {
      const started = await start(backend, "pwd", { cwd });
      await started.closed;
      assert.equal(
        Buffer.from((await started.snapshot()).stdout)
          .toString()
          .trim(),
        "/usr/bin",
        cwd,
      );
    }
  });

  test("starts the sandbox command instead and reports a denial", async () => {
    const calls: unknown[] = [];
    await using backend = createLocalBackend({
      resolveSandbox: async (request, { argv, env }) => {
        assert.deepEqual(request, { requested: true });
        const file = "/usr/bin/env";
        return {
          type: "sandboxed",
          child: { file, argv: [file, ...argv], env: { ...env, SANDBOXED: "1" }, descriptors: [] },
          sandboxType: "linuxSeccomp",
          isDenial: ({ exitCode }) => exitCode === 13,
          resources: { network: false, mountPoints: [], pins: [] },
          started: (pid) => calls.push(pid),
          ended: async () => void calls.push("ended"),
        };
      },
    });
    const started = await start(backend, "echo $SANDBOXED; exit 13", { sandbox: { requested: true } });
    assert.equal(started.sandboxType, "linuxSeccomp");
    await started.closed;
    assert.equal(Buffer.from((await started.snapshot()).stdout).toString(), "1\n");
    assert.equal(started.log.exit?.sandboxDenied, true);
    assert.deepEqual(calls, [started.pid, "ended"]);
    await assert.rejects(start(backend, "true", { sandbox: { requested: true }, cwd: "/nowhere" }));
    assert.deepEqual(calls.slice(2), [null], "a failed start is reported too");
    const label = await start(backend, "true", { mode: "prepared", sandboxType: "macosSeatbelt" });
    assert.equal(label.sandboxType, "macosSeatbelt");
  });

  test("kills a process that ignores SIGTERM after its timeout and the grace period", async () => {
    const clock = new ManualClock();
    const backend = createLocalBackend({ clock });
    const started = await start(backend, "trap '' TERM; echo ready; while :; do sleep 0.05; done", {
      timeoutMs: 1000,
    });
    await until("it is ready", () => started.log.totalBytes > 0);
    await clock.advance(1000);
    await clock.advance(1999);
    assert.equal(started.running, true);
    await clock.advance(1);
    await until("it is dead", () => started.log.exit !== null);
    assert.deepEqual([started.log.exit?.exitCode, started.log.exit?.reason], [137, "timeout"]);
    await started.closed;
  });

  test("blocks a writer until the process reads or is terminated", async () => {
    await using backend = createLocalBackend();
    const started = await start(backend, "kill -STOP $$; cat >/dev/null; echo all", { pipeStdin: true });
    const large = Buffer.alloc(3 * 1024 * 1024, "x");
    let accepted = false;
    const writing = started.write(large).then((result) => {
      accepted = true;
      return result;
    });
    await until("it has stopped", () => readFileSync(`/proc/${started.pid}/stat`, "latin1").includes(") T "));
    assert.equal(accepted, false);
    await started.signal("SIGCONT");
    assert.deepEqual(await writing, { status: "accepted" });
    const blocked = await start(backend, "sleep 100", { pipeStdin: true });
    const stuck = blocked.write(large);
    await blocked.terminate();
    assert.deepEqual(await stuck, { status: "accepted" });
  });

  test("pauses a process until a lossless cursor has read its output", async () => {
    await using backend = createLocalBackend({ eventLogLimits: { retainedBytes: 256 * 1024 } });
    const started = await start(backend, "head -c 8000000 /dev/zero; echo done >&2");
    const cursor = started.log.cursor({ lossless: true });
    const blocked = () => readFileSync(`/proc/${started.pid}/task/${started.pid}/children`, "utf8") !== "";
    await until("the retention is full", () => started.log.retainedBytes >= 256 * 1024);
    assert.ok(blocked());
    assert.ok(started.log.retainedBytes < 2_000_000, `${started.log.retainedBytes} bytes retained`);
    // The process stays paused over many ticks.
    const before = started.log.totalBytes;
    for (let tick = 0; tick < 50; tick++) await new Promise((resolve) => setImmediate(resolve));
    assert.equal(started.log.totalBytes, before);
    let bytes = 0;
    while (!cursor.ended) {
      const event = cursor.next();
      if (event?.type === "output" && event.stream === "stdout") bytes += event.chunk.length;
      if (!event) await started.log.nextChange();
    }
    assert.equal(bytes, 8_000_000);
  });

  test("waits until a process listens on a port", async () => {
    await using backend = createLocalBackend();
    const probe = createServer();
    await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
    const address = probe.address();
    const port = typeof address === "object" && address ? address.port : 0;
    const idle = await start(backend, "sleep 100");
    assert.equal((await idle.wait({ until: { type: "port", port }, timeoutMs: 60_000 })).reason, "listening");
    await new Promise((resolve) => probe.close(resolve));
    assert.equal((await idle.wait({ until: { type: "port", port }, timeoutMs: 10 })).reason, "timeout");
  });

  test("terminates all processes at shutdown and closes streams that descendants hold open", async () => {
    const backend = createLocalBackend();
    const trapping = await start(backend, "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.02; done");
    await trapping.wait({ until: { type: "output", pattern: "ready" } });
    await backend.shutdown(30_000);
    assert.equal(trapping.log.exit?.exitCode, 3);
    const ignoring = await start(backend, "trap '' TERM; echo ready; while :; do sleep 0.02; done", {
      tty: true,
    });
    await ignoring.wait({ until: { type: "output", pattern: "ready" } });
    const left = await start(backend, "setsid sleep 100 & echo $!");
    await left.wait();
    // This process is still starting when the shutdown begins.
    const late = start(backend, "sleep 100");
    assert.equal((await backend.list()).length, 2);
    await backend.shutdown(10);
    assert.equal((await backend.list()).length, 0);
    assert.equal(ignoring.log.exit?.signal, "SIGKILL");
    assert.ok(left.log.isClosed);
    assert.ok((await late).log.isClosed);
    await backend.shutdown(10);
    await backend[Symbol.asyncDispose]();
    await assert.rejects(start(backend, "true"), isError(-32600, /the backend is closed/));
  });

  test("does not kill descendants of an exited leader on terminate, but kills them when the session expires", async () => {
    await using backend = createLocalBackend();
    const started = await start(backend, "sleep 100 & echo $!; exit 0");
    await started.wait();
    const holder = Number(Buffer.from((await started.snapshot()).stdout).toString());
    assert.deepEqual(await started.terminate(), { running: false });
    assert.ok(isRunning(holder));
    assert.equal(started.log.isClosed, false);
    assert.equal((await started.terminateWithReason("sessionExpired")).running, false);
    await started.closed;
    await until("the descendant that held the streams has exited", () => !isRunning(holder));
    assert.equal(started.log.exit?.reason, "exited");
  });

  test("frees descriptors, memory and descendants when a process is disposed", async () => {
    await using backend = createLocalBackend();
    const descriptors = () => readdirSync("/proc/self/fd").length;
    await (await start(backend, "true")).closed;
    const before = descriptors();
    const budget = new RetentionBudget(256 * 1024 * 1024);
    await using other = createLocalBackend({ budget });
    let holder = 0;
    {
      await using started = await start(other, "setsid sleep 100 & echo $!; exit 0");
      await started.wait({ until: { type: "exit" } });
      holder = Number(Buffer.from((await started.snapshot()).stdout).toString());
      assert.ok(isRunning(holder));
      assert.ok(budget.bytes > 0);
    }
    assert.equal(isRunning(holder), false);
    assert.equal(budget.bytes, 0);
    assert.equal(descriptors(), before);
  });

  test("uses less than 200 kB of memory for an idle process", async () => {
    await using backend = createLocalBackend();
    const processes = 200;
    await Promise.all(Array.from({ length: processes }, () => start(backend, "exec sleep 100")));
    await backend.shutdown(0);
    const before = process.memoryUsage().rss;
    await Promise.all(Array.from({ length: processes }, () => start(backend, "exec sleep 100")));
    const each = (process.memoryUsage().rss - before) / processes;
    assert.ok(each < 200_000, `${each} bytes each`);
  });

  test("reports no degraded components with the native addon", () => {
    assert.deepEqual(createLocalBackend().degradedComponents(), []);
  });
});

describe("LocalBackend without the native addon", () => {
  test("reports itself as degraded and explains how to enable terminals", async () => {
    await using backend = createLocalBackend({ forceFallback: true });
    assert.equal(backend.degradedComponents().length, 1);
    assert.match(backend.degradedComponents()[0] ?? "", /^native addon missing: /);
    await assert.rejects(
      start(backend, "true", { tty: true }),
      isError(-32603, /^cannot allocate a terminal: native addon not available.*install a C\+\+ compiler/),
    );
  });

  test("reports the exit after all output of the leader although a descendant holds the pipes", async () => {
    await using backend = createLocalBackend({ forceFallback: true });
    const started = await start(backend, "head -c 100000 /dev/zero; sleep 100 & exit 4");
    const result = await started.wait();
    assert.deepEqual([result.exitCode, started.log.totalBytes], [4, 100_000]);
    assert.equal(started.log.isClosed, false);
  });

  test("distinguishes a missing working directory from a missing executable", async () => {
    await using backend = createLocalBackend({ forceFallback: true });
    for (const [params, target] of [
      [{ cwd: "/no/such/directory" }, "cwd"],
      [{ argv: ["no-such-program"] }, "program"],
    ] as const)
      await assert.rejects(
        start(backend, "true", { ...params, argv: [...("argv" in params ? params.argv : ["true"])] }),
        (error) => {
          assert.ok(error instanceof ExecServerError && error.cause instanceof Error);
          assert.ok(error.cause.cause instanceof SpawnError);
          assert.equal(error.cause.cause.target, target);
          return true;
        },
      );
  });
});
