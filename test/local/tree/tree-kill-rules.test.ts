import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, test } from "node:test";
import type { ProcessEntry, ProcessTable } from "../../../src/local/tree/process-table.ts";
import { TreeKiller } from "../../../src/local/tree/tree-kill.ts";
import type { TreeOptions } from "../../../src/local/tree/tree-members.ts";
import { treeTags } from "../../../src/local/tree/tree-tags.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { toProcessTag, toTreeTag } from "./fake-tags.ts";

const { SIGTERM, SIGCONT, SIGKILL } = constants.signals;
const FIRST_PID = 1000;
/** Parent of all orphans. */
const SUBREAPER = process.pid;
const SERVER_SESSION = 77;
const SUPERVISOR = 800;
/** Number of concurrent sweeps above which sweeps share orphan scans. */
const FEW_SWEEPS = 4;
const SHARED_SCAN_MS = 20;
const SWEEP_MS = 2000;

interface FakeProcess extends ProcessEntry {
  tag: number;
  isKillable: boolean;
  signals: number[];
}

/** A host on a manual clock that records signals and counts scans. The server adopts orphans unless `subreaper` is false. */
class FakeHost {
  readonly clock = new ManualClock();
  readonly processes = new Map<number, FakeProcess>();
  readonly inspected: number[] = [];
  readonly unclaimed: number[] = [];
  orphanScans = 0;
  descents = 0;
  /** The parents whose children the last scan listed. */
  scannedParents: number[] = [];
  onScan = () => {};
  readonly killer: TreeKiller;

  readonly table: ProcessTable = {
    entry: (pid) => {
      if (pid === process.pid) return { ...ENTRY, pid, session: SERVER_SESSION };
      const ancestor = ANCESTORS.get(pid);
      return ancestor === undefined ? (this.processes.get(pid) ?? null) : { ...ENTRY, pid, parent: ancestor };
    },
    descendants: (pid) => {
      this.descents++;
      return this.#below(pid);
    },
    orphanPids: () => {
      this.orphanScans++;
      this.onScan();
      return [...this.processes.values()].filter(({ parent }) => parent === SUBREAPER).map(({ pid }) => pid);
    },
    children: (parents) => {
      this.scannedParents = [...parents];
      return [...this.processes.values()].filter(({ parent }) => parents.has(parent));
    },
    tagOf: (pid) => toProcessTag(this.processes.get(pid)?.tag ?? 0),
    hasOpen: (pid) => {
      this.inspected.push(pid);
      return false;
    },
    signal: ({ pid }, signal) => {
      const process = this.processes.get(pid);
      process?.signals.push(signal);
      if (signal === SIGKILL && process?.isKillable) this.exit(pid);
      return process !== undefined;
    },
  };

  constructor(options: Partial<TreeOptions> = {}) {
    this.killer = new TreeKiller({
      table: this.table,
      clock: this.clock,
      subreaper: true,
      onUnclaimed: ({ pid }) => this.unclaimed.push(pid),
      ...options,
    });
  }

  add(parent: number, fields: Partial<FakeProcess> = {}): FakeProcess {
    const pid = FIRST_PID + this.processes.size;
    const process = {
      ...ENTRY,
      ...{ pid, parent, group: pid, session: pid, startTime: pid },
      ...{ tag: 0, isKillable: true, signals: [] },
      ...fields,
    };
    this.processes.set(process.pid, process);
    return process;
  }

  exit(pid: number): void {
    const exited = this.processes.get(pid);
    if (exited) exited.zombie = true;
    for (const process of this.processes.values()) if (process.parent === pid) process.parent = SUBREAPER;
  }

  /** Adds a leader. Its descendants are added with `add`. */
  tree(treeTag: number, cgroup: FakeCgroup | null = null) {
    const { pid, startTime } = this.add(0, { tag: treeTag });
    if (treeTag !== 0) treeTags.add(treeTag);
    const groupSignals: number[] = [];
    const signalGroup = (signal: number) => {
      groupSignals.push(signal);
      if (signal === SIGKILL) this.exit(pid);
      return true;
    };
    const child = {
      pid,
      startTime,
      treeTag: toTreeTag(treeTag),
      cgroup,
      stdioIdentity: { pipes: [], pts: null },
      signalGroup,
    };
    const exited = () => this.processes.get(pid)?.zombie === true;
    return { child, groupSignals, exited, onChange: () => () => undefined };
  }

  /** Starts this many kills of trees with a process that survives. */
  async startEndlessKills(count: number): Promise<void> {
    for (let at = 0; at < count; at++) {
      const target = this.tree(500 + at);
      this.add(target.child.pid, { tag: 500 + at, isKillable: false });
      void this.killer.kill(target, { type: "force" });
    }
    await this.clock.advance(0);
  }

  #below(pid: number): FakeProcess[] {
    const children = [...this.processes.values()].filter(({ parent }) => parent === pid);
    return [...children, ...children.flatMap((child) => this.#below(child.pid))];
  }
}

class FakeCgroup {
  members: number[] = [];
  kills = 0;
  readonly pids = () => this.members;

  kill(): void {
    this.kills++;
  }
}

const ENTRY: ProcessEntry = { pid: 0, parent: 0, group: 0, session: 0, startTime: 0, zombie: false };
/** Ancestors of a server with their parents. */
const ANCESTORS = new Map([
  [899, 900],
  [900, 901],
  [901, 0],
]);

// Trees that start before this call make every tag known.
treeTags.enable();

const force = { type: "force" } as const;
const graceful = { type: "graceful", timeoutMs: 100 } as const;

describe("TreeKiller.kill", () => {
  test("sends SIGTERM and SIGCONT to jobs in their own process groups", async () => {
    const host = new FakeHost();
    const target = host.tree(1);
    const job = host.add(target.child.pid, { tag: 1, session: target.child.pid });
    const killed = host.killer.kill(target, graceful);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.deepEqual(job.signals, [SIGTERM, SIGCONT, SIGKILL]);
    assert.deepEqual(target.groupSignals, [SIGTERM, SIGCONT, SIGKILL]);
  });

  test("removes its listener when the leader has exited, and does not wait for the rest of the grace period", async () => {
    const host = new FakeHost();
    const target = host.tree(14);
    const listeners = new Set<() => void>();
    const onChange = (listener: () => void) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    };
    const killed = host.killer.kill({ ...target, onChange }, { type: "graceful", timeoutMs: 60_000 });
    await host.clock.advance(10);
    assert.equal(listeners.size, 1);
    host.exit(target.child.pid);
    for (const notify of listeners) notify();
    await host.clock.advance(100);
    assert.deepEqual(await killed, []);
    assert.equal(listeners.size, 0);
    assert.equal(host.clock.pendingTimers, 0);
  });

  test("kills the descendants that an untagged process starts during the grace period", async () => {
    const host = new FakeHost();
    const target = host.tree(0);
    const killed = host.killer.kill(target, graceful);
    await host.clock.advance(50);
    const late = host.add(target.child.pid);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.equal(late.zombie, true);
  });

  test("sends SIGKILL exactly at the end of the grace period", async () => {
    const host = new FakeHost();
    const target = host.tree(15);
    const job = host.add(target.child.pid, { tag: 15, session: target.child.pid });
    const listeners: (() => void)[] = [];
    const onChange = (listener: () => void) => {
      listeners.push(listener);
      return () => undefined;
    };
    const killed = host.killer.kill({ ...target, onChange }, { type: "graceful", timeoutMs: 10 });
    // The leader exits at once, so the killer polls its POSIX session, in intervals of 2, 4 and 8 ms.
    host.exit(target.child.pid);
    for (const notify of listeners) notify();
    await host.clock.advance(9);
    assert.ok(!job.signals.includes(SIGKILL));
    await host.clock.advance(1);
    assert.ok(job.signals.includes(SIGKILL));
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
  });

  test("confirms an empty scan at once, but after a pause if a scan reads all processes of the host", async () => {
    for (const [subreaper, timers] of [
      [true, 0],
      [false, 1],
    ] as const) {
      const host = new FakeHost({ subreaper });
      const killed = host.killer.kill(host.tree(16), force);
      await host.clock.advance(0);
      assert.equal(host.clock.pendingTimers, timers);
      await host.clock.advance(1000);
      assert.deepEqual(await killed, []);
    }
  });

  test("does not sweep an untagged process without descendants and cgroup", async () => {
    const host = new FakeHost();
    assert.deepEqual(await host.killer.kill(host.tree(0), force), []);
    assert.equal(host.orphanScans, 1);
  });

  test("kills a descendant that a later scan finds by its tag", async () => {
    const host = new FakeHost();
    const target = host.tree(2);
    host.onScan = () => {
      if (host.orphanScans === 2) host.add(SUBREAPER, { tag: 2 });
    };
    const killed = host.killer.kill(target, force);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.deepEqual(
      Array.from(host.processes.values(), ({ zombie }) => zombie),
      [true, true],
    );
  });

  test("kills a descendant that a later scan finds in the cgroup of an untagged process", async () => {
    const host = new FakeHost();
    const cgroup = new FakeCgroup();
    const target = host.tree(0, cgroup);
    const late = host.add(0);
    host.onScan = () => {
      if (host.orphanScans === 2) cgroup.members = [late.pid];
    };
    const killed = host.killer.kill(target, force);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.equal(late.zombie, true);
  });

  test("kills descendants of a process that only the cgroup identifies", async () => {
    const host = new FakeHost();
    const cgroup = new FakeCgroup();
    const target = host.tree(3, cgroup);
    const member = host.add(0);
    const descendant = host.add(member.pid);
    cgroup.members = [member.pid];
    assert.equal(host.killer.tree(target.child).length, 3);
    const killed = host.killer.kill(target, force);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.deepEqual([member.zombie, descendant.zombie], [true, true]);
  });

  test("kills a cgroup that grew during the grace period before it scans the tree", async () => {
    const host = new FakeHost();
    const cgroup = new FakeCgroup();
    const target = host.tree(4, cgroup);
    const killed = host.killer.kill(target, graceful);
    await host.clock.advance(50);
    cgroup.members = Array(65).fill(target.child.pid);
    host.onScan = () => assert.equal(cgroup.kills, 1);
    cgroup.kill = () => {
      cgroup.kills++;
      cgroup.members = [];
    };
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.equal(cgroup.kills, 1);
  });

  test("kills a cgroup that grew during the sweep before it scans the tree again", async () => {
    const host = new FakeHost();
    const cgroup = new FakeCgroup();
    const target = host.tree(5, cgroup);
    host.add(target.child.pid, { tag: 5 });
    const killed = host.killer.kill(target, force);
    await host.clock.advance(0);
    cgroup.members = Array(65).fill(target.child.pid);
    cgroup.kill = () => {
      cgroup.kills++;
      cgroup.members = [];
    };
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.equal(cgroup.kills, 1);
  });

  test("completes without a delay if no process is alive", async () => {
    const host = new FakeHost();
    assert.deepEqual(await host.killer.kill(host.tree(6), force), []);
    assert.equal(host.clock.pendingTimers, 0);
  });

  test("does not kill the cgroup if individual kills suffice", async () => {
    const host = new FakeHost();
    await host.startEndlessKills(FEW_SWEEPS + 1);
    const cgroup = new FakeCgroup();
    const target = host.tree(7, cgroup);
    host.add(target.child.pid, { tag: 7 });
    const killed = host.killer.kill(target, force);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.equal(cgroup.kills, 0);
  });

  test("kills the cgroup when the sweep ends before a second scan confirms the first", async () => {
    const host = new FakeHost();
    const cgroup = new FakeCgroup();
    const target = host.tree(8, cgroup);
    const process = host.add(target.child.pid, { tag: 8, isKillable: false });
    const killed = host.killer.kill(target, force);
    await host.clock.advance(SWEEP_MS / 2);
    assert.deepEqual(await killed, [process.pid]);
    await host.startEndlessKills(FEW_SWEEPS + 1);
    await host.clock.advance(SWEEP_MS / 2 - 1);
    const kills = cgroup.kills;
    host.exit(process.pid);
    await host.clock.advance(SWEEP_MS / 4);
    assert.equal(cgroup.kills, kills + 1);
  });

  test("reads each process of a tree once per scan", async () => {
    const host = new FakeHost();
    const target = host.tree(9);
    const child = host.add(target.child.pid, { tag: 9 });
    host.add(child.pid, { tag: 9 });
    assert.equal(host.killer.tree(target.child).length, 3);
    assert.equal(host.descents, 1);
  });
});

describe("TreeKiller.killNow", () => {
  test("sends SIGKILL to the process group and to all descendants", () => {
    const host = new FakeHost();
    const target = host.tree(10);
    const descendant = host.add(target.child.pid, { tag: 10 });
    host.killer.killNow(target.child);
    assert.deepEqual(target.groupSignals, [SIGKILL]);
    assert.deepEqual(descendant.signals, [SIGKILL]);
  });
});

describe("TreeKiller.sweep", () => {
  for (const [concurrent, scans] of [
    [FEW_SWEEPS, 1],
    [FEW_SWEEPS + 1, 0],
  ] as const)
    test(`makes ${scans} new orphan scans while ${concurrent} sweeps run`, async () => {
      const host = new FakeHost();
      await host.startEndlessKills(concurrent);
      const { child } = host.tree(11);
      host.exit(child.pid);
      const before = host.orphanScans;
      const swept = host.killer.sweep(child);
      assert.equal(host.orphanScans, before + scans);
      await host.clock.advance(SWEEP_MS);
      assert.deepEqual(await swept, []);
    });

  test("kills the descendants that outlive their leader", async () => {
    const host = new FakeHost();
    const { child } = host.tree(13);
    const descendant = host.add(child.pid, { tag: 13 });
    host.exit(child.pid);
    const swept = host.killer.sweep(child);
    await host.clock.advance(1000);
    assert.deepEqual(await swept, []);
    assert.deepEqual(descendant.signals, [SIGKILL]);
  });

  test("kills the descendants of a leader whose start time is unknown", async () => {
    const host = new FakeHost();
    const { child } = host.tree(14);
    const descendant = host.add(child.pid, { tag: 14 });
    host.exit(child.pid);
    const swept = host.killer.sweep({ ...child, startTime: null });
    await host.clock.advance(1000);
    assert.deepEqual(await swept, []);
    assert.deepEqual(descendant.signals, [SIGKILL]);
  });

  test("forgets the tag of a tree without descendants after one scan", async () => {
    const host = new FakeHost();
    const { child } = host.tree(12);
    host.exit(child.pid);
    assert.equal(treeTags.isUnknown(12), false);
    assert.deepEqual(await host.killer.sweep(child), []);
    assert.equal(host.orphanScans, 1);
    assert.equal(treeTags.isUnknown(12), true);
  });
});

describe("TreeKiller and the orphans of other trees", () => {
  test("does not inspect an orphan whose own tree is being swept, until the last of its sweeps ends", async () => {
    const host = new FakeHost();
    const target = host.tree(20);
    const other = host.tree(21);
    const orphan = host.add(SUBREAPER, { tag: 20, isKillable: false });
    const inspects = async () => {
      await host.clock.advance(SHARED_SCAN_MS);
      host.inspected.length = 0;
      host.killer.tree(other.child);
      return host.inspected.includes(orphan.pid);
    };
    void host.killer.kill(target, force);
    await host.clock.advance(SWEEP_MS / 2);
    assert.equal(await inspects(), false);
    void host.killer.kill(target, force);
    await host.clock.advance((SWEEP_MS * 3) / 4);
    assert.equal(await inspects(), false);
    await host.clock.advance(SWEEP_MS);
    assert.equal(await inspects(), true);
  });

  test("kills an untagged orphan with the next tree, unless the orphan is in the POSIX session of the server", async () => {
    const host = new FakeHost();
    const target = host.tree(22);
    const own = host.add(SUBREAPER, { session: SERVER_SESSION });
    const unclaimed = host.add(SUBREAPER);
    const killed = host.killer.kill(target, force);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.deepEqual([own.zombie, unclaimed.zombie], [false, true]);
    assert.deepEqual(host.unclaimed, [unclaimed.pid]);
  });

  test("leaves untagged orphans alone if the server is not a subreaper", async () => {
    const host = new FakeHost({ subreaper: false });
    const target = host.tree(23);
    const orphan = host.add(1);
    const killed = host.killer.kill(target, force);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.equal(orphan.zombie, false);
  });

  test("lists the children of process 1 and of all ancestors if the server is not a subreaper", ({ mock }) => {
    mock.property(process, "ppid", 899);
    const host = new FakeHost({ subreaper: false });
    host.killer.hasDescendants(host.tree(24).child);
    assert.deepEqual(host.scannedParents, [1, 899, 900, 901]);
  });

  test("kills only tagged children of the supervisor, and reports none of them as unclaimed", async () => {
    const host = new FakeHost({ supervisorPid: SUPERVISOR });
    const target = host.tree(26);
    const children = [26, 0, 999, -1].map((tag) => host.add(SUPERVISOR, { tag }));
    // A server that itself runs in a process of another server has a tag.
    host.add(SUPERVISOR, { pid: process.pid, tag: 998 });
    const killed = host.killer.kill(target, force);
    await host.clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.deepEqual(
      children.map(({ zombie }) => zombie),
      [true, false, false, false],
    );
    assert.deepEqual(host.unclaimed, []);
    const inspected = new Set(host.inspected);
    assert.deepEqual(inspected, new Set(children.slice(2).map(({ pid }) => pid)));
  });

  test("forgets the tags of many exited trees, except tags that an orphan carries", () => {
    const [first, second, third] = [10_000, 10_001, 10_002];
    for (let tag = first; tag < first + 1024; tag++) {
      treeTags.add(tag);
      if (tag !== third) treeTags.leaderExited(tag);
    }
    const known = () => [first, second, third].map((tag) => !treeTags.isUnknown(tag));
    const withoutSubreaper = new FakeHost({ subreaper: false });
    withoutSubreaper.killer.hasDescendants(withoutSubreaper.tree(27).child);
    assert.deepEqual(known(), [true, true, true]);
    const host = new FakeHost();
    const { child } = host.tree(28);
    host.add(SUBREAPER, { tag: first });
    host.killer.hasDescendants(child);
    assert.deepEqual(known(), [true, false, true]);
  });

  test("shares an orphan scan for less than 20 ms", async () => {
    const host = new FakeHost();
    const { child } = host.tree(25);
    host.killer.hasDescendants(child);
    host.killer.hasDescendants(child);
    await host.clock.advance(SHARED_SCAN_MS - 1);
    host.killer.hasDescendants(child);
    assert.equal(host.orphanScans, 1);
    await host.clock.advance(1);
    host.killer.hasDescendants(child);
    assert.equal(host.orphanScans, 2);
  });
});
