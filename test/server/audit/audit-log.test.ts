import assert from "node:assert/strict";
import {
  appendFileSync,
  existsSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { loadAddon } from "../../../src/native/load-addon.ts";
import { AuditLog, type AuditLogDeps } from "../../../src/server/audit/audit-log.ts";
import { verifyAuditLog } from "../../../src/server/audit/verify-audit-log.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { makePipe, scratchDirectory } from "../../support/servers/serve.ts";

const lines = (path: string): Record<string, unknown>[] =>
  readFileSync(path, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));

const native = loadAddon();
assert.ok(native.type === "loaded");
const system = native.addon;

const actor = { principal: "token", session: 1 };
const write = (log: AuditLog, bytes: number) =>
  log.record(actor, { event: "process/write", outcome: "allowed", handle: "h", bytes });

const openLog = (path: string, deps: AuditLogDeps = {}) => new AuditLog(path, { clock: new ManualClock(), ...deps });

describe("AuditLog", () => {
  test("writes one line per event, with time, principal, outcome and the digest of the line before", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const log = openLog(path);
    write(log, 3);
    log.record(null, { event: "process/ended", handle: "h", exitCode: 0, signal: null, reason: "exited" });
    log.close();
    const [opened, first, second] = lines(path);
    assert.deepEqual([opened?.seq, opened?.prev, opened?.event], [1, "0".repeat(64), "log/opened"]);
    assert.deepEqual(first, {
      seq: 2,
      prev: first?.prev,
      time: first?.time,
      principal: "token",
      session: 1,
      event: "process/write",
      outcome: "allowed",
      handle: "h",
      bytes: 3,
    });
    assert.match(String(first?.time), /^\d{4}-\d\d-\d\dT/);
    assert.equal(second?.event, "process/ended");
    assert.equal(statSync(path).mode & 0o777, 0o600);
    assert.equal((await verifyAuditLog({ files: [path] })).type, "valid");
  });

  test("escapes control and format characters in every text, so that a line is printable", () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const log = openLog(path);
    const hostile = fc.string({
      unit: fc.oneof(
        fc.constantFrom(
          "\u009b",
          "\u0085",
          "\u202e",
          "\u2066",
          "\u200b",
          "\u2028",
          "\u2029",
          "\ufeff",
          "\u007f",
          "\u{e0041}",
        ),
        fc.constantFrom("\n", "\r", "\u0000", "\u001b", "\ud800", '"', "\\"),
        fc.integer({ min: 0x20, max: 0xd7ff }).map((code) => String.fromCodePoint(code)),
      ),
    });
    let count = 1;
    fc.assert(
      fc.property(hostile, hostile, (text, other) => {
        log.record({ principal: text }, { event: "process/start", argv: [text, other], cwd: other, reason: text });
        const written = readFileSync(path, "utf8").split("\n");
        const line = written.at(-2) ?? "";
        assert.equal(written.length, ++count + 1);
        assert.doesNotMatch(line, /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
        assert.deepEqual(JSON.parse(line).argv, [text, other]);
      }),
      { numRuns: 50 },
    );
    log.close();
  });

  test("clips long texts, and lists with many of them", () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const log = openLog(path);
    const argv = Array.from({ length: 10_000 }, () => "a".repeat(10_000));
    log.record(actor, { event: "process/start", outcome: "refused", argv, reason: "r".repeat(10_000) });
    log.close();
    const [, line] = lines(path);
    assert.match(String(line?.reason), /^r{500}… \(10000 characters\)$/);
    assert.ok(JSON.stringify(line).length < 32_000);
    assert.match(JSON.stringify(line?.argv), /"… \(\d+ more\)"\]$/);
  });

  test("follows no link and waits for no pipe that replaces its file", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const victim = join(scratch.path, "victim");
    writeFileSync(victim, "kept");
    const clock = new ManualClock();
    const log = openLog(path, { clock });
    renameSync(path, `${path}.1`);
    const places = [() => symlinkSync(victim, path), () => makePipe(path)];
    for (const [index, take] of places.entries()) {
      rmSync(path, { force: true });
      take();
      await clock.advance(2_000);
      write(log, index);
      assert.equal(lines(`${path}.1`).length, index + 2);
    }
    log.close();
    assert.equal(readFileSync(victim, "utf8"), "kept");
  });

  test("continues its chain in a new file after rotation, without losing a line", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const clock = new ManualClock();
    const log = openLog(path, { clock, system });
    write(log, 1);
    renameSync(path, `${path}.1`);
    write(log, 2);
    await clock.advance(1_000);
    write(log, 3);
    log.close();
    const files = [`${path}.1`, path];
    assert.deepEqual(
      files.flatMap(lines).map(({ bytes }) => bytes),
      [undefined, 1, 2, 3],
    );
    assert.deepEqual(await verifyAuditLog({ files }).then(({ type }) => type), "valid");
  });

  test("continues its chain after a restart, also if the file was rotated meanwhile", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    for (const bytes of [1, 2]) {
      const log = openLog(path, { system });
      write(log, bytes);
      log.close();
    }
    renameSync(path, `${path}.1`);
    writeFileSync(`${path}.0.gz`, "\u001f compressed \n\n text");
    const log = openLog(path, { system });
    write(log, 3);
    log.close();
    const result = await verifyAuditLog({ files: [`${path}.1`, path] });
    assert.ok(result.type === "valid", JSON.stringify(result));
    assert.deepEqual([result.lines, result.firstSeq, result.last.seq], [6, 1, 6]);
  });

  test("ends an incomplete line of a crash with a log/fragment line that has its digest", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const first = openLog(path);
    write(first, 1);
    first.close();
    appendFileSync(path, '{"seq":3,"prev":"00');
    assert.equal((await verifyAuditLog({ files: [path] })).type, "invalid");
    const second = openLog(path);
    write(second, 2);
    second.close();
    const texts = readFileSync(path, "utf8").trimEnd().split("\n");
    assert.deepEqual(
      texts.map((text) => /"event":"([^"]+)"/.exec(text)?.[1]),
      ["log/opened", "process/write", undefined, "log/fragment", "log/opened", "process/write"],
    );
    const result = await verifyAuditLog({ files: [path] });
    assert.ok(result.type === "valid", JSON.stringify(result));
    assert.equal(result.lines, 5);
    writeFileSync(path, readFileSync(path, "utf8").replace('"prev":"00\n', '"prev":"01\n'));
    assert.deepEqual(await verifyAuditLog({ files: [path] }), {
      type: "invalid",
      file: path,
      line: 3,
      reason: "not a line of an audit log: changed, or incomplete",
    });
  });

  test("refuses audited calls while the file cannot be written", () => {
    assert.ok(existsSync("/dev/full"));
    const log = openLog("/dev/full");
    write(log, 1);
    assert.throws(
      () => log.requireWritable("process/start"),
      /process\/start refused: .*audit log \(ENOSPC\).*--audit/,
    );
    assert.equal(log.isWritable, false);
    assert.match(log.degradedComponents().join(), /audit log cannot be written \(ENOSPC\)/);
    log.close();
    using scratch = scratchDirectory();
    assert.throws(() => openLog(join(scratch.path, "missing", "audit.jsonl")), /ENOENT/);
  });

  test("rejects a file that another server writes", () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const log = openLog(path, { system });
    assert.throws(() => openLog(path, { system }), /another server writes this file; give each server its own file/);
    log.close();
    openLog(path, { system }).close();
  });

  test("limits lines about rejected credentials, and reports the number of omitted ones", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "audit.jsonl");
    const clock = new ManualClock();
    const log = openLog(path, { clock });
    const reject = () => log.rejections.record({ event: "authentication", peer: "127.0.0.1:1", reason: "wrong" });
    for (let n = 0; n < 200; n++) reject();
    await clock.advance(60_000);
    reject();
    log.close();
    const rejected = lines(path).filter(({ event }) => event === "authentication");
    assert.equal(rejected.length, 121);
    assert.deepEqual(
      [rejected[0]?.omitted, rejected[0]?.outcome, rejected.at(-1)?.omitted],
      [undefined, "refused", 80],
    );
  });
});
