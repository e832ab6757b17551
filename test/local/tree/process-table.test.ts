import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ProcessTable } from "../../../src/local/tree/process-table.ts";
import { isAlive, listOpenFiles, procFsTable } from "../../../src/local/tree/process-table.ts";
import { nativeProcessTable } from "../../../src/native/native-process.ts";
import { addon, endSession, NO_ADDON, startChild, TERMINAL } from "../../native/started.ts";

const tables: [name: string, table: () => ProcessTable, skip: string | false][] = [
  ["of the addon", () => nativeProcessTable(addon()), NO_ADDON],
  ["read through Node", () => procFsTable, NO_ADDON],
];

for (const [name, make, skip] of tables) {
  describe(`the process table ${name}`, { skip }, () => {
    test("lists descendants, their POSIX sessions and the pipes they hold", async () => {
      const table = make();
      const script =
        "sleep 100 & sh -c 'sleep 100 & setsid sleep 100 >/dev/null 2>&1 </dev/null & wait' & echo ready; wait";
      const started = await startChild(["sh", "-c", script], { env: { PATH: "/usr/bin:/bin" } });
      const { pid, stdioIdentity } = started.child;
      try {
        await started.until((output) => output.includes("ready"));
        let below = table.descendants(pid);
        while (below.length < 4) below = table.descendants(pid);
        assert.equal(below.length, 4);
        assert.equal(below[0]?.parent, pid);
        // The shell's child creates its POSIX session only after the fork.
        while (below.every((entry) => entry.session === pid)) below = table.descendants(pid);
        const escaped = below.filter((entry) => entry.session !== pid);
        assert.equal(escaped.length, 1);
        const children = table.children(new Set([pid])).map((entry) => entry.pid);
        assert.deepEqual(
          children.sort(),
          below
            .filter((entry) => entry.parent === pid)
            .map((entry) => entry.pid)
            .sort(),
        );
        assert.deepEqual(table.orphanPids(), []);
        const inside = below.find((entry) => entry.session === pid);
        assert.ok(inside && table.hasOpen(inside.pid, stdioIdentity));
        assert.ok(escaped[0] && !table.hasOpen(escaped[0].pid, stdioIdentity));
        assert.ok(escaped[0] && table.signal(escaped[0], 9));
      } finally {
        endSession(started);
        await started.close;
      }
      assert.equal(table.entry(pid), null);
    });

    test("finds the processes that hold a terminal", async () => {
      const table = make();
      const started = await startChild(["sleep", "100"], { terminal: TERMINAL });
      assert.ok(table.hasOpen(started.child.pid, started.child.stdioIdentity));
      assert.ok(!table.hasOpen(started.child.pid, { pipes: [], pts: (started.child.stdioIdentity.pts ?? 0) + 1000 }));
      started.child.signalGroup(9);
      await started.close;
    });

    test("does not signal a later process with the same pid, and rejects an unknown signal", async () => {
      const table = make();
      const started = await startChild(["sleep", "100"]);
      const entry = table.entry(started.child.pid);
      assert.ok(entry);
      const earlier = { pid: entry.pid, startTime: entry.startTime - 1 };
      assert.equal(table.signal(earlier, 9), false);
      assert.equal(isAlive(table, earlier), false);
      assert.equal(isAlive(table, entry), true);
      const unknownSignal = 999;
      assert.equal(table.signal(entry, unknownSignal), false);
      assert.equal(table.signal(entry, 9), true);
      await started.close;
      assert.equal(isAlive(table, entry), false);
      assert.equal(table.signal(entry, 9), false);
    });

    test("reads executable names with spaces and parentheses", async () => {
      const table = make();
      const started = await startChild(["sh", "-c", 'printf "a) b (" >/proc/self/comm; echo ready; read x'], {
        pipeStdin: true,
      });
      await started.until((output) => output.includes("ready"));
      assert.equal(table.entry(started.child.pid)?.session, started.child.pid);
      started.child.input.close();
      await started.close;
    });
  });
}

test("lists the open files of this process except descriptors that close meanwhile", () => {
  // The listing opens /proc/PID/fd itself and closes it before it reads the links.
  const files = listOpenFiles(process.pid);
  assert.ok(files.length > 0);
  assert.deepEqual(
    files.filter((file) => typeof file !== "string"),
    [],
  );
});
