import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { NetworkDecision } from "../../../src/protocol/network/network-schemas.ts";
import { AuditLog } from "../../../src/server/audit/audit-log.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { NetworkLog } from "../../../src/server/network/network-log.ts";
import { ServerMetrics } from "../../../src/server/observability/server-metrics.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { policy } from "../../support/network/network-config.ts";
import { FakeHost } from "../../support/servers/fake-host.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

const decided = (host: string, more: Partial<NetworkDecision> = {}): NetworkDecision => ({
  timestamp: "2026-01-01T00:00:00.000Z",
  scope: "domain",
  decision: "deny",
  source: "baseline_policy",
  reason: "not_allowed",
  protocol: "https_connect",
  host,
  port: 443,
  client: "127.0.0.1:1",
  policyOverride: false,
  ...more,
});

const networkProxy = { proxy: policy({ domains: { "good.test": "allow" } }) };

async function setUp(auditFile: string) {
  const host = new FakeHost();
  const audit = new AuditLog(auditFile, { clock: new ManualClock() });
  const server = new ExecServer({ ...host, metrics: new ServerMetrics(), audit });
  const connection = server.connectInProcess({ onNotification: () => undefined, onDisconnect: () => undefined });
  await connection.call("initialize", { clientName: "x", extensions: ["started"] });
  connection.initialized();
  const start = async (processId: string, more = {}) => {
    const params = { processId, argv: ["x"], cwd: "file:///tmp", env: {}, tty: false, ...more };
    const { handle = "" } = await connection.call("process/start", params);
    return { handle, process: host.process(processId) };
  };
  return { server, audit, connection, start };
}

describe("network decisions of a process", () => {
  test("are listed once per target and decision, with a count", async () => {
    using scratch = scratchDirectory();
    const { connection, start, audit } = await setUp(join(scratch.path, "audit.jsonl"));
    const { process, handle } = await start("p", { networkProxy });
    for (let count = 0; count < 3; count++) process.params.onNetworkDecision?.(decided("other.test"));
    process.params.onNetworkDecision?.(decided("good.test", { decision: "allow", reason: "allow" }));
    const { connections, omitted } = await connection.call("process/connections", { handle });
    assert.deepEqual(
      connections.map(({ lastAtMs, ...rest }) => rest),
      [
        { decision: "deny", reason: "not_allowed", protocol: "https_connect", host: "other.test", port: 443, count: 3 },
        { decision: "allow", reason: "allow", protocol: "https_connect", host: "good.test", port: 443, count: 1 },
      ],
    );
    assert.ok(connections.every(({ lastAtMs }) => lastAtMs > 0));
    assert.equal(omitted, 0);
    audit.close();
  });

  test("are empty for a process without a network policy", async () => {
    using scratch = scratchDirectory();
    const { connection, start, audit } = await setUp(join(scratch.path, "audit.jsonl"));
    const { handle, process } = await start("p");
    assert.equal(process.params.onNetworkDecision, undefined);
    assert.deepEqual(await connection.call("process/connections", { handle }), { connections: [], omitted: 0 });
    audit.close();
  });

  test("are counted in the metrics, without texts that a client chose", async () => {
    using scratch = scratchDirectory();
    const { server, start, audit } = await setUp(join(scratch.path, "audit.jsonl"));
    const { process } = await start("p", { networkProxy });
    for (let count = 0; count < 2; count++) process.params.onNetworkDecision?.(decided("other.test"));
    process.params.onNetworkDecision?.(decided("other.test", { reason: 'said "no"\n', source: "decider" }));
    process.params.onNetworkDecision?.(decided("good.test", { decision: "allow", reason: "allow" }));
    const lines = server.metricsText()?.match(/^procwire_network_decisions_total.*$/gm);
    assert.deepEqual(lines, [
      'procwire_network_decisions_total{decision="deny",reason="not_allowed"} 2',
      'procwire_network_decisions_total{decision="deny",reason="other"} 1',
      'procwire_network_decisions_total{decision="allow",reason="allow"} 1',
    ]);
    audit.close();
  });

  test("have one line per target and decision in the audit log", async () => {
    using scratch = scratchDirectory();
    const file = join(scratch.path, "audit.jsonl");
    const { start, audit } = await setUp(file);
    const { process, handle } = await start("p", { networkProxy });
    for (let count = 0; count < 3; count++) process.params.onNetworkDecision?.(decided("other.test"));
    process.params.onNetworkDecision?.(decided("good.test", { decision: "allow", reason: "allow" }));
    audit.close();
    const lines: Record<string, unknown>[] = readFileSync(file, "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    const network = lines.filter(({ event }) => event === "process/network");
    assert.deepEqual(
      network.map(({ outcome, processId, handle, target, mode, reason }) => [
        outcome,
        processId,
        handle,
        target,
        mode,
        reason,
      ]),
      [
        ["refused", "p", handle, "other.test:443", "https_connect", "not_allowed"],
        ["allowed", "p", handle, "good.test:443", "https_connect", "allow"],
      ],
    );
  });
});

describe("NetworkLog", () => {
  test("bounds its targets and counts the others", () => {
    const log = new NetworkLog(() => 1);
    for (let host = 0; host < 1000; host++) log.add(decided(`h${host}.test`));
    const { connections, omitted } = log.list();
    assert.deepEqual([connections.length, omitted], [200, 800]);
  });

  test("reports earlier and later targets to its listener", () => {
    const log = new NetworkLog(() => 1);
    const seen: string[] = [];
    log.add(decided("a.test"));
    log.listen(({ host }) => seen.push(host));
    log.add(decided("b.test"));
    log.add(decided("a.test"));
    assert.deepEqual(seen, ["a.test", "b.test"]);
  });
});
