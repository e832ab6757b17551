import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, test } from "node:test";
import { createCgroup, removeEmptyCgroups, serverCgroupPath } from "../../../src/local/tree/cgroups.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";

/**
 * A cgroup v2 hierarchy of plain files, since few hosts delegate controllers to tests. It shows which files are read and
 * written. The kernel's behavior is tested with cgroup v1 in test/e2e/hostile/limits.test.ts.
 */
interface FakeCgroups extends Disposable {
  /** The mount point of the hierarchy. */
  mountPoint: string;
  /** The replacement of /proc/self. */
  procSelf: string;
}

/** Maps each cgroup to the controllers that it delegates to its children. */
function fakeCgroups(own: string, enabled: Record<string, string>, root = "/"): FakeCgroups {
  const directory = scratchDirectory();
  const mountPoint = join(directory.path, "cgroup");
  const procSelf = join(directory.path, "self");
  const hostPath = (path: string) => join(mountPoint, root === "/" ? path : path.slice(root.length));
  mkdirSync(hostPath(own), { recursive: true });
  mkdirSync(procSelf);
  for (const [path, controllers] of Object.entries(enabled))
    writeFileSync(join(hostPath(path), "cgroup.subtree_control"), `${controllers}\n`);
  writeFileSync(join(procSelf, "cgroup"), `0::${own}\n`);
  writeFileSync(
    join(procSelf, "mountinfo"),
    `22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:26 ${root} ${mountPoint} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n`,
  );
  return { mountPoint, procSelf, [Symbol.dispose]: () => directory[Symbol.dispose]() };
}

const groupsIn = (path: string) => readdirSync(path).filter((name) => name.startsWith("procwire-"));

const isRoot = process.getuid?.() === 0;
const hasPidsCgroup = existsSync("/sys/fs/cgroup/pids/cgroup.procs");

describe("createCgroup with the cgroups of the host", () => {
  test("removes a cgroup whose limit the kernel rejects", {
    skip: skipUnless(isRoot && hasPidsCgroup, "no pids cgroup can be made here"),
  }, () => {
    const group = createCgroup("pids", 10);
    const parent = dirname(dirname(group.procsPath));
    group.remove();
    assert.throws(() => createCgroup("pids", -1), { code: "EINVAL" });
    const own = groupsIn(parent).filter((name) => name.startsWith(`procwire-${process.pid}-`));
    assert.deepEqual(own, []);
  });

  for (const [when, remove] of [
    ["by removeEmptyCgroups", removeEmptyCgroups],
    ["before the next cgroup is created", () => createCgroup("pids", 10).remove()],
  ] as const)
    test(`removes a cgroup that contained a process once it is empty, ${when}`, {
      skip: skipUnless(isRoot && hasPidsCgroup, "no pids cgroup can be made here"),
    }, async () => {
      const group = createCgroup("pids", 10);
      const path = dirname(group.procsPath);
      const child = spawn("sleep", ["1000"], { stdio: "ignore" });
      const exited = once(child, "exit");
      try {
        writeFileSync(group.procsPath, String(child.pid));
        group.remove();
        assert.ok(existsSync(path), "the kernel keeps a cgroup with a process");
      } finally {
        child.kill("SIGKILL");
        await exited;
      }
      remove();
      assert.ok(!existsSync(path));
    });
});

describe("createCgroup with cgroup v2", () => {
  test("creates a sibling of the server's cgroup, if its parent delegates the controller, and writes the limit", () => {
    using fake = fakeCgroups("/service/leaf", { "/service": "cpu memory pids" });
    const parent = join(fake.mountPoint, "service");
    for (const [controller, file] of [
      ["memory", "memory.max"],
      ["pids", "pids.max"],
    ] as const) {
      const group = createCgroup(controller, 12_345_678, fake.procSelf);
      const path = dirname(group.procsPath);
      assert.deepEqual([dirname(path), basename(group.procsPath)], [parent, "cgroup.procs"]);
      assert.equal(readFileSync(join(path, file), "utf8"), "12345678");
      assert.deepEqual(readdirSync(path), [file]);
    }
  });

  test("creates a child of the server's cgroup if that delegates the controller", () => {
    using fake = fakeCgroups("/service/leaf", { "/service": "memory", "/service/leaf": "memory" });
    const group = createCgroup("memory", 1, fake.procSelf);
    assert.equal(dirname(dirname(group.procsPath)), join(fake.mountPoint, "service/leaf"));
  });

  test("creates the cgroup outside of the server cgroup", () => {
    using fake = fakeCgroups("/service/leaf/procwire-server-12-345", { "/service": "pids" });
    const group = createCgroup("pids", 1, fake.procSelf);
    assert.equal(dirname(dirname(group.procsPath)), join(fake.mountPoint, "service"));
  });

  test("works with a partly mounted hierarchy, as in a container", () => {
    using fake = fakeCgroups("/box/7/leaf", { "/box/7": "memory" }, "/box/7");
    const group = createCgroup("memory", 1, fake.procSelf);
    assert.equal(dirname(dirname(group.procsPath)), fake.mountPoint);
  });

  test("never uses a directory above the mount point", () => {
    using fake = fakeCgroups("/", {});
    writeFileSync(join(dirname(fake.mountPoint), "cgroup.subtree_control"), "memory\n");
    assert.throws(() => createCgroup("memory", 1, fake.procSelf), /^Error: no writable memory cgroup found$/);
  });

  test("throws if no cgroup delegates the controller", () => {
    using fake = fakeCgroups("/service/leaf", {
      "/service": "cpu memory_recursiveprot",
      "/service/leaf": "",
    });
    for (const controller of ["memory", "pids"] as const)
      assert.throws(
        () => createCgroup(controller, 1, fake.procSelf),
        new RegExp(`^Error: no writable ${controller} cgroup found$`),
      );
  });

  test("throws the system's error if the directory cannot be created", () => {
    using fake = fakeCgroups("/leaf", { "/": "memory" });
    const first = dirname(createCgroup("memory", 1, fake.procSelf).procsPath);
    const [, name = "", serial = ""] = /^(.*-)(\d+)$/.exec(first) ?? [];
    for (let next = Number(serial) + 1; next < Number(serial) + 5; next++) writeFileSync(`${name}${next}`, "");
    assert.throws(() => createCgroup("memory", 1, fake.procSelf), { code: "EEXIST" });
  });

  test("reports whether the kernel killed a process for lack of memory", () => {
    using fake = fakeCgroups("/leaf", { "/": "memory pids" });
    const group = createCgroup("memory", 1, fake.procSelf);
    const events = join(dirname(group.procsPath), "memory.events");
    assert.equal(group.wasOutOfMemory(), false);
    writeFileSync(events, "low 0\nhigh 0\nmax 12\noom 3\noom_kill 0\noom_group_kill 0\n");
    assert.equal(group.wasOutOfMemory(), false);
    writeFileSync(events, "low 0\nhigh 0\nmax 12\noom 3\noom_kill 1\noom_group_kill 0\n");
    assert.equal(group.wasOutOfMemory(), true);
    const others = createCgroup("pids", 1, fake.procSelf);
    writeFileSync(join(dirname(others.procsPath), "memory.events"), "oom_kill 1\n");
    assert.equal(others.wasOutOfMemory(), false, "a cgroup without a memory limit reports no memory kill");
  });

  test("removes the cgroup after use and the cgroups of dead servers on first use", () => {
    using fake = fakeCgroups("/leaf", { "/": "pids" });
    using other = fakeCgroups("/leaf", { "/": "pids" });
    const name = basename(dirname(createCgroup("pids", 1, other.procSelf).procsPath));
    // Process 1 has another start time, so it is not the server of this cgroup.
    const dead = join(fake.mountPoint, name.replace(`-${process.pid}-`, "-1-9"));
    const foreign = join(fake.mountPoint, "procwire-other");
    mkdirSync(dead);
    mkdirSync(foreign);
    const group = createCgroup("pids", 1, fake.procSelf);
    assert.deepEqual([existsSync(dead), existsSync(foreign)], [false, true]);
    const path = dirname(group.procsPath);
    // The kernel removes its files with the directory; here they are plain files.
    rmSync(join(path, "pids.max"));
    group.remove();
    assert.deepEqual(groupsIn(fake.mountPoint), ["procwire-other"]);
    mkdirSync(dead);
    createCgroup("pids", 1, fake.procSelf);
    assert.ok(existsSync(dead), "a later use does not list the directory again");
  });

  test("sets both limits in one cgroup, since a process can be in one only", () => {
    using fake = fakeCgroups("/service/leaf", { "/service": "memory pids", "/service/leaf": "memory" });
    const memory = createCgroup("memory", 100, fake.procSelf, { later: ["pids"] });
    assert.equal(createCgroup("pids", 7, fake.procSelf, { before: memory }), memory);
    const path = dirname(memory.procsPath);
    assert.equal(dirname(path), join(fake.mountPoint, "service"), "the cgroup that delegates both");
    assert.equal(readFileSync(join(path, "memory.max"), "utf8"), "100");
    assert.equal(readFileSync(join(path, "pids.max"), "utf8"), "7");
    assert.equal(groupsIn(join(fake.mountPoint, "service")).length, 1);
  });

  test("lists the processes of a tree and kills them with one write", () => {
    using fake = fakeCgroups("/leaf", { "/": "pids" });
    const group = createCgroup("pids", 1, fake.procSelf);
    writeFileSync(group.procsPath, "12\n0\n34\n");
    assert.deepEqual(group.tree?.pids(), [12, 34]);
    group.tree?.kill();
    assert.equal(readFileSync(join(dirname(group.procsPath), "cgroup.kill"), "utf8"), "1");
  });
});

describe("serverCgroupPath", () => {
  test("returns the directory of the server cgroup, also in a partly mounted hierarchy", () => {
    using whole = fakeCgroups("/box/procwire-server-1-2", {});
    assert.equal(serverCgroupPath(whole.procSelf), join(whole.mountPoint, "box/procwire-server-1-2"));
    using part = fakeCgroups("/box/7/procwire-server-1-2", {}, "/box/7");
    assert.equal(serverCgroupPath(part.procSelf), join(part.mountPoint, "procwire-server-1-2"));
  });

  test("returns null in another cgroup or below a server cgroup", () => {
    for (const own of ["/", "/box", "/procwire-server-1-2/fakeCgroups-3-4"]) {
      using fake = fakeCgroups(own, {});
      assert.equal(serverCgroupPath(fake.procSelf), null);
    }
  });
});
