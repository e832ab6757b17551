import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { retryUntilResumed } from "../../src/client/session/reconnect-policy.ts";
import { EventLog } from "../../src/exec/log/event-log.ts";
import { waitForCondition } from "../../src/exec/wait/wait-condition.ts";
import type { ProcessTable } from "../../src/local/tree/process-table.ts";
import { TreeKiller } from "../../src/local/tree/tree-kill.ts";
import { SandboxedPeerDetector } from "../../src/sandbox/sandboxed-peers.ts";
import { ManualClock } from "../support/manual-clock.ts";

/** The time of day jumps by an hour, either way: no timer fires early, and none late. */

const HOUR_MS = 3_600_000;

/** A machine without processes. */
const NOBODY: ProcessTable = {
  descendants: () => [],
  orphanPids: () => [],
  children: () => [],
  entry: () => null,
  tagOf: () => null,
  hasOpen: () => false,
  signal: () => false,
};

/** Whether a promise has settled by now. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  const open = Symbol();
  await new Promise((resolve) => setImmediate(resolve));
  return (await Promise.race([promise, Promise.resolve(open)])) !== open;
}

for (const [way, ms] of [
  ["forward", HOUR_MS],
  ["back", -HOUR_MS],
] as const) {
  describe(`the time of day is set ${way} by an hour`, () => {
    test("ends a wait at its deadline", async () => {
      const clock = new ManualClock();
      const log = new EventLog({ clock });
      const waiting = waitForCondition({ log, clock, isPortListening: async () => false }, { timeoutMs: 1000 });
      clock.setForward(ms);
      log.append("stdout", Buffer.from("news, so that it looks again"));
      await clock.advance(999);
      assert.equal(await isSettled(waiting), false);
      await clock.advance(1);
      assert.equal(await isSettled(waiting), true);
      assert.equal((await waiting).reason, "timeout");
    });

    test("reports a process as idle after the required period without output", async () => {
      const clock = new ManualClock();
      const log = new EventLog({ clock });
      const until = { type: "idle", quietMs: 1000 } as const;
      const waiting = waitForCondition({ log, clock, isPortListening: async () => false }, { until });
      await clock.advance(500);
      log.append("stdout", Buffer.from("not idle"));
      clock.setForward(ms);
      await clock.advance(999);
      assert.equal(await isSettled(waiting), false);
      await clock.advance(1);
      assert.equal(await isSettled(waiting), true);
    });

    test("reconnects a client until its deadline, and no longer", async () => {
      const clock = new ManualClock();
      const timeouts: number[] = [];
      const policy = { deadlineMs: 2000, firstDelayMs: 200, maxDelayMs: 200, newSession: true };
      const attempt = async (timeoutMs: number) => {
        timeouts.push(timeoutMs);
        throw new Error("not yet");
      };
      const trying = retryUntilResumed(attempt, policy, clock, new AbortController().signal);
      trying.catch(() => undefined);
      await clock.advance(250);
      clock.setForward(ms);
      await clock.advance(2000);
      await assert.rejects(trying, /not yet/);
      assert.deepEqual(timeouts, [2000, 1800, 1600, 1400, 1200, 1000, 1000, 1000, 1000, 1000]);
    });

    test("kills after the grace period of a graceful termination", async () => {
      const clock = new ManualClock();
      const signals: number[] = [];
      const killer = new TreeKiller({ table: NOBODY, clock, subreaper: true });
      const child = {
        pid: 1_000_000_000,
        startTime: 1,
        treeTag: null,
        stdioIdentity: { pipes: [], pts: null },
        signalGroup: (signal: number) => signals.push(signal) > 0,
      };
      const target = { child, exited: () => false, onChange: () => () => undefined };
      const killed = killer.kill(target, { type: "graceful", timeoutMs: 1000 });
      clock.setForward(ms);
      await clock.advance(999);
      assert.ok(!signals.includes(9));
      await clock.advance(1);
      await killed;
      assert.ok(signals.includes(9));
    });

    test("still treats a peer as sandboxed for a moment after it left the sandbox", async () => {
      const clock = new ManualClock();
      const peers = new SandboxedPeerDetector(clock);
      peers.add(process.pid)();
      clock.setForward(ms);
      const peer = { type: "tcp", peerName: "127.0.0.1:1", localPort: 2 } as const;
      assert.notEqual(peers.isSandboxed(peer), false);
      await clock.advance(60_000);
      assert.equal(peers.isSandboxed(peer), false);
    });
  });
}
