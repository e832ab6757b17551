import assert from "node:assert/strict";
import { constants } from "node:os";
import { describe, test } from "node:test";
import { type Clock, systemClock } from "../../../src/async/clock.ts";
import type { ProcessEntry, ProcessIdentity, ProcessTable } from "../../../src/local/tree/process-table.ts";
import { TreeKiller } from "../../../src/local/tree/tree-kill.ts";
import { treeTags } from "../../../src/local/tree/tree-tags.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { toProcessTag, toTreeTag } from "./fake-tags.ts";

/** The cost of reading one process, on a clock that counts nothing else. */
const MS_PER_READ = 0.001;
const SERVER = 1000;
const { SIGKILL } = constants.signals;

/**
 * A fake host whose processes form deep trees, each process in its own POSIX session. It counts every read. The server adopts
 * orphans, and exited processes remain as zombies.
 */
class CountingHost {
  reads = 0;
  readonly #processes = new Map<number, ProcessEntry & { treeTag: number }>();
  #nextPid = SERVER + 1;
  /** Number of orphan listings that give each orphan a new pid, as if it forked and exited all the time. */
  pidChanges = 0;

  readonly clock: Clock = { ...systemClock, monotonic: () => this.reads * MS_PER_READ };

  readonly table: ProcessTable = {
    entry: (pid) => {
      this.reads++;
      return this.#processes.get(pid) ?? null;
    },
    descendants: (pid) => {
      const found: ProcessEntry[] = [];
      const queue = [pid];
      for (const parent of queue) {
        this.reads++;
        for (const entry of this.#childrenOf(parent)) {
          this.reads++;
          found.push(entry);
          queue.push(entry.pid);
        }
      }
      return found;
    },
    orphanPids: () => {
      this.reads++;
      this.#changePids();
      return this.#childrenOf(SERVER)
        .filter(({ isLeader }) => !isLeader)
        .map(({ pid }) => pid);
    },
    children: () => [],
    tagOf: (pid) => {
      this.reads++;
      return toProcessTag(this.#processes.get(pid)?.treeTag ?? 0);
    },
    hasOpen: () => {
      this.reads++;
      return false;
    },
    signal: ({ pid }: ProcessIdentity, signal) => {
      this.reads++;
      return signal !== SIGKILL && this.#stubborn.has(pid) ? true : this.#end(pid);
    },
  };

  get alive(): number {
    return [...this.#processes.values()].filter(({ zombie }) => !zombie).length;
  }

  /** Adds a leader with a chain of descendants. */
  tree(treeTag: number, depth: number) {
    const leader = this.#add(SERVER, treeTag, true);
    if (treeTag !== 0) treeTags.add(treeTag);
    let parent = leader;
    for (let at = 0; at < depth; at++) parent = this.#add(parent, treeTag, false);
    const child = {
      pid: leader,
      startTime: leader,
      treeTag: toTreeTag(treeTag),
      stdioIdentity: { pipes: [], pts: null },
      signalGroup: () => this.#end(leader),
    };
    return {
      child,
      exited: () => this.#processes.get(leader)?.zombie === true,
      onChange: () => () => undefined,
    };
  }

  /** Adds an orphan. Its tree tag may be that of another tree. */
  orphan(treeTag: number): void {
    this.#add(SERVER, treeTag, false);
  }

  /** Adds a descendant in the POSIX session of its leader that only SIGKILL ends. */
  addJob(leader: number, treeTag: number): ProcessIdentity {
    const pid = this.#add(leader, treeTag, false);
    const entry = this.#processes.get(pid);
    assert.ok(entry);
    entry.session = leader;
    this.#stubborn.add(pid);
    return entry;
  }

  isAlive({ pid }: ProcessIdentity): boolean {
    return this.#processes.get(pid)?.zombie === false;
  }

  readonly #stubborn = new Set<number>();
  readonly #leaders = new Set<number>();

  #add(parent: number, treeTag: number, isLeader: boolean): number {
    const pid = this.#nextPid++;
    this.#processes.set(pid, {
      pid,
      parent,
      group: pid,
      session: pid,
      startTime: pid,
      zombie: false,
      treeTag,
    });
    if (isLeader) this.#leaders.add(pid);
    return pid;
  }

  #childrenOf(parent: number) {
    return [...this.#processes.values()]
      .filter((entry) => entry.parent === parent)
      .map((entry) => ({ ...entry, isLeader: this.#leaders.has(entry.pid) }));
  }

  #end(pid: number): boolean {
    const ended = this.#processes.get(pid);
    if (!ended || ended.zombie) return false;
    ended.zombie = true;
    for (const entry of this.#processes.values()) if (entry.parent === pid) entry.parent = SERVER;
    return true;
  }

  #changePids(): void {
    if (this.pidChanges === 0) return;
    this.pidChanges--;
    for (const entry of [...this.#processes.values()]) {
      if (entry.zombie || entry.parent !== SERVER || this.#leaders.has(entry.pid)) continue;
      this.#processes.delete(entry.pid);
      this.#add(SERVER, entry.treeTag, false);
    }
  }
}

describe("two concurrent kills of one tree by a TreeKiller", () => {
  test("reserve orphans with its tree tag only until both have completed", async () => {
    const host = new CountingHost();
    const killer = new TreeKiller({ table: host.table, clock: host.clock, subreaper: true });
    const target = host.tree(1, 3);
    await Promise.all([killer.kill(target, { type: "force" }), killer.kill(target, { type: "force" })]);
    await new Promise((resolve) => setImmediate(resolve));
    const other = host.tree(2, 1);
    // A descendant of the other tree with the tree tag of the killed tree.
    host.orphan(1);
    await killer.kill(other, { type: "force" });
    assert.equal(host.alive, 0);
  });
});

describe("TreeKiller with one tree", () => {
  test("kills the descendants of an untagged tree", async () => {
    const host = new CountingHost();
    const killer = new TreeKiller({ table: host.table, clock: host.clock, subreaper: false });
    assert.deepEqual(await killer.kill(host.tree(0, 3), { type: "force" }), []);
    assert.equal(host.alive, 0);
  });

  test("skips the grace period if the leader has exited", async () => {
    const host = new CountingHost();
    const clock = new ManualClock();
    const killer = new TreeKiller({ table: host.table, clock, subreaper: true });
    const target = host.tree(3, 0);
    target.child.signalGroup();
    const killed = killer.kill(target, { type: "graceful", timeoutMs: 60_000 });
    // Shorter than the grace period; the sweep itself takes a few milliseconds.
    await clock.advance(1000);
    assert.deepEqual(await killed, []);
    assert.equal(clock.pendingTimers, 0);
  });

  test("lists a tree without its zombies", () => {
    const host = new CountingHost();
    const killer = new TreeKiller({ table: host.table, clock: host.clock, subreaper: true });
    const { child } = host.tree(5, 1);
    const pids = () => killer.tree(child).map(({ pid }) => pid);
    assert.deepEqual(pids(), [child.pid, child.pid + 1]);
    host.table.signal({ pid: child.pid + 1, startTime: child.pid + 1 }, SIGKILL);
    assert.deepEqual(pids(), [child.pid]);
  });

  test("kills an orphan with a tampered tag only together with a tree of a higher tag", async () => {
    const host = new CountingHost();
    const killer = new TreeKiller({ table: host.table, clock: host.clock, subreaper: true });
    const [low, middle, high] = [6, 7, 8].map((treeTag) => host.tree(treeTag, 0));
    assert.ok(low && middle && high);
    // The table reports a tampered tag as a negative number.
    host.orphan(-7);
    await killer.kill(low, { type: "force" });
    assert.equal(host.alive, 3);
    await killer.kill(high, { type: "force" });
    assert.equal(host.alive, 1);
  });

  test("sweeps a tree at once after other trees were killed sequentially", async () => {
    const host = new CountingHost();
    const clock = new ManualClock();
    const killer = new TreeKiller({ table: host.table, clock, subreaper: true });
    for (let treeTag = 10; treeTag < 20; treeTag++) {
      const killed = killer.kill(host.tree(treeTag, 1), { type: "force" });
      await clock.advance(1000);
      await killed;
    }
    const { child } = host.tree(20, 0);
    child.signalGroup();
    assert.deepEqual(await killer.sweep(child), []);
    assert.equal(clock.pendingTimers, 0);
  });

  test("grants the grace period only to descendants in the POSIX session of the leader", async () => {
    const host = new CountingHost();
    const clock = new ManualClock();
    const killer = new TreeKiller({ table: host.table, clock, subreaper: true });
    const target = host.tree(4, 1);
    const job = host.addJob(target.child.pid, 4);
    target.child.signalGroup();
    const killed = killer.kill(target, { type: "graceful", timeoutMs: 60_000 });
    await clock.advance(30_000);
    assert.ok(host.isAlive(job));
    host.table.signal(job, SIGKILL);
    await clock.advance(1000);
    assert.equal(host.alive, 0);
    assert.deepEqual(await killed, []);
  });
});

describe("TreeKiller with many concurrent kills", () => {
  const TREES = 200;
  const DEPTH = 10;
  const PROCESSES = TREES * (DEPTH + 1);

  for (const mode of [{ type: "force" }, { type: "graceful", timeoutMs: 1000 }] as const)
    test(`does work proportional to the number of processes, in small slices (${mode.type})`, async () => {
      const host = new CountingHost();
      const killer = new TreeKiller({ table: host.table, clock: host.clock, subreaper: true });
      const targets = Array.from({ length: TREES }, (_, at) => host.tree(at + 1, DEPTH));
      let most = 0;
      let last = host.reads;
      let isDone = false;
      const tick = () => {
        most = Math.max(most, host.reads - last);
        last = host.reads;
        if (!isDone) setImmediate(tick);
      };
      setImmediate(tick);
      const survivors = await Promise.all(targets.map((target) => killer.kill(target, mode)));
      isDone = true;
      assert.deepEqual(survivors.flat(), []);
      assert.equal(host.alive, 0);
      assert.ok(host.reads < 40 * PROCESSES, `${host.reads} reads for ${PROCESSES} processes`);
      assert.ok(most < 5 * PROCESSES, `${most} reads in one tick`);
    });

  test("kills processes that have a new pid at every scan", async () => {
    const host = new CountingHost();
    const killer = new TreeKiller({ table: host.table, clock: host.clock, subreaper: true });
    const targets = Array.from({ length: 20 }, (_, at) => host.tree(at + 1, 3));
    host.pidChanges = 5;
    await Promise.all(targets.map((target) => killer.kill(target, { type: "force" })));
    assert.equal(host.alive, 0);
  });
});
