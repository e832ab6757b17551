import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ManualClock } from "../../../src/async/clock.ts";
import { MissingPaths } from "../../../src/client/files/path-appearance.ts";
import { ExecServerClient } from "../../../src/client/node/node-client.ts";
import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { until } from "../../support/system/until.ts";

test("all who wait for a path are woken by the server's watch, without polling", {
  timeout: 60_000,
}, async () => {
  const directory = await mkdtemp(join(tmpdir(), "procwire-missing-"));
  const server = new ExecServer(createLocalHost());
  // The client's clock stands still, so none of its waiters ever polls.
  const client = await ExecServerClient.connectInProcess(server, { clock: new ManualClock() });
  try {
    const at = (name: string) => join(directory, name);
    const found: string[] = [];
    const wait = (name: string) => client.files.waitForPath(at(name)).then(() => found.push(name));
    const names = ["one", "two", "three", "not/yet/here"];
    const waits = Promise.all(names.map(wait));
    // Each has looked and waits by now, so only the watch can tell it of its path.
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
    await rm(directory, { recursive: true, force: true });
  }
});

test("a watch that was refused for the path of a waiter who has left is asked for again", async () => {
  const present = new Set<string>();
  const watches: ((isWatching: boolean) => void)[] = [];
  const paths = new MissingPaths({
    exists: async (path) => present.has(path),
    watch: () => new Promise((resolve) => watches.push(resolve)),
    clock: new ManualClock(),
  });
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const answer = async (at: number, isWatching: boolean) => {
    watches[at]?.(isWatching);
    await settle();
  };
  const first = paths.appear(["first"], undefined);
  const second = paths.appear(["second"], undefined);
  await answer(0, true);
  await answer(1, true);
  present.add("first");
  paths.wakeAll();
  await settle();
  await answer(2, false);
  await first;
  // Asked while the first was still waiting for its path, which is there.
  await answer(3, false);
  assert.equal(watches.length, 5);
  await answer(4, true);
  present.add("second");
  paths.wakeAll();
  await settle();
  await answer(5, true);
  await second;
});
