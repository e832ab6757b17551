import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { describe, test } from "node:test";
import { whyNoStrace } from "../support/faults/injected-faults.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const noStrace = whyNoStrace();
const fixture = join(import.meta.dirname, "..", "fixtures", "native", "start-three.ts");

describe("starting a program where the kernel or an emulator refuses vfork", {
  skip: skipUnless(noStrace === null, `REFUSED VFORKS ARE NOT TESTED: ${noStrace}`),
}, () => {
  test("falls back to fork, with the same results", () => {
    // Only the addon calls clone, because Node creates threads with clone3. The first call of the addon's thread fails.
    const inject = ["-f", "-qq", "-e", "trace=clone", "-e", "inject=clone:error=EINVAL:when=1"];
    const { stdout, stderr } = spawnSync("strace", [...inject, process.execPath, fixture], {
      encoding: "utf8",
    });
    assert.match(stderr, /CLONE_VFORK.*\(INJECTED\)/);
    assert.match(stderr, /flags=SIGCHLD\b/, "a plain fork follows");
    assert.deepEqual(JSON.parse(stdout), ["hello, exit 3", "ENOENT execve", "hello, exit 3"]);
  });
});
