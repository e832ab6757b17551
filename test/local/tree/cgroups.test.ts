import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, it } from "node:test";
import { makeCgroup, serverCgroup } from "../../../src/local/tree/cgroups.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

/**
 * Version 2 of cgroups in a tree of plain files, since few machines delegate its controllers to tests: which files are read
 * and written where. What the kernel makes of them is not shown here; version 1 is run for real in test/e2e/hostile/limits.test.ts.
 */
interface Tree extends Disposable {
  /** Where the hierarchy is mounted. */
  mountPoint: string;
  /** What stands for /proc/self. */
  procSelf: string;
}

/** `enabled` names the controllers that groups below each group get. */
function tree(own: string, enabled: Record<string, string>, root = "/"): Tree {
  const folder = scratchDirectory();
  const mountPoint = join(folder.path, "cgroup");
  const procSelf = join(folder.path, "self");
  const shown = (path: string) => join(mountPoint, root === "/" ? path : path.slice(root.length));
  mkdirSync(shown(own), { recursive: true });
  mkdirSync(procSelf);
  for (const [path, controllers] of Object.entries(enabled))
    writeFileSync(join(shown(path), "cgroup.subtree_control"), `${controllers}\n`);
  writeFileSync(join(procSelf, "cgroup"), `0::${own}\n`);
  writeFileSync(
    join(procSelf, "mountinfo"),
    `22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:26 ${root} ${mountPoint} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n`,
  );
  return { mountPoint, procSelf, [Symbol.dispose]: () => folder[Symbol.dispose]() };
}

const groupsIn = (path: string) => readdirSync(path).filter((name) => name.startsWith("procwire-"));

describe("a cgroup of version 2", () => {
  it("is made beside the server's own, where the controller is delegated, with the limit in its file", () => {
    using at = tree("/service/leaf", { "/service": "cpu memory pids" });
    const place = join(at.mountPoint, "service");
    for (const [controller, file] of [
      ["memory", "memory.max"],
      ["pids", "pids.max"],
    ] as const) {
      const group = makeCgroup(controller, 12_345_678, at.procSelf);
      const path = dirname(group.procsPath);
      assert.deepEqual([dirname(path), basename(group.procsPath)], [place, "cgroup.procs"]);
      assert.equal(readFileSync(join(path, file), "utf8"), "12345678");
      assert.deepEqual(readdirSync(path), [file]);
    }
  });

  it("is made below the server's own where that delegates the controller", () => {
    using at = tree("/service/leaf", { "/service": "memory", "/service/leaf": "memory" });
    const group = makeCgroup("memory", 1, at.procSelf);
    assert.equal(dirname(dirname(group.procsPath)), join(at.mountPoint, "service/leaf"));
  });

  it("is made outside of the group that contains a server and all it starts", () => {
    using at = tree("/service/leaf/procwire-server-12-345", { "/service": "pids" });
    const group = makeCgroup("pids", 1, at.procSelf);
    assert.equal(dirname(dirname(group.procsPath)), join(at.mountPoint, "service"));
  });

  it("is found where only a part of the hierarchy is mounted, as in a container", () => {
    using at = tree("/box/7/leaf", { "/box/7": "memory" }, "/box/7");
    const group = makeCgroup("memory", 1, at.procSelf);
    assert.equal(dirname(dirname(group.procsPath)), at.mountPoint);
  });

  it("never goes above what is mounted", () => {
    using at = tree("/", {});
    writeFileSync(join(dirname(at.mountPoint), "cgroup.subtree_control"), "memory\n");
    assert.throws(() => makeCgroup("memory", 1, at.procSelf), /^Error: there is no memory cgroup/);
  });

  it("is refused where no group delegates the controller", () => {
    using at = tree("/service/leaf", { "/service": "cpu memory_recursiveprot", "/service/leaf": "" });
    for (const controller of ["memory", "pids"] as const)
      assert.throws(
        () => makeCgroup(controller, 1, at.procSelf),
        new RegExp(`^Error: there is no ${controller} cgroup that this program may add to$`),
      );
  });

  it("is refused with the system's own error where it cannot be made", () => {
    using at = tree("/leaf", { "/": "memory" });
    const first = dirname(makeCgroup("memory", 1, at.procSelf).procsPath);
    const [, name = "", serial = ""] = /^(.*-)(\d+)$/.exec(first) ?? [];
    for (let next = Number(serial) + 1; next < Number(serial) + 5; next++)
      writeFileSync(`${name}${next}`, "");
    assert.throws(() => makeCgroup("memory", 1, at.procSelf), { code: "EEXIST" });
  });

  it("says whether the kernel has killed a process in it for lack of memory", () => {
    using at = tree("/leaf", { "/": "memory pids" });
    const group = makeCgroup("memory", 1, at.procSelf);
    const events = join(dirname(group.procsPath), "memory.events");
    assert.equal(group.wasOutOfMemory(), false);
    writeFileSync(events, "low 0\nhigh 0\nmax 12\noom 3\noom_kill 0\noom_group_kill 0\n");
    assert.equal(group.wasOutOfMemory(), false);
    writeFileSync(events, "low 0\nhigh 0\nmax 12\noom 3\noom_kill 1\noom_group_kill 0\n");
    assert.equal(group.wasOutOfMemory(), true);
    const others = makeCgroup("pids", 1, at.procSelf);
    writeFileSync(join(dirname(others.procsPath), "memory.events"), "oom_kill 1\n");
    assert.equal(others.wasOutOfMemory(), false, "a group that limits no memory has met no such limit");
  });

  it("is removed after use, and those of dead servers are removed when the first one is made", () => {
    using at = tree("/leaf", { "/": "pids" });
    const dead = join(at.mountPoint, "procwire-1-999999999999-1");
    const foreign = join(at.mountPoint, "procwire-other");
    mkdirSync(dead);
    mkdirSync(foreign);
    const group = makeCgroup("pids", 1, at.procSelf);
    assert.deepEqual([existsSync(dead), existsSync(foreign)], [false, true]);
    const path = dirname(group.procsPath);
    // The kernel's files go with their folder; here they are plain ones.
    rmSync(join(path, "pids.max"));
    group.remove();
    assert.deepEqual(groupsIn(at.mountPoint), ["procwire-other"]);
  });

  it("has both limits of a process, which can be in one only", () => {
    using at = tree("/service/leaf", { "/service": "memory pids", "/service/leaf": "memory" });
    const memory = makeCgroup("memory", 100, at.procSelf, { later: ["pids"] });
    assert.equal(makeCgroup("pids", 7, at.procSelf, { before: memory }), memory);
    const path = dirname(memory.procsPath);
    assert.equal(dirname(path), join(at.mountPoint, "service"), "where both are delegated");
    assert.equal(readFileSync(join(path, "memory.max"), "utf8"), "100");
    assert.equal(readFileSync(join(path, "pids.max"), "utf8"), "7");
    assert.equal(groupsIn(join(at.mountPoint, "service")).length, 1);
  });

  it("holds a process with all it starts: lists them, and kills them by one write", () => {
    using at = tree("/leaf", { "/": "pids" });
    const group = makeCgroup("pids", 1, at.procSelf);
    writeFileSync(group.procsPath, "12\n0\n34\n");
    assert.deepEqual(group.tree?.pids(), [12, 34]);
    group.tree?.kill();
    assert.equal(readFileSync(join(dirname(group.procsPath), "cgroup.kill"), "utf8"), "1");
  });
});

describe("the cgroup of a server", () => {
  it("is the directory that its program is in, where only a part of the hierarchy is mounted too", () => {
    using whole = tree("/box/procwire-server-1-2", {});
    assert.equal(serverCgroup(whole.procSelf), join(whole.mountPoint, "box/procwire-server-1-2"));
    using part = tree("/box/7/procwire-server-1-2", {}, "/box/7");
    assert.equal(serverCgroup(part.procSelf), join(part.mountPoint, "procwire-server-1-2"));
  });

  it("is none for a program that is in another, or in one below it", () => {
    for (const own of ["/", "/box", "/procwire-server-1-2/tree-3-4"]) {
      using at = tree(own, {});
      assert.equal(serverCgroup(at.procSelf), null);
    }
  });
});
