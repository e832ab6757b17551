/** How a supervisor handles changes between its servers: another program, another terminal, other limits. */
import assert from "node:assert/strict";
import { chmodSync, existsSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { nativeFileCandidates } from "../../../src/native/native-files.ts";
import { startChild, TERMINAL } from "../../native/started.ts";
import { isAlive, PROCWIRE, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, persistentParams, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { until } from "../../support/system/until.ts";

const [SUPERVISOR = ""] = nativeFileCandidates("supervisor");
const OPTIONS = { timeout: 600_000, skip: NO_SUPERVISOR };

test("the next server is the program that the path then resolves to", OPTIONS, async () => {
  using directory = scratchDirectory();
  const current = join(directory.path, "procwire");
  const upgraded = join(directory.path, "upgraded");
  const wasRun = join(directory.path, "was-run");
  symlinkSync(PROCWIRE, current);
  const command: [string, ...string[]] = [current, "serve"];
  await using server = new SupervisedServer(
    await new ServeChild(["--listen", "ws://127.0.0.1:0", "--supervised"], { command }).listening(),
  );
  await using client = await server.connect();
  const persistent = await client.start(persistentParams("p", "echo up; exec sleep 300"));
  await waitFor(persistent, "up\n");
  writeFileSync(upgraded, `#!/bin/sh\n: >${wasRun}\nexec ${PROCWIRE} "$@"\n`);
  chmodSync(upgraded, 0o755);
  symlinkSync(upgraded, `${current}.new`);
  renameSync(`${current}.new`, current);
  assert.equal(existsSync(wasRun), false);
  const former = await server.serverPid([persistent.pid]);
  server.serve.child.kill("SIGHUP");
  await until("the former server to be gone", () => !isAlive(former));
  assert.equal((await client.list())[0]?.pid, persistent.pid);
  assert.ok(existsSync(wasRun));
});

test(
  "a terminal that hangs up ends the supervisor, its server and the persistent processes gracefully",
  OPTIONS,
  async () => {
    // With watchdogs, and with a supervisor that has no watchdogs.
    for (const command of [[PROCWIRE], [SUPERVISOR, PROCWIRE]]) await hangUp(command);
  },
);

async function hangUp(command: string[]): Promise<void> {
  using directory = scratchDirectory();
  const requested = join(directory.path, "requested");
  const started = await startChild([...command, "serve", "--supervised", "--listen", "ws://127.0.0.1:0"], {
    terminal: TERMINAL,
    env: { PATH: process.env.PATH ?? "/usr/bin:/bin", HOME: directory.path },
  });
  const shown = () => started.output().toString();
  await started.until(() => /ws:\S+\r\n/.test(shown()));
  await using client = await NodeExecServerClient.connectWebSocket({
    url: /ws:\S+/.exec(shown())?.[0] ?? "",
  });
  const persistent = await client.start(
    persistentParams("p", `trap 'echo >${requested}; exit' TERM; echo up; while :; do sleep 0.05; done`),
  );
  await waitFor(persistent, "up\n");
  started.child.closeStreams();
  await started.exit;
  assert.ok(existsSync(requested));
  assert.equal(isAlive(persistent.pid ?? 0), false);
}

test("the age of a persistent process is counted across servers", OPTIONS, async () => {
  await using server = await SupervisedServer.start();
  await using client = await server.connect();
  const persistent = await client.start(persistentParams("p", "exec sleep 300", { maxAgeMs: 3000 }));
  const end = persistent.wait();
  // The test kills each server before the process reaches its maximum age.
  await until("the process to be ended", async () => {
    if (!isAlive(persistent.pid ?? 0)) return true;
    await server.killServer([persistent.pid]);
    await client.list();
    return false;
  });
  assert.equal((await end).exitReason, "timeout");
});

test("a wait continues on the next server", OPTIONS, async () => {
  await using server = await SupervisedServer.start();
  await using client = await server.connect();
  const persistent = await client.start(persistentParams("p", 'read line; echo "got $line"; exec sleep 300'));
  const waiting = persistent.wait({ until: { type: "output", pattern: "got go" } });
  waiting.catch(() => undefined);
  await server.killServer([persistent.pid]);
  await persistent.write(Buffer.from("go\n"));
  assert.equal((await waiting).reason, "matched");
  await persistent.terminate();
});
