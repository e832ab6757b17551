import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readMemoryLimit } from "../../../src/local/tree/cgroup-memory.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const MIB = 1024 * 1024;
const HOST_BYTES = 1024 * MIB;

/** Creates `/proc/self` and a cgroup hierarchy of plain files. `files` are relative to the mount point. */
function fakeHost(
  path: string,
  { cgroup, mount, files }: { cgroup: string; mount: string; files: Record<string, string> },
): string {
  const mountPoint = join(path, "mount");
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(mountPoint, name, ".."), { recursive: true });
    writeFileSync(join(mountPoint, name), `${text}\n`);
  }
  mkdirSync(join(path, "self"));
  writeFileSync(join(path, "self", "cgroup"), `${cgroup}\n`);
  writeFileSync(join(path, "self", "mountinfo"), `${mount.replace("MOUNT", mountPoint)}\n`);
  return join(path, "self");
}

const V1 = "30 22 0:26 / MOUNT rw - cgroup cgroup rw,memory";
const V2 = "30 22 0:26 / MOUNT rw - cgroup2 cgroup2 rw";

test("the lowest limit of the cgroup and its ancestors applies, without inactive file pages", () => {
  for (const [cgroup, mount, files] of [
    [
      "0::/a/b",
      V2,
      {
        "a/memory.max": String(400 * MIB),
        "a/memory.current": String(100 * MIB),
        "a/memory.stat": `anon 1\ninactive_file ${30 * MIB}`,
        "a/b/memory.max": "max",
        "a/b/memory.current": "1",
      },
    ],
    [
      "4:memory:/a/b\n0::/",
      V1,
      {
        "memory.limit_in_bytes": "9223372036854771712",
        "a/memory.limit_in_bytes": String(400 * MIB),
        "a/memory.usage_in_bytes": String(100 * MIB),
        "a/memory.stat": `inactive_file 1\ntotal_inactive_file ${30 * MIB}`,
        "a/b/memory.limit_in_bytes": String(900 * MIB),
      },
    ],
  ] as const) {
    using scratch = scratchDirectory();
    const limit = readMemoryLimit(fakeHost(scratch.path, { cgroup, mount, files }), HOST_BYTES);
    assert.equal(limit.bytes, 400 * MIB);
    assert.equal(limit.usedBytes?.(), 70 * MIB);
  }
});

test("a container sees its own cgroup as the root of the mount", () => {
  using scratch = scratchDirectory();
  const files = { "memory.max": String(300 * MIB), "memory.current": String(10 * MIB) };
  const mount = "30 22 0:26 /docker/1 MOUNT rw - cgroup2 cgroup2 rw";
  const limit = readMemoryLimit(fakeHost(scratch.path, { cgroup: "0::/docker/1", mount, files }), HOST_BYTES);
  assert.deepEqual([limit.bytes, limit.usedBytes?.()], [300 * MIB, 10 * MIB]);
});

test("without a limit below the memory of the host, the memory of the host applies", () => {
  const limits = ["max", String(HOST_BYTES), String(2 * HOST_BYTES)];
  for (const files of [...limits.map((limit) => ({ "memory.max": limit })), { other: "" }]) {
    using scratch = scratchDirectory();
    const limit = readMemoryLimit(fakeHost(scratch.path, { cgroup: "0::/", mount: V2, files }), HOST_BYTES);
    assert.deepEqual(limit, { bytes: HOST_BYTES, usedBytes: null });
  }
  assert.deepEqual(readMemoryLimit("/nonexistent", HOST_BYTES), { bytes: HOST_BYTES, usedBytes: null });
});

test("the limit of a mount without the memory controller of this process does not apply", () => {
  const files = { "memory.max": String(300 * MIB), "memory.limit_in_bytes": String(300 * MIB) };
  for (const mount of [V2, V1.replace("memory", "cpu"), V1.replace("- cgroup", "- ext4")]) {
    using scratch = scratchDirectory();
    const limit = readMemoryLimit(fakeHost(scratch.path, { cgroup: "4:memory:/", mount, files }), HOST_BYTES);
    assert.deepEqual(limit, { bytes: HOST_BYTES, usedBytes: null }, mount);
  }
});

test("a cgroup whose usage cannot be read uses 0 bytes", () => {
  using scratch = scratchDirectory();
  const files = { "memory.max": String(300 * MIB) };
  const limit = readMemoryLimit(fakeHost(scratch.path, { cgroup: "0::/", mount: V2, files }), HOST_BYTES);
  assert.deepEqual([limit.bytes, limit.usedBytes?.()], [300 * MIB, 0]);
});
