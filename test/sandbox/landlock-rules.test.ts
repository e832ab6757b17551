import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { SandboxPolicy } from "../../src/sandbox/bubblewrap.ts";
import { landlockWritablePaths } from "../../src/sandbox/landlock-rules.ts";

const READ_ONLY: SandboxPolicy = {
  roots: [{ path: "/", access: "read" }],
  cwd: "/",
  network: false,
  tmp: "private",
  devices: "minimal",
};

describe("the Landlock rules of a sandbox", () => {
  test("of mode read-only allow writing to devices, process entries and the private /tmp", () => {
    assert.deepEqual(landlockWritablePaths(READ_ONLY), ["/dev", "/proc", "/tmp"]);
    assert.deepEqual(landlockWritablePaths({ ...READ_ONLY, tmp: { directory: "/var/tmp/x" } }), [
      "/dev",
      "/proc",
      "/tmp",
    ]);
    assert.deepEqual(landlockWritablePaths({ ...READ_ONLY, tmp: "shared" }), ["/dev", "/proc"]);
  });

  test("of mode workspace-write also allow writing below the writable roots", () => {
    const roots: SandboxPolicy["roots"] = [
      ...READ_ONLY.roots,
      { path: "/srv/project", access: "write" },
      { path: "/srv/project/.git", access: "read" },
      { path: "/srv/project/secret", access: "deny" },
      { path: "/tmp", access: "write" },
    ];
    assert.deepEqual(landlockWritablePaths({ ...READ_ONLY, roots }), ["/dev", "/proc", "/tmp", "/srv/project"]);
  });

  test("do not exist if the command may write everywhere", () => {
    assert.equal(landlockWritablePaths({ ...READ_ONLY, roots: [{ path: "/", access: "write" }] }), null);
  });
});
