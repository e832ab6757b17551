import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { promisify } from "node:util";
import { NO_ADDON } from "../native/started.ts";

const folder = mkdtempSync(join(tmpdir(), "procwire-orphans-"));
after(() => rmSync(folder, { recursive: true, force: true }));

describe("orphans of a server's processes", { skip: NO_ADDON }, () => {
  it("are adopted, reaped one by one, ended with it, and reported; other children are left alone", async () => {
    // In a program of its own: being a subreaper changes the whole program.
    const places = ["terminate-", "shutdown-"].map((name) => mkdtempSync(join(folder, name)));
    const fixture = join(import.meta.dirname, "..", "fixtures", "native", "subreaper.ts");
    const { stdout } = await promisify(execFile)(process.execPath, [fixture, ...places]);
    const told = Object.assign(
      {},
      ...stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)),
    );
    assert.deepEqual(told.terminate, { running: true });
    assert.deepEqual(told.aliveAfterTerminate, []);
    assert.equal(told.other, 12);
    assert.deepEqual(told.aliveAfterShutdown, []);
    assert.equal(told.bystander, true);
    // It belongs to no known process, and is reported for that reason.
    const names = told.ended.map(({ name }: { name: string }) => name);
    assert.ok(names.includes("unmarked"), String(names));
    assert.ok(!names.includes("daemon"), String(names));
    assert.equal(told.children, 0);
  });
});
