import assert from "node:assert/strict";
import { memoryUsage } from "node:process";
import { describe, test } from "node:test";
import { DEFAULT_ENV_POLICY } from "../../../src/exec/backend/secret-filter.ts";
import type { ExecBackend, Gap, OutputStream, StartParams } from "../../../src/exec/exec-process.ts";
import { collectOutput, DEFAULT_MAX_OUTPUT_BYTES } from "../../../src/exec/run/collect-output.ts";
import { communicate } from "../../../src/exec/run/communicate.ts";
import { lines } from "../../../src/exec/run/lines.ts";
import { run, toStartParams } from "../../../src/exec/run/run-program.ts";
import { streamBytes } from "../../../src/exec/run/stream-bytes.ts";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { collectGarbage } from "../../support/collect-garbage.ts";
import { FakeHost, type FakeProcess } from "../../support/servers/fake-host.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";

const START: StartParams = { processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false };
const FAILURE = new ExecServerError("its reader broke", "FAILED");

async function startOne(retainedBytes = 1_000_000): Promise<FakeProcess> {
  const host = new FakeHost({ retainedBytes });
  await host.backend.start(START);
  return host.process("p");
}

function print(process: FakeProcess, text: string, stream: OutputStream = "stdout"): void {
  process.log.append(stream, Buffer.from(text));
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = [];
  for await (const item of items) list.push(item);
  return list;
}

describe("lines", () => {
  test("yields complete lines without their terminators, and an unterminated last one", async () => {
    const process = await startOne();
    for (const text of ["on", "e\ntwo\r\n\n", "th\rree\r"]) print(process, text);
    print(process, "ignored\n", "stderr");
    process.finish();
    assert.deepEqual(await all(lines(process)), ["one", "two", "", "th\rree"]);
    assert.deepEqual(await all(lines(process, { stream: "stderr" })), ["ignored"]);
    assert.deepEqual(await all(lines(process, { afterSeq: 2 })), ["th\rree"]);
  });

  test("pauses the process rather than skip a line", async () => {
    const process = await startOne(10);
    const reading = lines(process);
    print(process, "one\n");
    assert.equal((await reading.next()).value, "one");
    for (const text of ["two\n", "three\n", "four\n"]) print(process, text);
    assert.equal(process.log.isPaused, true);
    process.finish();
    assert.deepEqual(await all(reading), ["two", "three", "four"]);
  });

  test("yields no empty last line, and the replacement of an incomplete last character", async () => {
    const process = await startOne();
    print(process, "one\n");
    process.log.append("stdout", Uint8Array.of(0xe2));
    process.finish();
    assert.deepEqual(await all(lines(process)), ["one", "\ufffd"]);
    const empty = await startOne();
    print(empty, "one\n");
    empty.finish();
    assert.deepEqual(await all(lines(empty)), ["one"]);
  });

  test("splits lines of more than 1 Mi characters", async () => {
    const process = await startOne(10_000_000);
    const mega = 1024 * 1024;
    print(process, "x".repeat(2 * mega + 1));
    process.finish();
    assert.deepEqual(
      (await all(lines(process))).map(({ length }) => length),
      [mega, mega, 1],
    );
    const exact = await startOne(10_000_000);
    print(exact, `${"x".repeat(mega)}`);
    print(exact, "\n");
    exact.finish();
    assert.deepEqual(
      (await all(lines(exact))).map(({ length }) => length),
      [mega],
    );
  });

  test("throws at a gap, or yields it between incomplete lines", async () => {
    const process = await startOne();
    print(process, "be");
    process.log.append("stdout", Uint8Array.of(0xe2));
    process.log.addGap(4, 7);
    print(process, "fter\n");
    process.log.addGap(6, null);
    process.finish();
    await assert.rejects(all(lines(process)), {
      code: "GAP",
      message: /^7 bytes of output of process p is no longer retained \(events 3 to 4\)/,
    });
    await assert.rejects(all(lines(process, { afterSeq: 5 })), { message: /^an unknown amount of output/ });
    const gaps: Gap[] = [
      { fromSeq: 3, toSeq: 4, bytes: 7 },
      { fromSeq: 6, toSeq: 6, bytes: null },
    ];
    assert.deepEqual(await all(lines(process, { onGap: "yield" })), ["be\ufffd", gaps[0], "fter", gaps[1]]);
  });

  test("throws the failure of the process and the reason of an abort", async () => {
    const process = await startOne();
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(all(lines(process, { signal })), /enough/);
    process.log.fail(FAILURE);
    await assert.rejects(all(lines(process)), FAILURE);
  });
});

describe("streamBytes", () => {
  test("yields one stream, and throws at a gap and at a failure", async () => {
    const process = await startOne();
    print(process, "a");
    print(process, "b", "stderr");
    print(process, "c", "pty");
    const read = async (stream?: OutputStream) => {
      const chunks: Uint8Array[] = [];
      for await (const chunk of streamBytes(process, stream && { stream })) chunks.push(chunk);
      return Buffer.concat(chunks).toString();
    };
    process.log.addGap(4, 1);
    await assert.rejects(read(), { code: "GAP", message: /events 4 to 4/ });
    const other = await startOne();
    other.log.fail(FAILURE);
    await assert.rejects(all(streamBytes(other)), FAILURE);
    const whole = await startOne();
    for (const [text, stream] of [
      ["a", "stdout"],
      ["b", "stderr"],
      ["c", "pty"],
    ] as const)
      print(whole, text, stream);
    whole.finish();
    const text = async (stream?: OutputStream) => Buffer.concat(await all(streamBytes(whole, { stream }))).toString();
    assert.deepEqual([await text(), await text("stderr"), await text("pty")], ["ac", "b", "c"]);
  });
});

describe("collectOutput", () => {
  test("writes the input, closes stdin, and collects each stream up to its maximum", async () => {
    const process = await startOne();
    const collecting = collectOutput(process, { input: "in", maxBytes: 4 });
    print(process, "abc");
    print(process, "de");
    print(process, "four", "stderr");
    print(process, "f");
    process.finish(3);
    const { stdout, stderr, truncated, exit } = await collecting;
    assert.deepEqual([Buffer.from(stdout).toString(), Buffer.from(stderr).toString()], ["abcd", "four"]);
    assert.deepEqual([truncated, exit.exitCode], [true, 3]);
    assert.deepEqual(process.written, ["in", "<closed>"]);
  });

  test("is truncated by stderr alone and by a gap, but not by output of exactly the maximum", async () => {
    const truncated = async (fill: (process: FakeProcess) => void) => {
      const process = await startOne();
      fill(process);
      process.finish();
      return (await collectOutput(process, { maxBytes: 3 })).truncated;
    };
    assert.equal(await truncated((process) => print(process, "abc")), false);
    assert.equal(await truncated((process) => print(process, "abcd", "stderr")), true);
    assert.equal(await truncated((process) => process.log.addGap(1, 2)), true);
  });

  test("retains no memory for the output above the maximum", async () => {
    const bytes = async () => {
      await collectGarbage();
      return memoryUsage().arrayBuffers;
    };
    const process = await startOne(8192);
    const collecting = collectOutput(process, { maxBytes: 3 });
    const before = await bytes();
    for (let mebibytes = 0; mebibytes < 20; mebibytes++) {
      process.log.append("stdout", new Uint8Array(1024 * 1024));
      await flushEventLoop();
    }
    const added = (await bytes()) - before;
    // The log retains the first and last 512 KiB of a stream for snapshots.
    assert.ok(added < 5 * 1024 * 1024, `${added} bytes`);
    process.finish();
    assert.equal((await collecting).truncated, true);
  });

  test("collects up to 16 MiB of each stream by default", () => {
    assert.equal(DEFAULT_MAX_OUTPUT_BYTES, 16 * 1024 * 1024);
  });

  test("writes nothing without input, and only closes stdin for an empty input", async () => {
    for (const [input, written] of [
      [undefined, []],
      ["", ["<closed>"]],
      [Uint8Array.of(104), ["h", "<closed>"]],
    ] as const) {
      const process = await startOne();
      process.finish();
      await collectOutput(process, { input });
      await flushEventLoop();
      assert.deepEqual(process.written, written);
    }
  });

  test("rejects if the input fails while the process runs, but not after its exit", async () => {
    const broken = new Error("broken pipe");
    const running = await startOne();
    running.closeStdin = () => Promise.reject(broken);
    await assert.rejects(collectOutput(running, { input: "x" }), broken);
    const unreadable = await startOne();
    unreadable.closeStdin = () => Promise.reject(broken);
    unreadable.read = () => Promise.reject(new Error("lost"));
    await assert.rejects(collectOutput(unreadable, { input: "x" }), broken);
    const exited = await startOne();
    exited.closeStdin = () => Promise.reject(broken);
    exited.exit(4);
    const collecting = collectOutput(exited, { input: "x" });
    await flushEventLoop();
    exited.log.closed();
    assert.equal((await collecting).exit.exitCode, 4);
  });

  test("rejects on abort, on a failure, and if the exit is missing", async () => {
    const process = await startOne();
    const signal = AbortSignal.abort(new Error("enough"));
    await assert.rejects(collectOutput(process, { signal }), /enough/);
    process.log.fail(FAILURE);
    await assert.rejects(collectOutput(process), FAILURE);
    const closed = await startOne();
    closed.log.closed();
    await assert.rejects(collectOutput(closed), /process p ended without an exit status/);
  });

  test("is the result of communicate, as text with the exit", async () => {
    const process = await startOne();
    const talking = communicate(process, "in");
    print(process, "out");
    process.finish(2);
    assert.deepEqual(await talking, {
      stdout: "out",
      stderr: "",
      truncated: false,
      exitCode: 2,
      signal: null,
    });
    assert.deepEqual(process.written, ["in", "<closed>"]);
  });
});

describe("run", () => {
  function rig(): { host: FakeHost; backend: ExecBackend; started: () => FakeProcess } {
    const host = new FakeHost();
    const backend: ExecBackend = { start: (params) => host.backend.start(params), list: async () => [] };
    return { host, backend, started: () => host.process("p") };
  }
  const OPTIONS = { processId: "p", cwd: "/" };

  test("returns text or bytes, exit code and reason", async () => {
    const { backend, started } = rig();
    const running = run(backend, ["x"], OPTIONS);
    await flushEventLoop();
    started().print("out");
    started().finish(2);
    assert.deepEqual(await running, {
      ...{ stdout: "out", stderr: "", truncated: false },
      ...{ exitCode: 2, signal: null, reason: "exited", timedOut: false },
    });
    const bytes = run(backend, ["x"], { ...OPTIONS, encoding: "buffer" });
    await flushEventLoop();
    started().print("out");
    started().finish();
    assert.deepEqual(Buffer.from((await bytes).stdout).toString(), "out");
  });

  test("terminates the command gracefully at the timeout and reports it", async () => {
    const { host, backend, started } = rig();
    const running = run(backend, ["x"], { ...OPTIONS, timeoutMs: 1000, clock: host.clock });
    await flushEventLoop();
    await host.clock.advance(999);
    assert.deepEqual(started().signals, []);
    await host.clock.advance(1);
    const { reason, timedOut } = await running;
    assert.deepEqual([reason, timedOut, started().signals], ["timeout", true, ["graceful"]]);
    assert.equal(host.clock.pendingTimers, 0);
  });

  test("reports another reason if the command ended otherwise at the timeout", async () => {
    const { host, backend, started } = rig();
    const running = run(backend, ["x"], { ...OPTIONS, timeoutMs: 1000, clock: host.clock });
    await flushEventLoop();
    started().terminate = async () => {
      started().finish(1);
      return { running: true };
    };
    await host.clock.advance(1000);
    const { reason, timedOut } = await running;
    assert.deepEqual([reason, timedOut], ["exited", false]);
  });

  test("reports `terminated` if the command was terminated before its timeout", async () => {
    const { host, backend, started } = rig();
    const running = run(backend, ["x"], { ...OPTIONS, timeoutMs: 1000, clock: host.clock });
    await flushEventLoop();
    await started().terminate();
    assert.equal((await running).reason, "terminated");
    assert.equal(host.clock.pendingTimers, 0);
  });

  test("rejects if the command does not start in time, and disposes a late process", async () => {
    const { host, backend, started } = rig();
    const gate = Promise.withResolvers<void>();
    host.startGate = gate.promise;
    const running = run(backend, ["x"], { ...OPTIONS, timeoutMs: 1000, clock: host.clock });
    const failed = assert.rejects(running, { code: "TIMEOUT", method: "process/start", argv: ["x"] });
    await host.clock.advance(1000);
    await failed;
    gate.resolve();
    await flushEventLoop();
    started().print("late");
    assert.equal(started().log.retainedBytes, 0);
  });

  test("terminates the command and rejects with the reason of an abort", async () => {
    const { backend, started } = rig();
    const reason = new Error("enough");
    await assert.rejects(run(backend, ["x"], { ...OPTIONS, signal: AbortSignal.abort(reason) }), reason);
    const controller = new AbortController();
    const running = run(backend, ["x"], { ...OPTIONS, signal: controller.signal });
    await flushEventLoop();
    controller.abort(reason);
    await assert.rejects(running, reason);
    assert.deepEqual(started().signals, ["graceful"]);
    const failing = new AbortController();
    const lost = run(backend, ["x"], { ...OPTIONS, signal: failing.signal });
    await flushEventLoop();
    started().terminate = () => Promise.reject(new Error("lost"));
    failing.abort(reason);
    started().log.fail(FAILURE);
    await assert.rejects(lost, reason);
    const plain = run(backend, ["x"], OPTIONS);
    await flushEventLoop();
    started().log.fail(FAILURE);
    await assert.rejects(plain, FAILURE);
  });

  test("terminates a command that starts right before the abort", async () => {
    const reason = new Error("enough");
    // The abort follows the start after each possible number of microtasks.
    for (let microtasks = 0; microtasks < 10; microtasks++) {
      const { host, backend } = rig();
      const controller = new AbortController();
      const start = async (params: StartParams) => {
        const process = await host.backend.start(params);
        let aborting = Promise.resolve();
        for (let count = 0; count < microtasks; count++) aborting = aborting.then(() => undefined);
        void aborting.then(() => controller.abort(reason));
        return process;
      };
      const running = run({ ...backend, start }, ["x"], { ...OPTIONS, signal: controller.signal });
      const settled = await Promise.race([running.catch((error: unknown) => error), flushEventLoop()]);
      assert.equal(settled, reason, `an abort ${microtasks} microtasks after the start`);
    }
  });

  test("drops secrets of the host unless the caller gives an environment policy", async () => {
    const { backend, started } = rig();
    for (const [envPolicy, secretGuard] of [
      [undefined, { inherit: [] }],
      [DEFAULT_ENV_POLICY, undefined],
    ] as const) {
      const running = run(backend, ["x"], { ...OPTIONS, ...(envPolicy && { envPolicy }) });
      await flushEventLoop();
      assert.deepEqual(started().params.secretGuard, secretGuard);
      started().finish();
      await running;
    }
  });

  test("has defaults for id, directory, environment and stdin", () => {
    const { backend } = rig();
    const first = toStartParams(backend, ["x"], {});
    const second = toStartParams({ ...backend, defaultCwd: "file:///srv" }, ["x"], {
      ...{ input: "", env: { A: "1", B: undefined }, tty: true, timeoutMs: 5 },
    });
    assert.match(first.processId, /^run-\d+-[0-9a-z]{1,8}$/);
    assert.notEqual(first.processId.split("-")[1], second.processId.split("-")[1]);
    assert.deepEqual([first.cwd, first.env, first.tty, first.pipeStdin], [process.cwd(), {}, false, false]);
    assert.deepEqual([second.cwd, second.env, second.tty, second.pipeStdin], ["file:///srv", { A: "1" }, true, true]);
    assert.equal(first.envPolicy?.inherit, "all");
    assert.equal(first.envPolicy?.ignoreDefaultExcludes, false);
    assert.equal(second.timeoutMs, 5);
  });
});

describe("waitFor", () => {
  test("returns the text, the groups and the sequence number of the first match", async () => {
    const process = await startOne();
    print(process, "port 80", "stderr");
    print(process, "po");
    print(process, "rt 81");
    assert.deepEqual(await waitFor(process, /port (\d+)(x)?/g), {
      text: "port 80",
      groups: ["80", undefined],
      seq: 1,
    });
    const second = await waitFor(process, /port (\d+)/, { stream: "stdout" });
    assert.deepEqual([second.text, second.seq], ["port 81", 3]);
    assert.equal((await waitFor(process, "rt", { afterSeq: 2 })).seq, 3);
    await assert.rejects(waitFor(process, "p.rt", { signal: AbortSignal.abort(new Error("enough")) }), /enough/);
  });

  test("matches a character that two chunks share, and text instead of a pattern", async () => {
    const process = await startOne();
    const bytes = Buffer.from("grüße a.b");
    for (const chunk of [bytes.subarray(0, 3), bytes.subarray(3)]) process.log.append("stdout", chunk);
    assert.equal((await waitFor(process, /gr.ße/)).text, "grüße");
    assert.equal((await waitFor(process, "a.b")).text, "a.b");
    process.finish();
    await assert.rejects(waitFor(process, "a.."), { code: "ENDED" });
  });

  test("does not match across a gap, and only 64 Ki characters back", async () => {
    const process = await startOne();
    print(process, "a");
    process.log.addGap(2, 5);
    print(process, "b");
    print(process, "x".repeat(64 * 1024 - 1));
    print(process, "c");
    print(process, "d");
    process.finish();
    await assert.rejects(waitFor(process, "ab"), { code: "ENDED", message: /no match for `ab` .*process p/ });
    await assert.rejects(waitFor(process, /bx*cd/), { code: "ENDED" });
    assert.equal((await waitFor(process, /bx*c/)).seq, 5);
  });

  test("rejects at its timeout and with a failure of the process", async () => {
    const host = new FakeHost();
    await host.backend.start(START);
    const process = host.process("p");
    const waiting = assert.rejects(waitFor(process, "x", { timeoutMs: 100, clock: host.clock }), {
      code: "TIMEOUT",
    });
    await host.clock.advance(100);
    await waiting;
    const found = waitFor(process, "x", { timeoutMs: 100, clock: host.clock });
    await flushEventLoop();
    process.print("x");
    await found;
    assert.equal(host.clock.pendingTimers, 0);
    process.log.fail(FAILURE);
    await assert.rejects(waitFor(process, "y"), /its reader broke/);
  });
});

test("functions for processes name an invalid argument", async () => {
  const process = await startOne();
  const { backend } = new FakeHost();
  const calls: [(...args: never[]) => unknown, unknown[], RegExp][] = [
    [run, [backend, "ls"], /run: invalid `argv`: got "ls"/],
    [run, [backend, ["ls"], { cwd: 5 }], /run: invalid `cwd`: got 5/],
    [communicate, [process, 5], /communicate: invalid `input`: got 5/],
    [communicate, [process, "", { maxBytes: "x" }], /communicate: invalid `maxBytes`: got "x"/],
    [waitFor, [process, 5], /waitFor: invalid `pattern`: got 5/],
    [waitFor, [process, "x", { timeoutMs: "y" }], /waitFor: invalid `timeoutMs`: got "y"/],
  ];
  for (const [call, args, message] of calls)
    await assert.rejects(async () => await Reflect.apply(call, null, args), { code: "EINVAL", message });
  const reading: AsyncIterable<string> = Reflect.apply(lines, null, [process, { stream: "all" }]);
  await assert.rejects(all(reading), { code: "EINVAL", message: /lines: invalid `stream`: got "all"/ });
});
