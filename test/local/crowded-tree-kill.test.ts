import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Clock, systemClock } from "../../src/async/clock.ts";
import { knownTrees } from "../../src/local/known-trees.ts";
import type { ProcessEntry, ProcessIdentity, ProcessTable } from "../../src/local/tree/process-table.ts";
import { TreeKiller } from "../../src/local/tree/tree-kill.ts";

/** The cost of reading one process, on a clock that counts nothing else. */
const MS_PER_READ = 0.001;
const SERVER = 1000;

/**
 * A machine whose processes are deep trees, each process in a session of its own, with everything read of it counted. The
 * orphans of a process that ends are adopted by the server, and ended processes stay there as zombies.
 */
class CountedMachine {
  reads = 0;
  readonly #processes = new Map<number, ProcessEntry & { mark: number }>();
  #nextPid = SERVER + 1;
  /** Gives each process of these trees a new pid at each listing of orphans, as if it forked and ended all the time. */
  hops = 0;

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
      this.#hop();
      return this.#childrenOf(SERVER)
        .filter(({ isLeader }) => !isLeader)
        .map(({ pid }) => pid);
    },
    children: () => [],
    markOf: (pid) => {
      this.reads++;
      return this.#processes.get(pid)?.mark ?? 0;
    },
    holds: () => {
      this.reads++;
      return false;
    },
    signal: ({ pid }: ProcessIdentity) => {
      this.reads++;
      return this.#end(pid);
    },
  };

  get alive(): number {
    return [...this.#processes.values()].filter(({ zombie }) => !zombie).length;
  }

  /** A leader with a chain of descendants below it. */
  tree(mark: number, depth: number) {
    const leader = this.#add(SERVER, mark, true);
    knownTrees.begins(mark);
    let parent = leader;
    for (let at = 0; at < depth; at++) parent = this.#add(parent, mark, false);
    const child = {
      pid: leader,
      startTime: leader,
      mark,
      ends: { pipes: [], pts: null },
      signalGroup: () => this.#end(leader),
    };
    return {
      child,
      exited: () => this.#processes.get(leader)?.zombie === true,
      onChange: () => () => undefined,
    };
  }

  readonly #leaders = new Set<number>();

  #add(parent: number, mark: number, isLeader: boolean): number {
    const pid = this.#nextPid++;
    this.#processes.set(pid, {
      pid,
      parent,
      group: pid,
      session: pid,
      startTime: pid,
      zombie: false,
      mark,
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

  #hop(): void {
    if (this.hops === 0) return;
    this.hops--;
    for (const entry of [...this.#processes.values()]) {
      if (entry.zombie || entry.parent !== SERVER || this.#leaders.has(entry.pid)) continue;
      this.#processes.delete(entry.pid);
      this.#add(SERVER, entry.mark, false);
    }
  }
}

describe("many trees that are killed at once", () => {
  const TREES = 200;
  const DEPTH = 10;
  const PROCESSES = TREES * (DEPTH + 1);

  it("cost work in proportion to their processes, in small parts", async () => {
    const machine = new CountedMachine();
    const killer = new TreeKiller({ table: machine.table, clock: machine.clock, subreaper: true });
    const targets = Array.from({ length: TREES }, (_, at) => machine.tree(at + 1, DEPTH));
    let most = 0;
    let last = machine.reads;
    let over = false;
    const turn = () => {
      most = Math.max(most, machine.reads - last);
      last = machine.reads;
      if (!over) setImmediate(turn);
    };
    setImmediate(turn);
    const survivors = await Promise.all(targets.map((target) => killer.kill(target, { type: "force" })));
    over = true;
    assert.deepEqual(survivors.flat(), []);
    assert.equal(machine.alive, 0);
    assert.ok(machine.reads < 40 * PROCESSES, `${machine.reads} reads for ${PROCESSES} processes`);
    assert.ok(most < 5 * PROCESSES, `${most} reads in one turn of the event loop`);
  });

  it("are all reached although each of their processes has a new pid at each scan", async () => {
    const machine = new CountedMachine();
    const killer = new TreeKiller({ table: machine.table, clock: machine.clock, subreaper: true });
    const targets = Array.from({ length: 20 }, (_, at) => machine.tree(at + 1, 3));
    machine.hops = 5;
    await Promise.all(targets.map((target) => killer.kill(target, { type: "force" })));
    assert.equal(machine.alive, 0);
  });
});
