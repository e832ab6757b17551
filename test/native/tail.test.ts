import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { repetitions } from "../support/system/repetitions.ts";
import { until } from "../support/system/until.ts";
import { endSession, manyRuns, NO_ADDON, startChild, TERMINAL } from "./started.ts";

const RUNS = repetitions(200);
const scratch = mkdtempSync(join(tmpdir(), "procwire-tail-"));
after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));

/** Bytes that a terminal's output processing leaves alone (no line feed), different at every place. */
function pattern(length: number): Buffer {
  const bytes = Buffer.alloc(length);
  for (let at = 0; at < length; at++) bytes[at] = 32 + ((at * 7 + (at >> 8) * 13) % 94);
  return bytes;
}

function patternFile(length: number): { path: string; bytes: Buffer } {
  const bytes = pattern(length);
  const path = join(scratch, `pattern-${length}`);
  writeFileSync(path, bytes);
  return { path, bytes };
}

/** The child has called exec and sleeps in the kernel. */
function isBlockedAs(pid: number, name: string): boolean {
  const [, command, state] = /^\d+ \((.*)\) (\S)/.exec(readFileSync(`/proc/${pid}/stat`, "latin1")) ?? [];
  return command === name && state === "S";
}

function busy(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

describe("the last output of a process", { skip: NO_ADDON }, () => {
  const sizes = [1, 4 * 1024, 64 * 1024, 1024 * 1024];
  for (const terminal of [null, TERMINAL]) {
    const over = terminal ? "a terminal" : "pipes";
    for (const size of sizes) {
      test(`arrives completely before the exit: ${size} bytes over ${over}, ${RUNS} times`, async () => {
        const file = patternFile(size);
        await manyRuns(RUNS, 4, async (run) => {
          const started = await startChild(["head", "-c", String(size), file.path], { terminal });
          await started.close;
          assert.ok(started.outputBeforeExit().equals(file.bytes), `run ${run} lost or changed output`);
          assert.deepEqual(await started.exit, { type: "code", code: 0 });
          assert.equal(started.recorded.at(-1)?.type, "close");
        });
      });
    }

    test(`arrives before the exit although a descendant holds ${over}, and late output after it, ${RUNS} times`, async () => {
      const file = patternFile(64 * 1024);
      await manyRuns(RUNS, 10, async (run) => {
        // The descendant waits for the exit of the leader before it writes.
        const script = `trap "" HUP; leader=$$; (while kill -0 $leader 2>/dev/null; do sleep 0.01; done; printf late) & exec head -c ${file.bytes.length} ${file.path}`;
        const started = await startChild(["sh", "-c", script], { terminal });
        await started.close;
        // The descendant may write between the reaping of the leader and the exit event\.
        const beforeExit = started.outputBeforeExit().subarray(0, file.bytes.length);
        assert.ok(beforeExit.equals(file.bytes), `run ${run}: the leader's output is not before its exit`);
        assert.equal(started.output().subarray(file.bytes.length).toString(), "late", `run ${run}: late output`);
      });
    });

    test(`is not delayed by a descendant with bulk output over ${over}, ${RUNS} times`, async () => {
      await manyRuns(RUNS, 4, async (run) => {
        const script = 'trap "" HUP; yes & printf "the leader was here;"; exit 5';
        // The listener is slower than the writer, so an addon that reads until the pipe is empty never emits the exit.
        const started = await startChild(["sh", "-c", script], { terminal }, (_, chunk) => busy(chunk.length / 50_000));
        try {
          assert.deepEqual(await started.exit, { type: "code", code: 5 });
          assert.match(started.outputBeforeExit().toString("latin1"), /the leader was here;/, `run ${run}`);
        } finally {
          endSession(started);
        }
        await started.close;
      });
    });
  }

  test("is delivered although the reader is paused during the exit, 200 times", async () => {
    const file = patternFile(64 * 1024);
    await manyRuns(RUNS, 4, async (run) => {
      const started = await startChild(["sh", "-c", `read go; exec cat ${file.path}`], { pipeStdin: true });
      started.child.pause();
      started.child.input.write(Buffer.from("go\n"));
      await started.exit;
      assert.ok(started.outputBeforeExit().equals(file.bytes), `run ${run}`);
      started.child.resume();
      await started.close;
    });
  });

  test("is not emitted during a long pause and completely afterwards: 1 MiB over each kind of stream", async () => {
    const file = patternFile(1024 * 1024);
    for (const terminal of [null, TERMINAL]) {
      const started = await startChild(["sh", "-c", `echo ready; exec cat ${file.path}`], { terminal });
      const ready = terminal ? "ready\r\n" : "ready\n";
      await started.until((output) => output.length >= ready.length);
      started.child.pause();
      const atPause = started.output().length;
      await until("the writer stands still, blocked on its full stream", () => isBlockedAs(started.child.pid, "cat"));
      await new Promise((resolve) => setImmediate(resolve));
      assert.equal(started.output().length, atPause);
      started.child.resume();
      await started.close;
      assert.ok(started.output().equals(Buffer.concat([Buffer.from(ready), file.bytes])));
    }
  });
});
