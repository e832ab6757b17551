import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { repetitions } from "../support/system/repetitions.ts";
import { until } from "../support/system/until.ts";
import { isRunning, NO_ADDON } from "./started.ts";

const run = promisify(execFile);
const fixture = (name: string) => join(import.meta.dirname, "..", "fixtures", "native", name);

const STARTS = repetitions(10_000);
/** Maximum growth by the collector and the allocator. A leak of 2 KB per start exceeds it after 10,000 starts. */
const MEMORY_SLACK_BYTES = 16 * 1024 * 1024;

describe("process starts through the addon", { skip: NO_ADDON }, () => {
  test(`leave descriptors, threads, children and memory unchanged after ${STARTS} starts`, async () => {
    const { stdout } = await run(process.execPath, ["--expose-gc", fixture("many-starts.ts"), String(STARTS)]);
    const { before, after } = JSON.parse(stdout);
    assert.equal(after.descriptors, before.descriptors);
    assert.equal(after.threads, before.threads);
    assert.equal(after.children, 0);
    assert.ok(after.memoryBytes - before.memoryBytes < MEMORY_SLACK_BYTES, JSON.stringify({ before, after }));
  });

  test("pass no inherited descriptor to the child, also without close_range", async () => {
    const inherited = openSync("/dev/null", "r");
    try {
      const child = spawn(process.execPath, [fixture("list-descriptors.ts")], {
        stdio: ["ignore", "pipe", "inherit", inherited, "ignore", inherited, inherited],
      });
      const text = (await child.stdout?.toArray())?.join("") ?? "";
      for (const listed of JSON.parse(text)) assert.deepEqual(listed, ["0", "1", "2", "3"]);
    } finally {
      closeSync(inherited);
    }
  });

  test("fail with EMFILE when descriptors run out, and lose no started process", async () => {
    const { stdout } = await run("sh", ["-c", `ulimit -n 64; exec "$0" "$1"`, process.execPath, fixture("exhaust.ts")]);
    const result = JSON.parse(stdout);
    assert.equal(result.refusal.code, "EMFILE");
    assert.equal(result.refusal.target, "resources");
    assert.ok(result.started > 1);
    assert.equal(result.killed, result.started);
    assert.deepEqual(result.again, { type: "code", code: 0 });
  });

  test("fail with EAGAIN when the process limit is reached, and lose no started process", async (t) => {
    // The limit does not apply to root, so the fixture runs as an unprivileged user.
    const script = `exec setpriv --reuid 65533 --regid 65533 --clear-groups prlimit --nproc=40 "$0" "$1"`;
    let stdout: string;
    try {
      ({ stdout } = await run("sh", [
        "-c",
        process.getuid?.() === 0 ? script : `exec prlimit --nproc=40 "$0" "$1"`,
        process.execPath,
        fixture("exhaust.ts"),
      ]));
    } catch (error) {
      t.skip(`NOT TESTED: cannot run as an unprivileged user with a process limit here: ${error}`);
      return;
    }
    const result = JSON.parse(stdout);
    assert.deepEqual(result.refusal, { code: "EAGAIN", syscall: "clone", target: "resources" });
    assert.equal(result.killed, result.started);
    assert.deepEqual(result.again, { type: "code", code: 0 });
  });

  for (const [how, code, signal] of [
    ["exit", 3, null],
    ["throw", 1, null],
    ["kill", null, "SIGKILL"],
  ] as const) {
    test(`leave no leader running after the host process ends by ${how}`, async () => {
      const child = spawn(process.execPath, [fixture("exit-with-children.ts"), how], {
        stdio: ["ignore", "pipe", "ignore"],
      });
      const ended = new Promise((resolve) => child.once("exit", (...how) => resolve(how)));
      const text = (await child.stdout?.toArray())?.join("") ?? "";
      assert.deepEqual(await ended, [code, signal]);
      for (const pid of JSON.parse(text)) await until(`${pid} is gone`, () => !isRunning(pid));
    });
  }
});
