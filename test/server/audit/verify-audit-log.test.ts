import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AuditLog } from "../../../src/server/audit/audit-log.ts";
import { verifyAuditLog } from "../../../src/server/audit/verify-audit-log.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const LINES = 12;

/** Writes a log of `LINES` lines, and returns them. */
function writeLog(path: string): string[] {
  const log = new AuditLog(path);
  for (let bytes = 1; bytes < LINES; bytes++)
    log.record({ principal: "local", session: 1 }, { event: "process/write", outcome: "allowed", bytes });
  log.close();
  return readFileSync(path, "utf8").split("\n").slice(0, -1);
}

const toText = (lines: readonly string[]) => lines.map((line) => `${line}\n`).join("");

describe("verifyAuditLog", () => {
  test("finds a change of any byte", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    writeLog(path);
    const original = readFileSync(path);
    const intact = await verifyAuditLog({ files: [path] });
    assert.ok(intact.type === "valid");
    const { digest: lastDigest } = intact.last;
    await fc.assert(
      fc.asyncProperty(fc.nat(original.length - 1), fc.integer({ min: 1, max: 255 }), async (at, change) => {
        const changed = Buffer.from(original);
        changed[at] = (changed[at] ?? 0) ^ change;
        writeFileSync(path, changed);
        const result = await verifyAuditLog({ files: [path], lastDigest });
        assert.ok(result.type === "invalid");
        const line = original.subarray(0, at).filter((byte) => byte === 0x0a).length + 1;
        // Bytes of a line break belong to both lines.
        assert.ok(result.line === line || result.line === line + 1, `changed line ${line}, found ${result.line}`);
      }),
      { numRuns: 150 },
    );
  });

  test("finds removed, duplicated, moved and foreign lines, and names the first one", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const lines = writeLog(path);
    const intact = await verifyAuditLog({ files: [path] });
    assert.ok(intact.type === "valid");
    assert.equal(intact.lines, LINES);
    const { digest: lastDigest } = intact.last;
    const tampering = fc.oneof(
      fc.record({ type: fc.constant("remove" as const), at: fc.nat(LINES - 1), to: fc.constant(0) }),
      fc.record({ type: fc.constant("duplicate" as const), at: fc.nat(LINES - 1), to: fc.nat(LINES) }),
      fc.record({ type: fc.constant("move" as const), at: fc.nat(LINES - 1), to: fc.nat(LINES - 1) }),
      fc.record({ type: fc.constant("insert" as const), at: fc.nat(LINES), to: fc.constant(0) }),
    );
    await fc.assert(
      fc.asyncProperty(tampering, async ({ type, at, to }) => {
        const changed = [...lines];
        const line = lines[at] ?? "";
        if (type === "remove" || type === "move") changed.splice(at, 1);
        if (type === "move" || type === "duplicate") changed.splice(to, 0, line);
        if (type === "insert") changed.splice(at, 0, '{"event":"process/start"}');
        fc.pre(toText(changed) !== toText(lines));
        writeFileSync(path, toText(changed));
        const result = await verifyAuditLog({ files: [path], lastDigest });
        // Without its first line, a log looks like a log without its earlier files.
        if (type === "remove" && at === 0) assert.ok(result.type === "valid" && result.firstSeq === 2);
        else assert.equal(result.type, "invalid", `${type} ${at} ${to}`);
      }),
      { numRuns: 100 },
    );
    writeFileSync(path, toText(lines.toSpliced(4, 2)));
    assert.deepEqual(await verifyAuditLog({ files: [path] }), {
      type: "invalid",
      file: path,
      line: 5,
      reason: "lines are missing before seq 7: expected seq 5",
    });
  });

  test("finds a cut end by the last digest, and by the last line of the sink", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const sinkFile = join(scratch.path, "auth.log");
    const lines = writeLog(path);
    const intact = await verifyAuditLog({ files: [path] });
    assert.ok(intact.type === "valid");
    const { digest: lastDigest } = intact.last;
    writeFileSync(sinkFile, `${lines.map((line) => `Nov 17 10:00:00 host procwire[7]: ${line}\n`).join("")}other\n`);
    assert.equal((await verifyAuditLog({ files: [path], lastDigest, sinkFile })).type, "valid");
    writeFileSync(path, toText(lines.slice(0, -2)));
    assert.equal((await verifyAuditLog({ files: [path] })).type, "valid");
    for (const comparison of [{ lastDigest }, { sinkFile }]) {
      const result = await verifyAuditLog({ files: [path], ...comparison });
      assert.ok(result.type === "invalid");
      assert.equal(result.line, LINES - 2);
      assert.match(result.reason, /end was cut|log ends at seq 10, but .*auth\.log has seq 12/);
    }
    writeFileSync(path, toText(lines.with(-1, (lines.at(-1) ?? "").replace('"bytes":11', '"bytes":12'))));
    const changed = await verifyAuditLog({ files: [path], sinkFile });
    assert.ok(changed.type === "invalid" && changed.line === LINES);
  });
});
