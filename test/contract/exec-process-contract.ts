import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { withDeadline } from "../../src/async/deadline.ts";
import type { WatchReceiver } from "../../src/async/watch.ts";
import type { ExecBackend, ExecEvent, ExecProcess, ReadResult, StartParams } from "../../src/exec/exec-process.ts";
import { refusedWith } from "./refusals.ts";

export interface BackendUnderTest {
  backend: ExecBackend;
  close(): Promise<void>;
}

export interface ContractOptions {
  /** Why the backend has no terminals; tests that need one are skipped with this reason. */
  noTerminal?: string;
}

/** Long enough for a loaded machine: ten times longer than any step. */
const STEP_TIMEOUT_MS = 60_000;

/**
 * Contract of every ExecBackend, for any transport. The first tests are those of the reference implementation; the
 * others cover behavior that it does not test.
 */
export function execProcessContract(
  name: string,
  makeBackend: () => Promise<BackendUnderTest>,
  options: ContractOptions = {},
): void {
  const needsTerminal = { skip: options.noTerminal ?? false };

  describe(`exec process over ${name}`, () => {
    let underTest: BackendUnderTest;
    let ids = 0;
    before(async () => {
      underTest = await makeBackend();
    });
    after(() => underTest.close());

    const start = (argv: string[], params: Partial<StartParams> = {}): Promise<ExecProcess> =>
      underTest.backend.start({
        processId: `proc-${++ids}`,
        argv,
        cwd: process.cwd(),
        env: { PATH: "/usr/bin:/bin" },
        tty: false,
        ...params,
      });
    const shell = (script: string, params: Partial<StartParams> = {}) => start(["/bin/sh", "-c", script], params);

    // ---- the reference implementation's tests

    test("starts and exits a process", async () => {
      const started = await start(["true"], { processId: "proc-first", env: {} });
      assert.equal(started.processId, "proc-first");
      const { exitCode, closed } = await collectFromReads(started);
      assert.equal(exitCode, 0);
      assert.ok(closed);
    });

    test("streams output", async () => {
      const started = await shell("sleep 0.05; printf 'session output\\n'");
      const { output, exitCode, closed } = await collectFromReads(started);
      assert.equal(output, "session output\n");
      assert.equal(exitCode, 0);
      assert.ok(closed);
    });

    test("emits events", async () => {
      const script = "printf 'event output\\n'; sleep 0.1; printf 'event err\\n' >&2; sleep 0.1; exit 7";
      const events = await collectEvents(await shell(script));
      assert.deepEqual(events.map(summary), [
        { type: "output", seq: 1, stream: "stdout", text: "event output\n" },
        { type: "output", seq: 2, stream: "stderr", text: "event err\n" },
        { type: "exited", seq: 3, exitCode: 7 },
        { type: "closed", seq: 4 },
      ]);
    });

    test("replays events after close", async () => {
      const started = await shell("printf 'late one\\n'; printf 'late two\\n'");
      const fromReads = await collectFromReads(started);
      assert.deepEqual(fromReads, { output: "late one\nlate two\n", exitCode: 0, closed: true });
      const events = await collectEvents(started);
      assert.equal(text(events, "stdout"), "late one\nlate two\n");
      assert.equal(text(events, "stderr"), "");
      assert.equal(events.at(-1)?.type, "closed");
    });

    test("reads output after a write to a terminal", needsTerminal, async () => {
      const started = await shell("IFS= read line; printf 'from-stdin:%s\\n' \"$line\"", { tty: true });
      await started.write(Buffer.from("hello\n"));
      const { output, exitCode, closed } = await collectFromReads(started);
      assert.match(output, /from-stdin:hello/);
      assert.equal(exitCode, 0);
      assert.ok(closed);
    });

    test("reads output after a write to a pipe", async () => {
      const started = await shell("IFS= read line; printf 'from-stdin:%s\\n' \"$line\"", { pipeStdin: true });
      assert.deepEqual(await started.write(Buffer.from("hello\n")), { status: "accepted" });
      assert.deepEqual(await collectFromReads(started), {
        output: "from-stdin:hello\n",
        exitCode: 0,
        closed: true,
      });
    });

    test("rejects a write without pipeStdin", async () => {
      const started = await shell(
        "sleep 0.3; if IFS= read -r line; then printf 'read:%s\\n' \"$line\"; else printf 'eof\\n'; fi",
      );
      assert.deepEqual(await started.write(Buffer.from("ignored\n")), { status: "stdinClosed" });
      assert.deepEqual(await collectFromReads(started), { output: "eof\n", exitCode: 0, closed: true });
    });

    test("retains events from before a subscription", async () => {
      const started = await shell("printf 'queued output\\n'");
      await withStepTimeout(started.wait(), "the process to exit");
      assert.deepEqual(await collectFromReads(started), {
        output: "queued output\n",
        exitCode: 0,
        closed: true,
      });
    });

    // ---- start

    test("rejects a missing executable with the system's message, and frees the id", async () => {
      const refusal = refusedWith(-32603, "No such file or directory (os error 2)");
      await assert.rejects(start(["no-such-program"], { processId: "reused" }), refusal);
      await assert.rejects(start(["true"], { processId: "reused", cwd: "/no/such/folder" }), refusal);
      const started = await start(["true"], { processId: "reused" });
      assert.equal((await started.wait()).exitCode, 0);
    });

    test("rejects an empty argv", async () => {
      await assert.rejects(start([]), refusedWith(-32602));
    });

    test("passes exactly the requested environment and arg0", async () => {
      const env = await start(["/usr/bin/env"], { env: { ONLY: "this" } });
      assert.equal((await collectFromReads(env)).output, "ONLY=this\n");
      const renamed = await start(["/bin/sh", "-c", "echo $0"], { arg0: "other" });
      assert.equal((await collectFromReads(renamed)).output, "other\n");
    });

    test("lists a running process with its argv, cwd and pid", async () => {
      const started = await shell("echo listed; sleep 100", { processId: "listed" });
      await started.wait({ until: { type: "bytes", count: 7 } });
      const listing = (await underTest.backend.list()).find((entry) => entry.processId === "listed");
      assert.ok(listing);
      assert.deepEqual(listing.argv, ["/bin/sh", "-c", "echo listed; sleep 100"]);
      assert.equal(listing.running, true);
      assert.equal(listing.exitCode, null);
      assert.equal(listing.outputBytes, 7);
      await started.terminate();
    });

    // ---- termination

    test("reports death by signal n as exit code 128 + n with the signal name", async () => {
      const started = await shell("kill -KILL $$");
      const result = await started.wait();
      assert.deepEqual([result.exitCode, result.signal, result.reason], [137, "SIGKILL", "exited"]);
      const exited = (await collectEvents(started)).find((event) => event.type === "exited");
      assert.equal(exited?.type === "exited" && exited.reason, "signaled");
    });

    test("terminates by force: reports running once, and the exit reason terminated", async () => {
      const started = await shell("trap '' TERM HUP INT; echo ready; while :; do sleep 0.1; done");
      await started.wait({ until: { type: "output", pattern: "ready" } });
      assert.equal((await started.terminate()).running, true);
      const events = await collectEvents(started);
      const exited = events.find((event) => event.type === "exited");
      assert.deepEqual(exited?.type === "exited" && [exited.exitCode, exited.reason], [137, "terminated"]);
      assert.deepEqual(await started.terminate(), { running: false });
    });

    test("terminates gracefully: the process may handle SIGTERM", async () => {
      const started = await shell("trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done");
      await started.wait({ until: { type: "output", pattern: "ready" } });
      await started.terminate({ type: "graceful", timeoutMs: STEP_TIMEOUT_MS });
      const events = await collectEvents(started);
      assert.equal(text(events, "stdout"), "ready\nbye\n");
      assert.equal((await started.wait()).exitCode, 9);
    });

    test("sends any signal by name, and `interrupt` to the whole group", async () => {
      const started = await shell("trap 'echo usr1' USR1; echo ready; while :; do sleep 0.02; done");
      await started.wait({ until: { type: "output", pattern: "ready" } });
      await started.signal("SIGUSR1");
      await started.wait({ until: { type: "output", pattern: "usr1" } });
      await started.signal("interrupt");
      const result = await started.wait();
      assert.deepEqual([result.exitCode, result.signal], [130, "SIGINT"]);
      await started.signal("SIGTERM");
      await assert.rejects(started.signal("SIGNONSENSE"), refusedWith(-32602));
    });

    test("terminates a process after its timeout with reason timeout", async () => {
      const started = await shell("while :; do sleep 0.05; done", { timeoutMs: 50 });
      const exited = (await collectEvents(started)).find((event) => event.type === "exited");
      assert.equal(exited?.type === "exited" && exited.reason, "timeout");
    });

    test("terminates the process when its scope is disposed", async () => {
      let pid: number | null;
      {
        await using started = await shell("while :; do sleep 0.05; done");
        pid = started.pid;
      }
      if (pid !== null) assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
    });

    test("orders output of the leader, exited, late output of descendants, closed", async () => {
      const started = await shell("(sleep 0.2; printf late) & printf early; exit 3");
      const events = await collectEvents(started);
      assert.deepEqual(events.map(summary), [
        { type: "output", seq: 1, stream: "stdout", text: "early" },
        { type: "exited", seq: 2, exitCode: 3 },
        { type: "output", seq: 3, stream: "stdout", text: "late" },
        { type: "closed", seq: 4 },
      ]);
    });

    // ---- input

    test("closes stdin once, after earlier writes", async () => {
      const started = await start(["wc", "-c"], { pipeStdin: true });
      const bytes = Buffer.alloc(300_000, 1);
      assert.deepEqual(await started.write(bytes), { status: "accepted" });
      assert.deepEqual(await started.closeStdin(), { status: "accepted" });
      assert.deepEqual(await started.closeStdin(), { status: "stdinClosed" });
      assert.deepEqual(await started.write(bytes), { status: "stdinClosed" });
      assert.equal((await collectFromReads(started)).output.trim(), "300000");
    });

    test("writes once per write id", async () => {
      const started = await start(["cat"], { pipeStdin: true });
      for (const writeId of ["a", "a", "b"])
        assert.deepEqual(await started.write(Buffer.from(`${writeId}\n`), { writeId }), {
          status: "accepted",
        });
      await started.closeStdin();
      assert.equal((await collectFromReads(started)).output, "a\nb\n");
    });

    test("reports stdinClosed after an exit or a termination", async () => {
      const ended = await start(["cat"], { pipeStdin: true });
      await ended.terminate();
      await ended.wait();
      assert.deepEqual(await ended.write(Buffer.from("x")), { status: "stdinClosed" });
      const exitedProcess = await start(["true"], { pipeStdin: true });
      await exitedProcess.wait();
      assert.deepEqual(await exitedProcess.write(Buffer.from("x")), { status: "stdinClosed" });
    });

    test("opens a terminal of the requested size, and resizes it", needsTerminal, async () => {
      const script = 'trap "stty size" WINCH; stty size; while :; do sleep 0.02; done';
      const started = await shell(script, { tty: true, size: { rows: 33, cols: 99 } });
      await started.wait({ until: { type: "output", pattern: "33 99" } });
      await started.resize({ rows: 44, cols: 111 });
      await started.wait({ until: { type: "output", pattern: "44 111" } });
      const { tty } = await started.snapshot();
      assert.deepEqual(tty, { rows: 44, cols: 111, echo: true, canonical: true });
      await started.terminate();
    });

    test(
      "has a terminal of 24 rows and 80 columns when no size is given, and refuses to resize a pipe",
      needsTerminal,
      async () => {
        const started = await shell("stty size", { tty: true });
        assert.equal((await collectFromReads(started)).output, "24 80\r\n");
        const piped = await shell("exit 0");
        await assert.rejects(piped.resize({ rows: 1, cols: 1 }), refusedWith(-32600));
      },
    );

    // ---- reading

    test("waits for output, bytes, silence and exit, and reports which occurred", async () => {
      const started = await shell("printf 'one two'; sleep 0.1; printf ' three'; read x; exit 5", {
        pipeStdin: true,
      });
      const matched = await started.wait({ until: { type: "output", pattern: "t[a-z]{4}" } });
      assert.deepEqual([matched.reason, matched.match], ["matched", "three"]);
      assert.equal((await started.wait({ until: { type: "bytes", count: 13 } })).reason, "reached");
      assert.equal((await started.wait({ until: { type: "idle", quietMs: 20 } })).reason, "idle");
      assert.equal((await started.wait({ timeoutMs: 20 })).reason, "timeout");
      assert.equal(
        (await started.wait({ until: { type: "output", pattern: "never" }, timeoutMs: 20 })).reason,
        "timeout",
      );
      await started.write(Buffer.from("\n"));
      const exited = await started.wait();
      assert.deepEqual([exited.reason, exited.exitCode, exited.signal], ["exited", 5, null]);
      assert.equal((await started.wait({ until: { type: "output", pattern: "never" } })).reason, "closed");
      await assert.rejects(started.wait({ until: { type: "output", pattern: "(" } }), refusedWith(-32602));
    });

    test("retains head and tail of each stream for a snapshot", async () => {
      const started = await shell("printf out; printf err >&2; exit 2");
      await collectEvents(started);
      const snapshot = await started.snapshot();
      assert.equal(Buffer.from(snapshot.stdout).toString(), "out");
      assert.equal(Buffer.from(snapshot.stderr).toString(), "err");
      assert.equal(snapshot.terminal.length, 0);
      assert.deepEqual(
        [snapshot.truncated, snapshot.omittedBytes, snapshot.totalBytes, snapshot.exitCode, snapshot.running],
        [false, 0, 6, 2, false],
      );
      const large = await start(["head", "-c", "3000000", "/dev/zero"]);
      await collectEvents(large);
      const cut = await large.snapshot();
      assert.equal(cut.truncated, true);
      assert.equal(cut.stdout.length + cut.omittedBytes, 3_000_000);
    });

    test("pauses a process for a slow lossless reader, and loses nothing", async () => {
      const bytes = 6_000_000;
      const started = await start(["head", "-c", String(bytes), "/dev/zero"]);
      let seen = 0;
      let seq = 0;
      for await (const event of started.events({ lossless: true })) {
        assert.notEqual(event.type, "gap");
        if (event.type !== "output") continue;
        assert.equal(event.seq, ++seq);
        seen += event.chunk.length;
        if (seq % 8 === 0) await delay(1);
      }
      assert.equal(seen, bytes);
    });

    test("reports a gap to a reader that starts after an eviction", async () => {
      const started = await start(["head", "-c", "3000000", "/dev/zero"]);
      await withStepTimeout(started.wait(), "the process to exit");
      await collectEvents(started);
      const read = await started.read({ afterSeq: 0 });
      const retained = read.chunks.reduce((sum, { chunk }) => sum + chunk.length, 0);
      assert.ok(read.gap);
      assert.equal(read.gap.fromSeq, 1);
      assert.equal(read.gap.toSeq + 1, read.chunks[0]?.seq);
      assert.equal((read.gap.bytes ?? 0) + retained, 3_000_000);
    });

    test("returns a read at once if there is output, otherwise after waitMs", async () => {
      const started = await shell("printf first; read x; printf second", { pipeStdin: true });
      const first = await started.read({ waitMs: STEP_TIMEOUT_MS });
      assert.equal(Buffer.from(first.chunks[0]?.chunk ?? []).toString(), "first");
      assert.equal(first.nextSeq, 2);
      const nothing = await started.read({ afterSeq: 1, waitMs: 10 });
      assert.deepEqual([nothing.chunks.length, nothing.exited, nothing.closed], [0, false, false]);
      const pending = started.read({ afterSeq: 1, waitMs: STEP_TIMEOUT_MS });
      await started.write(Buffer.from("\n"));
      assert.equal(Buffer.from((await pending).chunks[0]?.chunk ?? []).toString(), "second");
    });
  });
}

// ---- collectors of the reference implementation's tests

async function collectFromReads(
  started: ExecProcess,
): Promise<{ output: string; exitCode: number | null; closed: boolean }> {
  const wake = started.subscribeWake();
  let output = "";
  let exitCode: number | null = null;
  let afterSeq = 0;
  for (;;) {
    const response = await readUntilChange(started, wake, afterSeq);
    if (response.failure !== null) throw new Error(`process failed before closed state: ${response.failure}`);
    for (const { chunk } of response.chunks) output += Buffer.from(chunk).toString();
    if (response.exited) exitCode = response.exitCode;
    if (response.closed) return { output, exitCode, closed: true };
    afterSeq = response.nextSeq - 1;
  }
}

async function readUntilChange(
  started: ExecProcess,
  wake: WatchReceiver<number>,
  afterSeq: number,
): Promise<ReadResult> {
  const response = await started.read({ afterSeq, waitMs: 0 });
  if (response.chunks.length > 0 || response.closed || response.failure !== null) return response;
  await withStepTimeout(wake.changed(), "the process to wake its readers");
  return started.read({ afterSeq, waitMs: 0 });
}

async function collectEvents(started: ExecProcess): Promise<ExecEvent[]> {
  const collect = async () => {
    const events: ExecEvent[] = [];
    for await (const event of started.events()) events.push(event);
    return events;
  };
  return withStepTimeout(collect(), "the process to close");
}

const withStepTimeout = <T>(promise: Promise<T>, what: string) => withDeadline(promise, STEP_TIMEOUT_MS, what);

function text(events: readonly ExecEvent[], stream: string): string {
  return events
    .flatMap((event) =>
      event.type === "output" && event.stream === stream ? [Buffer.from(event.chunk).toString()] : [],
    )
    .join("");
}

function summary(event: ExecEvent): unknown {
  switch (event.type) {
    case "output":
      return {
        type: "output",
        seq: event.seq,
        stream: event.stream,
        text: Buffer.from(event.chunk).toString(),
      };
    case "exited":
      return { type: "exited", seq: event.seq, exitCode: event.exitCode };
    case "closed":
      return { type: "closed", seq: event.seq };
    default:
      return event;
  }
}
