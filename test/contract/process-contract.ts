import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, describe, type TestContext, test } from "node:test";
import type { ExecEvent, ExecProcess, StartParams } from "../../src/exec/exec-process.ts";
import { communicate } from "../../src/exec/run/communicate.ts";
import { lines } from "../../src/exec/run/lines.ts";
import { run } from "../../src/exec/run/run-program.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import type { ContractBackend } from "./backends.ts";
import { refusedWith } from "./refusals.ts";

const PATH = process.env.PATH ?? "/usr/bin:/bin";
const TIMEOUT = { timeout: 600_000 };
const text = (bytes: Uint8Array) => new TextDecoder().decode(bytes);
const bytes = (value: string) => new TextEncoder().encode(value);

const needsTerminals = skipUnless(loadAddon().type === "loaded", "terminals need the addon");

/** Contract of the processes of every backend. */
export function processContract(name: string, open: () => Promise<ContractBackend>): void {
  describe(`processes: ${name}`, TIMEOUT, () => {
    let context: ContractBackend;
    let started = 0;
    before(async () => {
      context = await open();
    });
    after(() => context.close());

    const start = (argv: string[], options: Partial<StartParams> = {}): Promise<ExecProcess> =>
      context.backend.start({
        processId: `${name}-${++started}`,
        argv,
        cwd: "/",
        env: { PATH },
        tty: false,
        ...options,
      });
    const shell = (script: string, options?: Partial<StartParams>) => start(["/bin/sh", "-c", script], options);

    const startTerminal = async (t: TestContext, script: string, options: Partial<StartParams> = {}) => {
      if (needsTerminals) {
        t.skip(needsTerminals);
        return null;
      }
      return shell(script, { tty: true, ...options });
    };

    // ---- events

    test("delivers all events to every subscriber, also to a late one", async () => {
      await using process = await shell("echo one; read go; echo two >&2; exit 5", { pipeStdin: true });
      const early = collect(process);
      await process.wait({ until: { type: "output", pattern: "one" } });
      const middle = collect(process);
      await process.write(bytes("\n"));
      const [first, second] = await Promise.all([early, middle]);
      const late = await collect(process);
      assert.deepEqual(first, second);
      assert.deepEqual(first, late);
      assert.deepEqual(first.map(brief), ["1 stdout one\n", "2 stderr two\n", "3 exited 5", "4 closed"]);
    });

    test("delivers only events after the cursor", async () => {
      await using process = await shell("echo one; exit 0");
      await collect(process);
      const rest: ExecEvent[] = [];
      for await (const event of process.events({ afterSeq: 1 })) rest.push(event);
      assert.deepEqual(rest.map(brief), ["2 exited 0", "3 closed"]);
    });

    test("ends only the subscription whose signal aborts", async () => {
      await using process = await shell("read go; echo done", { pipeStdin: true });
      const controller = new AbortController();
      const stopped = collect(process, { signal: controller.signal });
      const whole = collect(process);
      controller.abort("enough");
      await assert.rejects(stopped, (reason) => reason === "enough");
      await process.write(bytes("\n"));
      assert.equal((await whole).map(brief)[0], "1 stdout done\n");
    });

    test("reports a gap to a slow subscriber with its exact size", async () => {
      await using process = await shell("head -c 6000000 /dev/zero; read go", { pipeStdin: true });
      const slow = process.events();
      let seen = 0;
      const first = await slow.next();
      assert.ok(first.value?.type === "output");
      seen += first.value.chunk.length;
      await process.wait({ until: { type: "bytes", count: 6_000_000 } });
      await process.closeStdin();
      let gaps = 0;
      for await (const event of slow) {
        if (event.type === "output") seen += event.chunk.length;
        if (event.type === "gap") {
          gaps++;
          seen += event.bytes ?? 0;
        }
      }
      assert.ok(gaps > 0, "6 MB do not fit into one retention");
      assert.equal(seen, 6_000_000);
    });

    test("pauses the process for a lossless subscriber and skips nothing", async () => {
      const size = 8_000_000;
      await using process = await shell(`head -c ${size} /dev/zero | tr '\\0' x`);
      const events = process.events({ lossless: true });
      const hash = createHash("sha256");
      let count = 0;
      await events.next().then((first) => {
        assert.ok(first.value?.type === "output");
        hash.update(first.value.chunk);
        count += first.value.chunk.length;
      });
      const early = await process.wait({ timeoutMs: 200 });
      assert.equal(early.reason, "timeout", "it cannot have ended with most of its output untaken");
      for await (const event of events) {
        assert.notEqual(event.type, "gap");
        if (event.type !== "output") continue;
        hash.update(event.chunk);
        count += event.chunk.length;
      }
      assert.equal(count, size);
      assert.equal(hash.digest("hex"), createHash("sha256").update("x".repeat(size)).digest("hex"));
    });

    test("wakes receivers on new events", async () => {
      await using process = await shell("read go; echo hi", { pipeStdin: true });
      const wake = process.subscribeWake();
      const changed = wake.changed();
      await process.write(bytes("\n"));
      assert.ok((await changed) >= 1);
    });

    // ---- reading

    test("reads retained output by cursor, in whole chunks, without consuming it", async () => {
      await using process = await shell("printf aaaa; read go; printf bb >&2; exit 9", { pipeStdin: true });
      const waited = await process.read({ waitMs: 10_000 });
      assert.deepEqual(
        waited.chunks.map((chunk) => text(chunk.chunk)),
        ["aaaa"],
      );
      assert.equal(waited.exited, false);
      await process.write(bytes("\n"));
      await collect(process);
      const page = await process.read({ maxBytes: 1 });
      assert.deepEqual(
        page.chunks.map(({ seq }) => seq),
        [1],
      );
      assert.equal(page.nextSeq, 2);
      assert.equal(page.exitCode, 9);
      const rest = await process.read({ afterSeq: page.nextSeq - 1 });
      assert.deepEqual(
        rest.chunks.map((chunk) => [chunk.stream, text(chunk.chunk)]),
        [["stderr", "bb"]],
      );
      assert.equal(rest.nextSeq, 5);
      assert.equal(rest.closed, true);
      assert.equal(rest.failure, null);
    });

    test("waits for exit, a pattern, bytes and silence, and reports which occurred", async () => {
      await using process = await shell("echo port 8080; read go; exit 3", { pipeStdin: true });
      const matched = await process.wait({ until: { type: "output", pattern: "port [0-9]+" } });
      assert.deepEqual([matched.reason, matched.match, matched.seq], ["matched", "port 8080", 1]);
      assert.equal((await process.wait({ until: { type: "bytes", count: 10 } })).reason, "reached");
      assert.equal((await process.wait({ until: { type: "idle", quietMs: 30 } })).reason, "idle");
      assert.equal((await process.wait({ timeoutMs: 10 })).reason, "timeout");
      const exited = process.wait();
      await process.closeStdin();
      assert.deepEqual(
        { ...(await exited), seq: 0 },
        { reason: "exited", exitCode: 3, signal: null, exitReason: "exited", seq: 0 },
      );
      assert.equal((await process.wait({ until: { type: "output", pattern: "never" } })).reason, "closed");
    });

    test("has the matched output in the log when a wait returns", async () => {
      await using process = await shell("echo before; exit 0");
      await process.wait();
      assert.deepEqual(
        (await process.read()).chunks.map((chunk) => text(chunk.chunk)),
        ["before\n"],
      );
    });

    test("rejects a wait when its signal aborts", async () => {
      await using process = await shell("sleep 60");
      const controller = new AbortController();
      const waiting = process.wait({ signal: controller.signal });
      controller.abort(new Error("no longer"));
      await assert.rejects(waiting, { message: "no longer" });
    });

    test("rejects an invalid pattern", async () => {
      await using process = await shell("sleep 60");
      await assert.rejects(process.wait({ until: { type: "output", pattern: "(" } }), refusedWith(-32602));
    });

    test("returns head and tail of a long output in a snapshot", async () => {
      await using process = await shell("echo first; head -c 3000000 /dev/zero; echo last; echo oops >&2");
      await collect(process);
      const snapshot = await process.snapshot();
      assert.ok(text(snapshot.stdout).startsWith("first\n"));
      assert.ok(text(snapshot.stdout).endsWith("last\n"));
      assert.equal(text(snapshot.stderr), "oops\n");
      assert.equal(snapshot.truncated, true);
      assert.equal(snapshot.totalBytes, 3_000_016);
      const retained = snapshot.stdout.length + snapshot.stderr.length;
      assert.equal(snapshot.omittedBytes, snapshot.totalBytes - retained);
      assert.deepEqual([snapshot.running, snapshot.exitCode], [false, 0]);
    });

    // ---- input

    test("writes large stdin byte for byte", async () => {
      const data = randomBytes(5_000_000);
      await using process = await start(["cat"], { pipeStdin: true });
      const hash = createHash("sha256");
      const reading = (async () => {
        for await (const event of process.events({ lossless: true }))
          if (event.type === "output") hash.update(event.chunk);
      })();
      assert.deepEqual(await process.write(data), { status: "accepted" });
      assert.deepEqual(await process.closeStdin(), { status: "accepted" });
      await reading;
      assert.equal(hash.digest("hex"), createHash("sha256").update(data).digest("hex"));
    });

    test("writes once per write id", async () => {
      await using process = await start(["cat"], { pipeStdin: true });
      await process.write(bytes("a"), { writeId: "w1" });
      assert.deepEqual(await process.write(bytes("a"), { writeId: "w1" }), { status: "accepted" });
      await process.write(bytes("b"), { writeId: "w2" });
      assert.equal((await communicate(process)).stdout, "ab");
    });

    test("reports stdinClosed instead of failing", async () => {
      await using closed = await shell("read go; sleep 60", { pipeStdin: true });
      assert.deepEqual(await closed.closeStdin(), { status: "accepted" });
      assert.deepEqual(await closed.closeStdin(), { status: "stdinClosed" });
      assert.deepEqual(await closed.write(bytes("x")), { status: "stdinClosed" });
      await using none = await shell("sleep 60");
      assert.deepEqual(await none.write(bytes("x")), { status: "stdinClosed" });
      assert.deepEqual(await none.closeStdin(), { status: "stdinClosed" });
    });

    test("keeps the order of writes that are not awaited", async () => {
      await using process = await start(["cat"], { pipeStdin: true });
      const parts = Array.from({ length: 300 }, (_, index) => `${index},`);
      const writes = parts.map((part) => process.write(bytes(part)));
      const { stdout } = await communicate(process);
      await Promise.all(writes);
      assert.equal(stdout, parts.join(""));
    });

    // ---- termination

    test("sends any signal by name, and interrupt", async () => {
      const script = "trap 'echo usr1' USR1; trap 'echo int; exit 4' INT; echo ready; while :; do sleep 0.05; done";
      await using process = await shell(script);
      await waitFor(process, "ready");
      await process.signal("SIGUSR1");
      await waitFor(process, "usr1");
      await process.signal("interrupt");
      assert.equal((await process.wait()).exitCode, 4);
      await assert.rejects(process.signal("SIGNOPE"), refusedWith(-32602));
    });

    test("terminates a process tree by force, and reports the signal", async () => {
      await using process = await shell("trap '' TERM; sleep 1000 & echo ready; wait");
      await waitFor(process, "ready");
      assert.deepEqual(await process.terminate(), { running: true });
      const events = await collect(process);
      const exit = events.find((event) => event.type === "exited");
      assert.ok(exit?.type === "exited");
      assert.deepEqual([exit.exitCode, exit.signal, exit.reason], [137, "SIGKILL", "terminated"]);
      assert.deepEqual(await process.terminate(), { running: false });
    });

    test("terminates a process gracefully if it handles SIGTERM", async () => {
      await using process = await shell("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done");
      await waitFor(process, "ready");
      assert.deepEqual(await process.terminate({ type: "graceful", timeoutMs: 60_000 }), { running: true });
      assert.equal((await process.wait()).exitCode, 7);
      await waitFor(process, "bye");
    });

    test("terminates a process after its timeout", async () => {
      await using process = await shell("echo ready; exec sleep 1000", { timeoutMs: 100 });
      const events = await collect(process);
      const exit = events.find((event) => event.type === "exited");
      assert.ok(exit?.type === "exited");
      assert.equal(exit.reason, "timeout");
    });

    test("lists running processes", async () => {
      await using process = await shell("echo abc; read go; exit 2", { pipeStdin: true, cwd: "/tmp" });
      await waitFor(process, "abc");
      const listed = (await context.backend.list()).find(({ processId }) => processId === process.processId);
      assert.ok(listed);
      assert.deepEqual(listed.argv.slice(0, 2), ["/bin/sh", "-c"]);
      assert.equal(listed.running, true);
      assert.equal(listed.outputBytes, 4);
      assert.ok(listed.pid !== null && listed.pid > 0);
    });

    // ---- start

    test("rejects an executable that cannot start, with the system's reason", async () => {
      await assert.rejects(start(["/no/such/program"]), (error: Error) => {
        assert.match(error.message, /No such file or directory/);
        return true;
      });
      await assert.rejects(start([]), refusedWith(-32602, "argv must not be empty"));
      await assert.rejects(start(["true"], { cwd: "/no/such/directory" }), /No such file or directory/);
    });

    test("frees the id of a process that could not be started", async () => {
      await assert.rejects(start(["/no/such/program"], { processId: "again" }));
      await using process = await start(["true"], { processId: "again" });
      assert.equal((await process.wait()).exitCode, 0);
    });

    test("passes exactly the given environment and directory", async () => {
      await using process = await start(["/usr/bin/env"], { env: { ONLY: "this" }, cwd: "/tmp" });
      assert.equal((await communicateQuietly(process)).trim(), "ONLY=this");
      await using where = await shell("pwd", { cwd: "file:///tmp" });
      assert.equal((await communicateQuietly(where)).trim(), "/tmp");
    });

    test("passes non-text bytes unchanged", async () => {
      await using process = await shell("printf '\\377\\000\\200x'");
      const output = (await collect(process)).flatMap((event) => (event.type === "output" ? [...event.chunk] : []));
      assert.deepEqual(output, [0xff, 0x00, 0x80, 0x78]);
    });

    // ---- terminals

    test("writes to a terminal and resizes it", async (t) => {
      const process = await startTerminal(t, "stty size; read go; stty size", {
        size: { rows: 33, cols: 99 },
      });
      if (!process) return;
      await using _ = process;
      await waitFor(process, "33 99");
      await process.resize({ rows: 50, cols: 120 });
      await process.write(bytes("go\n"));
      await waitFor(process, "50 120");
      assert.equal((await process.wait()).exitCode, 0);
    });

    test("reports the terminal state in a snapshot", async (t) => {
      const process = await startTerminal(t, "stty -echo; echo ready; read go");
      if (!process) return;
      await using _ = process;
      await waitFor(process, "ready");
      const { tty, terminal } = await process.snapshot();
      assert.match(text(terminal), /ready/);
      assert.deepEqual(tty && [tty.rows, tty.cols, tty.echo], [24, 80, false]);
    });

    test("interrupts a process by the interrupt key of its terminal", async (t) => {
      const process = await startTerminal(t, "echo ready; exec sleep 1000");
      if (!process) return;
      await using _ = process;
      await waitFor(process, "ready");
      await process.write(new Uint8Array([3]));
      const result = await process.wait();
      assert.deepEqual([result.exitCode, result.signal], [130, "SIGINT"]);
    });

    // ---- helpers

    test("runs a command until it exits", async () => {
      const result = await run(context.backend, ["/bin/sh", "-c", "cat; echo err >&2; exit 6"], {
        input: "grüße",
        cwd: "/",
      });
      assert.deepEqual(result, {
        stdout: "grüße",
        stderr: "err\n",
        truncated: false,
        exitCode: 6,
        signal: null,
        reason: "exited",
        timedOut: false,
      });
    });

    test("decodes text across chunk boundaries", async () => {
      const script = "printf 'gr\\303'; sleep 0.05; printf '\\274n\\nzwei'";
      assert.equal((await run(context.backend, ["/bin/sh", "-c", script])).stdout, "grün\nzwei");
      await using process = await shell(script);
      const found: string[] = [];
      for await (const line of lines(process)) found.push(line);
      assert.deepEqual(found, ["grün", "zwei"]);
    });

    test("enforces timeoutMs, maxBytes and signal of a run", async () => {
      const slow = await run(context.backend, ["sleep", "1000"], { timeoutMs: 1000 });
      assert.deepEqual([slow.timedOut, slow.exitCode !== 0], [true, true]);
      const long = await run(context.backend, ["/bin/sh", "-c", "printf 123456"], { maxBytes: 4 });
      assert.deepEqual([long.stdout, long.truncated], ["1234", true]);
      const controller = new AbortController();
      const aborted = run(context.backend, ["sleep", "1000"], { signal: controller.signal });
      setTimeout(() => controller.abort(new Error("stop it")), 20);
      await assert.rejects(aborted, { message: "stop it" });
    });

    test("waits for a regular expression and returns its groups", async () => {
      await using process = await shell("printf 'listening on po'; sleep 0.05; echo rt 4711; read go", {
        pipeStdin: true,
      });
      const match = await waitFor(process, /port (\d+)/g);
      assert.deepEqual([match.text, match.groups], ["port 4711", ["4711"]]);
      await assert.rejects(waitFor(process, /never/, { timeoutMs: 20 }), { code: "TIMEOUT" });
      const unmatched = waitFor(process, /never/);
      await process.closeStdin();
      await assert.rejects(unmatched, /the process has ended/);
    });
  });
}

async function collect(process: ExecProcess, options: { signal?: AbortSignal } = {}): Promise<ExecEvent[]> {
  const events: ExecEvent[] = [];
  for await (const event of process.events(options)) events.push(event);
  return events;
}

async function communicateQuietly(process: ExecProcess): Promise<string> {
  const events = await collect(process);
  return events.map((event) => (event.type === "output" ? text(event.chunk) : "")).join("");
}

function brief(event: ExecEvent): string {
  switch (event.type) {
    case "output":
      return `${event.seq} ${event.stream} ${text(event.chunk)}`;
    case "exited":
      return `${event.seq} exited ${event.exitCode}`;
    case "closed":
      return `${event.seq} closed`;
    case "gap":
      return `gap ${event.fromSeq}-${event.toSeq}`;
    case "failed":
      return `failed ${event.message}`;
  }
}
