import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { PathAppearance } from "../../../src/client/files/path-appearance.ts";
import { NodeExecServerClient } from "../../../src/client/node/node-client.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { flushEventLoop } from "../../support/system/flush-event-loop.ts";
import { until } from "../../support/system/until.ts";

test("PathAppearance wakes every waiter of a path by the server's watch, without polling", {
  timeout: 600_000,
}, async () => {
  const directory = await mkdtemp(join(tmpdir(), "procwire-missing-"));
  const server = new ExecServer(createLocalHost());
  // The client's clock does not advance, so no waiter ever polls.
  const client = await NodeExecServerClient.connectInProcess(server, { clock: new ManualClock() });
  try {
    const at = (name: string) => join(directory, name);
    const found: string[] = [];
    const wait = (name: string) => client.files.waitForPath(at(name)).then(() => found.push(name));
    const names = ["one", "two", "three", "not/yet/here"];
    const waits = Promise.all(names.map(wait));
    // A step that fails closes the client, which rejects the remaining waiters. The test reports the error of the step.
    waits.catch(() => undefined);
    // Each waiter has checked its path by now, so only the watch can wake it.
    for (let turn = 0; turn < 10; turn++) await client.files.exists(directory);
    await writeFile(at("one"), "");
    await until("one is found", () => found.includes("one"));
    await mkdir(at("not/yet"), { recursive: true });
    for (const name of ["three", "not/yet/here", "two"]) {
      await writeFile(at(name), "");
      await until(`${name} is found`, () => found.includes(name));
    }
    await waits;
  } finally {
    await client.close();
    await server.close();
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
  }
});

test("PathAppearance sets the watch again after the waiter whose path prevented it has finished", async () => {
  const present = new Set<string>();
  const watches: ((isWatching: boolean) => void)[] = [];
  const paths = new PathAppearance({
    exists: async (path) => present.has(path),
    watch: () => new Promise((resolve) => watches.push(resolve)),
    clock: new ManualClock(),
  });
  const answer = async (at: number, isWatching: boolean) => {
    watches[at]?.(isWatching);
    await flushEventLoop();
  };
  const first = paths.waitFor(["first"], undefined);
  const second = paths.waitFor(["second"], undefined);
  await answer(0, true);
  await answer(1, true);
  present.add("first");
  paths.wakeAll();
  await flushEventLoop();
  await answer(2, false);
  await first;
  // Called while the first waiter still waits for its path, which exists.
  await answer(3, false);
  assert.equal(watches.length, 5);
  await answer(4, true);
  present.add("second");
  paths.wakeAll();
  await flushEventLoop();
  await answer(5, true);
  await second;
});
