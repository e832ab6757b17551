import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ProcessNames } from "../../../src/exec/backend/process-names.ts";
import {
  endWithSession,
  isLive,
  isLogComplete,
  onceEnded,
  onceLogComplete,
} from "../../../src/exec/backend/process-state.ts";
import { earliestEndMs, type StartParams } from "../../../src/exec/exec-process.ts";
import { ExecServerError } from "../../../src/protocol/exec-server-error.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";

const START: StartParams = { processId: "p", argv: ["x"], cwd: "/", env: {}, tty: false };
const EXIT = { exitCode: 0, signal: null, reason: "exited", sandboxDenied: false } as const;

async function startOne() {
  const host = new FakeHost();
  await host.backend.start(START);
  const process = host.process("p");
  const calls: string[] = [];
  const watch = () => {
    onceEnded(process, () => calls.push("ended"));
    onceLogComplete(process, () => calls.push("complete"));
  };
  return { process, calls, watch };
}

describe("the state of a process", () => {
  test("is live until its exit, and its log is complete with closed", async () => {
    const { process, calls, watch } = await startOne();
    watch();
    process.log.append("stdout", Buffer.from("x"));
    assert.deepEqual([isLive(process), isLogComplete(process), calls], [true, false, []]);
    process.log.exited(EXIT);
    assert.deepEqual([isLive(process), isLogComplete(process), calls], [false, false, ["ended"]]);
    process.log.append("stdout", Buffer.from("late"));
    assert.deepEqual(calls, ["ended"]);
    process.log.closed();
    assert.deepEqual([isLive(process), isLogComplete(process), calls], [false, true, ["ended", "complete"]]);
    watch();
    assert.deepEqual(calls, ["ended", "complete", "ended", "complete"]);
  });

  test("ends with a failure, and with closed without an exit", async () => {
    const failed = await startOne();
    failed.watch();
    failed.process.log.fail(new ExecServerError("lost", "FAILED"));
    assert.deepEqual([isLive(failed.process), isLogComplete(failed.process)], [false, true]);
    assert.deepEqual(failed.calls, ["ended", "complete"]);
    const closed = await startOne();
    closed.watch();
    closed.process.log.closed();
    assert.deepEqual([isLive(closed.process), isLogComplete(closed.process)], [false, true]);
    assert.deepEqual(closed.calls, ["ended", "complete"]);
  });

  test("frees its name at the exit", async () => {
    const { process } = await startOne();
    const names = new ProcessNames();
    names.reserve("alice", "web", "p").releaseAtExit(process);
    assert.throws(() => names.reserve("alice", "web", "q"), /in use by process p/);
    process.log.exited(EXIT);
    names.reserve("alice", "web", "q");
  });

  test("ends with its session", async () => {
    const { process } = await startOne();
    endWithSession(process);
    assert.deepEqual(process.endReasons, ["sessionExpired"]);
  });
});

test("earliestEndMs returns the smaller of timeout and maximum age, or null", () => {
  assert.equal(earliestEndMs(START), null);
  assert.equal(earliestEndMs({ ...START, timeoutMs: 5 }), 5);
  assert.equal(earliestEndMs({ ...START, timeoutMs: 5, maxAgeMs: 3 }), 3);
  assert.equal(earliestEndMs({ ...START, maxAgeMs: 7 }), 7);
});
