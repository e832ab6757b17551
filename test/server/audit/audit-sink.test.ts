import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { loadAddon } from "../../../src/native/load-addon.ts";
import { AuditLog } from "../../../src/server/audit/audit-log.ts";
import { AuditSink, type AuditSinkAddress, parseSinkAddress } from "../../../src/server/audit/audit-sink.ts";
import { verifyAuditLog } from "../../../src/server/audit/verify-audit-log.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { DatagramReceiver, whyNoDatagramReceiver } from "../../support/servers/datagram-receiver.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

const missing = whyNoDatagramReceiver();
const skip = skipUnless(missing === null, missing ?? "");

const native = loadAddon();
assert.ok(native.type === "loaded");
const system = native.addon;

function openLog(path: string, address: AuditSinkAddress) {
  const clock = new ManualClock();
  const sink = new AuditSink(address, system, clock);
  const log = new AuditLog(path, { clock, sink, system });
  const write = (bytes: number) =>
    log.record({ principal: "local", session: 1 }, { event: "process/write", outcome: "allowed", bytes });
  const lines = () => readFileSync(path, "utf8").split("\n").slice(0, -1);
  return { clock, sink, log, write, lines };
}

describe("AuditSink", { skip }, () => {
  test("sends each line as a datagram; records the lines that a missing receiver did not get", async () => {
    using scratch = scratchDirectory();
    const socket = join(scratch.path, "sink");
    const { clock, log, write, lines } = openLog(join(scratch.path, "audit.jsonl"), { type: "unix", path: socket });
    write(1);
    assert.match(log.degradedComponents().join(), /audit sink .*sink is unavailable \(ENOENT\); \d lines dropped/);
    {
      await using receiver = await DatagramReceiver.at(socket);
      await clock.advance(20_000);
      write(2);
      await until("the datagrams arrive", () => receiver.lines.length === 2);
      assert.deepEqual(receiver.lines, lines().slice(-2));
      assert.match(receiver.lines[1] ?? "", /"event":"log\/sinkDropped","lines":\d/);
      assert.deepEqual(log.degradedComponents(), []);
    }
    const dropped = log.droppedSinkLines ?? 0;
    write(3);
    assert.equal(log.droppedSinkLines, dropped + 1);
    // The receiver was restarted: the next line arrives.
    await using receiver = await DatagramReceiver.at(socket);
    await clock.advance(1_000);
    write(4);
    await until("the datagram arrives", () => receiver.lines.length > 0);
    assert.match(receiver.lines[0] ?? "", /"bytes":4/);
    log.close();
  });

  test("drops lines instead of waiting for a receiver that does not read", async () => {
    using scratch = scratchDirectory();
    const socket = join(scratch.path, "sink");
    await using _ = await DatagramReceiver.at(socket, { isBlocked: true });
    const path = join(scratch.path, "audit.jsonl");
    const { log, write, sink } = openLog(path, { type: "unix", path: socket });
    for (let n = 0; n < 2_000; n++) write(n);
    assert.equal(sink.failure, "EAGAIN");
    assert.ok(sink.dropped > 0);
    log.close();
    const result = await verifyAuditLog({ files: [path] });
    assert.ok(result.type === "valid" && result.lines >= 2_001);
  });

  test("adds the header of a syslog message", async () => {
    using scratch = scratchDirectory();
    const socket = join(scratch.path, "log");
    await using receiver = await DatagramReceiver.at(socket);
    const { log, lines } = openLog(join(scratch.path, "audit.jsonl"), { type: "syslog", path: socket });
    await until("the datagram arrives", () => receiver.lines.length === 1);
    const [, line] =
      /^<86>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d procwire\[\d+\]: (.*)$/.exec(receiver.lines[0] ?? "") ?? [];
    assert.equal(line, lines()[0]);
    log.close();
  });

  test("has an absolute path or is syslog", () => {
    assert.deepEqual(parseSinkAddress("syslog"), { type: "syslog", path: "/dev/log" });
    assert.deepEqual(parseSinkAddress("unix:///run/audit"), { type: "unix", path: "/run/audit" });
    for (const text of ["", "unix://", "unix://relative", "tcp://host", "/run/audit"])
      assert.equal(parseSinkAddress(text), null);
  });
});
