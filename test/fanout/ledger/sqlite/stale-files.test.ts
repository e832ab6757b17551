import assert from "node:assert/strict";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, test } from "node:test";
import { removeStaleFiles } from "../../../../src/fanout/ledger/sqlite/stale-files.ts";

describe("removeStaleFiles", () => {
  test("keeps the copied input of a process of another user, and removes that of a dead process", async (t) => {
    const home = await mkdtemp(path.join(tmpdir(), "procwire-stale-"));
    t.after(() => rm(home, { recursive: true, force: true, maxRetries: 10 }));
    for (const pid of [1000001, 1000002]) await writeFile(path.join(home, `stdin-${pid}-ab.partial`), "");
    // A test that runs as root may signal every process, so that the kernel never returns EPERM.
    t.mock.method(process, "kill", (pid: number) => {
      throw Object.assign(new Error("kill"), { code: pid === 1000001 ? "EPERM" : "ESRCH" });
    });
    assert.equal(await removeStaleFiles(home, "ledger.sqlite", Date.now()), 1);
    assert.deepEqual(await readdir(home), ["stdin-1000001-ab.partial"]);
  });
});
