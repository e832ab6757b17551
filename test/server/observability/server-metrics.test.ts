/** Metrics of a real server, scraped at `/metrics` over its socket. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { AuditLog } from "../../../src/server/audit/audit-log.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { listen } from "../../../src/server/listen/listen.ts";
import { listenForMetrics } from "../../../src/server/listen/metrics-listener.ts";
import { Histogram, ServerMetrics } from "../../../src/server/observability/server-metrics.ts";
import { startParams, WireClient, webSocketWire } from "../../support/servers/raw-connection.ts";
import { until } from "../../support/system/until.ts";

/** Every sample by its name with its labels; fails on a line that Prometheus could not read. */
function samples(text: string): Map<string, number> {
  const found = new Map<string, number>();
  const types = new Map<string, string>();
  for (const line of text.trimEnd().split("\n")) {
    const type = /^# TYPE (\w+) (counter|gauge|histogram)$/.exec(line);
    if (type) {
      assert.ok(!types.has(type[1] ?? ""), `${line} comes twice`);
      types.set(type[1] ?? "", type[2] ?? "");
      continue;
    }
    if (/^# HELP \w+ \S/.test(line)) continue;
    const sample = /^(\w+)(\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*\})? (-?[\d.e+-]+)$/.exec(line);
    assert.ok(sample, `not a sample: ${line}`);
    const [, name = "", labels = "", value] = sample;
    const family = types.has(name) ? name : name.replace(/_(bucket|sum|count)$/, "");
    assert.ok(types.has(family), `${name} has no type`);
    if (types.get(family) === "counter") assert.match(name, /_total$/);
    found.set(`${name}${labels}`, Number(value));
  }
  return found;
}

async function connected(url: string): Promise<WireClient> {
  const client = new WireClient(await webSocketWire(url));
  await client.handshake();
  return client;
}

describe("server metrics", () => {
  async function open(audit?: AuditLog) {
    const server = new ExecServer({ ...createLocalHost(), metrics: new ServerMetrics(), audit });
    const listening = await listen(server, { type: "websocket", host: "127.0.0.1", port: 0 });
    const metrics = await listenForMetrics(server, { host: "127.0.0.1", port: 0 });
    return {
      url: listening.url,
      scrape: async () => samples(await (await fetch(metrics.url)).text()),
      metricsUrl: metrics.url,
      async [Symbol.asyncDispose]() {
        metrics.close();
        const closed = listening.close();
        await server.close();
        listening.destroyPending();
        await closed;
      },
    };
  }

  test("are served after connections that the system did not accept", async (t) => {
    const createServer = t.mock.method(process.getBuiltinModule("node:http"), "createServer");
    await using server = await open();
    const [http = assert.fail()] = createServer.mock.calls.map(({ result }) => result);
    for (let count = 0; count < 2; count++) http?.emit("error", Object.assign(new Error("accept"), { code: "ENFILE" }));
    assert.equal((await server.scrape()).get("procwire_processes"), 0);
  });

  test("count started processes, their exits by reason and their output", async () => {
    await using server = await open();
    await using client = await connected(server.url);
    await client.call("process/start", startParams("one", ["/bin/sh", "-c", "echo 123456789"]));
    await client.call("process/start", startParams("two", ["/bin/sh", "-c", "kill -9 $$"]));
    await client.call("process/start", startParams("three", ["/bin/sleep", "100"]));
    const refused = await client.request("process/start", startParams("four", ["/nonexistent"]));
    assert.ok(refused.error);
    await until("two have ended", async () => (await server.scrape()).get("procwire_processes") === 1);
    const seen = await server.scrape();
    assert.equal(seen.get("procwire_processes_started_total"), 3);
    assert.equal(seen.get("procwire_process_starts_failed_total"), 1);
    assert.equal(seen.get('procwire_processes_ended_total{reason="exited"}'), 1);
    assert.equal(seen.get('procwire_processes_ended_total{reason="signaled"}'), 1);
    assert.equal(seen.get("procwire_output_bytes_total"), 10);
    assert.equal(seen.get("procwire_connections"), 1);
    assert.equal(seen.get("procwire_sessions"), 1);
    assert.equal(seen.get("procwire_spawn_duration_seconds_count"), 3);
    assert.equal(seen.get('procwire_request_duration_seconds_count{method="process/start"}'), 4);
    assert.equal(seen.get('procwire_request_duration_seconds_bucket{method="process/start",le="+Inf"}'), 4);
    assert.ok((seen.get("process_resident_memory_bytes") ?? 0) > 1e6);
    assert.ok((seen.get("process_open_fds") ?? 0) > 3);
    assert.ok(seen.has("procwire_event_loop_lag_p99_seconds"));
    await client.call("process/terminate", { processId: "three" });
    await until("it has ended too", async () => {
      const ended = (await server.scrape()).get('procwire_processes_ended_total{reason="terminated"}');
      return ended === 1;
    });
  });

  test("count both direct and ordered input", async () => {
    await using server = await open();
    await using client = await connected(server.url);
    const chunk = Buffer.from("x".repeat(1000)).toString("base64");
    const inputBytes = async () => (await server.scrape()).get("procwire_input_bytes_total");
    for (const [processId, more] of [
      ["straight", {}],
      ["ordered", { recordInput: true }],
    ] as const) {
      const script = "head -c 3000 >/dev/null; read -r _";
      const params = { ...startParams(processId, ["/bin/sh", "-c", script]), pipeStdin: true, ...more };
      await client.call("process/start", params);
      for (let round = 0; round < 3; round++) await client.call("process/write", { processId, chunk });
    }
    await until("both were given it", async () => (await inputBytes()) === 6000);
    // The count still includes ended processes.
    for (const processId of ["straight", "ordered"]) await client.call("process/terminate", { processId });
    await until("they have ended", async () => (await server.scrape()).get("procwire_processes") === 0);
    assert.equal(await inputBytes(), 6000);
  });

  test("count processes paused by a slow reader", async () => {
    await using server = await open();
    await using client = await connected(server.url);
    await client.call("process/start", startParams("flood", ["/bin/sh", "-c", "exec cat /dev/zero"]));
    client.pause();
    await until("it is held", async () => (await server.scrape()).get("procwire_processes_paused") === 1);
    assert.ok(((await server.scrape()).get("procwire_queued_bytes") ?? 0) > 0);
    client.resume();
  });

  test("are served without a token on their own listener, and elsewhere only to operators", async () => {
    await using server = await open();
    assert.equal((await fetch(server.metricsUrl.replace("/metrics", "/"))).status, 404);
    assert.equal((await fetch(server.metricsUrl, { method: "POST" })).status, 404);
    assert.equal((await fetch(`${server.url.replace("ws", "http")}/metrics`)).status, 404);
    const seen = await server.scrape();
    assert.equal(seen.get('procwire_connections_rejected_total{status="404"}'), 1);
  });

  test("are exactly the metrics that the dashboard in docs uses", async () => {
    await using server = await open(new AuditLog("/dev/null"));
    await using client = await connected(server.url);
    await client.request("environment/status", {});
    await server.scrape();
    const family = (name: string) => name.replace(/\{.*/, "").replace(/_(bucket|sum|count)$/, "");
    const text = await (await fetch(server.metricsUrl)).text();
    const exposed = new Set([...text.matchAll(/^# TYPE (\w+)/gm)].map(([, name = ""]) => name));
    const dashboard = readFileSync(new URL("../../../docs/grafana-dashboard.json", import.meta.url), "utf8");
    const shown = new Set([...dashboard.matchAll(/\b(?:procwire|process|nodejs)_\w+/g)].map(([name]) => family(name)));
    assert.deepEqual(
      [...shown].filter((name) => !exposed.has(name)),
      [],
    );
    const constant = ["procwire_build_info", "process_start_time_seconds", "procwire_connections_total"];
    assert.deepEqual(
      [...exposed].filter((name) => !shown.has(name) && !constant.includes(name)),
      [],
    );
  });

  test("count each duration once, in the first bucket that fits", () => {
    const histogram = new Histogram();
    for (const ms of [0, 0.1, 0.11, 999, 1e9]) histogram.observe(ms);
    assert.equal(histogram.count, 5);
    assert.deepEqual([histogram.counts[0], histogram.counts[1], histogram.counts.at(-1)], [2, 1, 1]);
    assert.equal(
      histogram.counts.reduce((sum, count) => sum + count, 0),
      5,
    );
  });
});
