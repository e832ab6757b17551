/** Checks the metrics of a real server with Prometheus's own checker. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { sh } from "../support/servers/raw-connection.ts";
import { ServeChild } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const isThere = spawnSync("promtool", ["--version"]).error === undefined;
const skip = skipUnless(isThere, "promtool is missing; `npm run setup:debian -- prometheus` installs it");

test("promtool reports no problem in the response of /metrics", { skip }, async () => {
  await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--metrics"]).listening();
  await using client = await server.connect();
  await client.handshake();
  // These requests give samples to counters by reason and by status, and to histograms by method.
  await client.start("p", sh("echo done"));
  await client.finished("p");
  const base = server.url.replace(/^ws/, "http");
  assert.equal((await fetch(`${base}/nothing`)).status, 404);
  const text = await (await fetch(`${base}/metrics`)).text();
  assert.match(text, /procwire_processes_ended_total\{reason="exited"\} 1/);
  const { status, stdout, stderr } = spawnSync("promtool", ["check", "metrics"], { input: text });
  assert.equal(status, 0, `${stdout}${stderr}`);
});
