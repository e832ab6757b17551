import assert from "node:assert/strict";
import { test } from "node:test";
import { FaultProxy } from "../../support/faults/fault-proxy.ts";
import { rejectReconnect } from "../../support/faults/reject-reconnect.ts";
import { ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";
import { startMcp } from "./start-mcp.ts";

/** Tools on a server that loses their session continue in a new one. */

const NOTICE = /^Note: the server was restarted or its session expired; earlier sessions \((\d+)\) are lost/;

test("after a server restart, tools keep working and report once that earlier sessions are lost", {
  timeout: 600_000,
}, async () => {
  using scratch = scratchDirectory();
  const first = await new ServeChild(["--listen", `unix://${scratch.path}/socket`]).listening();
  await using mcp = await startMcp(["--connect", first.url]);
  const { call } = mcp;
  const started = await call("exec_command", { cmd: "sleep 60", yield_time_ms: 250 });
  const session = /session ID (\d+)/.exec(started.text)?.[1];
  process.kill(first.serverPid(), "SIGKILL");
  await first.exited;
  await using _again = await new ServeChild(["--listen", first.url]).listening();
  const next = await call("exec_command", { cmd: "echo on", login: false });
  assert.match(next.text, /\nProcess exited with code 0\n.*\non\n$/s);
  assert.equal(NOTICE.exec(next.text)?.[1], session, next.text);
  const third = await call("exec_command", { cmd: "echo on", login: false });
  assert.doesNotMatch(third.text, /gone/);
  const lost = await call("write_stdin", { session_id: Number(session) });
  assert.ok(lost.isError);
  assert.match(lost.text, /failed: exec-server transport disconnected/);
});

test("a call reports that the server is down, and a call after its return works", {
  timeout: 600_000,
}, async () => {
  using scratch = scratchDirectory();
  const first = await new ServeChild(["--listen", `unix://${scratch.path}/socket`]).listening();
  await using mcp = await startMcp(["--connect", first.url]);
  const { call } = mcp;
  await call("exec_command", { cmd: "true", login: false });
  await first.stop();
  await rejectReconnect(first.url);
  const down = await call("exec_command", { cmd: "echo on", login: false });
  assert.ok(down.isError);
  assert.match(down.text, /^exec_command failed: .*failed to open a new session: connect ENOENT /);
  await using _again = await new ServeChild(["--listen", first.url]).listening();
  assert.match((await call("exec_command", { cmd: "echo on", login: false })).text, /\non\n$/);
});

test("after its session expired, tools continue in a new one", { timeout: 600_000 }, async () => {
  await using server = await serve("--detached-session-ttl", "0");
  await using proxy = await FaultProxy.before(server.url);
  await using mcp = await startMcp(["--connect", proxy.url]);
  const { call } = mcp;
  const started = await call("exec_command", { cmd: "sleep 60", yield_time_ms: 250 });
  const session = /session ID (\d+)/.exec(started.text)?.[1];
  proxy.cut({ reset: true });
  await until("the loss is noticed", () => proxy.connections > 1);
  const next = await call("exec_command", { cmd: "echo on", login: false });
  assert.match(next.text, /\non\n$/);
  assert.equal(NOTICE.exec(next.text)?.[1], session, next.text);
});
