import assert from "node:assert/strict";
import { existsSync, readFileSync, renameSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { ManualClock } from "../../../src/async/clock.ts";
import { AuditLog } from "../../../src/server/observability/audit-log.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const lines = (path: string): Record<string, unknown>[] =>
  readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

describe("an audit log", () => {
  const actor = { principal: "token", session: 1 };

  test("has one whole line for each event, with principal and time", () => {
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

  test("goes on in a new file when its file was moved, and loses no line", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const clock = new ManualClock();
    const log = new AuditLog(path, clock);
    const write = (bytes: number) =>
      log.write(actor, { event: "write", handle: "h", bytes, status: "accepted" });
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

  test("counts the lines it could not write, and says so with the next", () => {
    if (!existsSync("/dev/full")) throw new Error("no /dev/full here");
    const log = new AuditLog("/dev/full");
    for (let n = 0; n < 3; n++) log.write(actor, { event: "close-stdin", handle: "h", status: "accepted" });
    log.close();
    using scratch = scratchDirectory();
    assert.throws(() => new AuditLog(join(scratch.path, "missing", "audit.jsonl")), /ENOENT/);
  });
});
