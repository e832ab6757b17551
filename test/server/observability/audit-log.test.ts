import assert from "node:assert/strict";
import { existsSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { AuditLog } from "../../../src/server/observability/audit-log.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { makePipe, scratchDirectory } from "../../support/servers/serve.ts";

const lines = (path: string): Record<string, unknown>[] =>
  readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

describe("AuditLog", () => {
  const actor = { principal: "token", session: 1 };

  test("writes one complete line per event, with principal and time", () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const log = new AuditLog(path, new ManualClock());
    log.write(actor, { event: "write", handle: "h", bytes: 3, status: "accepted" });
    log.write(null, { event: "end", handle: "h", exitCode: 0, signal: null, reason: "exited" });
    log.close();
    const [first, second] = lines(path);
    assert.deepEqual(first, {
      time: first?.time,
      principal: "token",
      session: 1,
      event: "write",
      handle: "h",
      bytes: 3,
      status: "accepted",
    });
    assert.match(String(first?.time), /^\d{4}-\d\d-\d\dT/);
    assert.equal(second?.event, "end");
    assert.equal(statSync(path).mode & 0o777, 0o600);
  });

  test("follows no link and waits for no pipe that replaces its file", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const victim = join(scratch.path, "victim");
    writeFileSync(victim, "kept");
    const clock = new ManualClock();
    const log = new AuditLog(path, clock);
    renameSync(path, `${path}.1`);
    const places = [() => symlinkSync(victim, path), () => makePipe(path)];
    for (const [index, take] of places.entries()) {
      rmSync(path, { force: true });
      take();
      await clock.advance(2_000);
      log.write(actor, { event: "write", handle: "h", bytes: index, status: "accepted" });
      assert.equal(lines(`${path}.1`).length, index + 1);
    }
    log.close();
    assert.equal(readFileSync(victim, "utf8"), "kept");
  });

  test("continues in a new file after its file was renamed, without losing a line", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const clock = new ManualClock();
    const log = new AuditLog(path, clock);
    const write = (bytes: number) => log.write(actor, { event: "write", handle: "h", bytes, status: "accepted" });
    write(1);
    renameSync(path, `${path}.1`);
    write(2);
    await clock.advance(1_000);
    write(3);
    log.close();
    assert.deepEqual(
      [...lines(`${path}.1`), ...lines(path)].map(({ bytes }) => bytes),
      [1, 2, 3],
    );
  });

  test("counts dropped lines and reports the count in the next line", () => {
    if (!existsSync("/dev/full")) throw new Error("no /dev/full here");
    const log = new AuditLog("/dev/full");
    for (let n = 0; n < 3; n++) log.write(actor, { event: "close-stdin", handle: "h", status: "accepted" });
    log.close();
    using scratch = scratchDirectory();
    assert.throws(() => new AuditLog(join(scratch.path, "missing", "audit.jsonl")), /ENOENT/);
  });
});
