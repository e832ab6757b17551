import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ManualClock } from "../../src/async/clock.ts";
import { ExecServerClient } from "../../src/client/node/socket-client.ts";
import { createLocalHost } from "../../src/host/local-host.ts";
import { ExecServer } from "../../src/server/exec-server.ts";
import { until } from "../support/until.ts";

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
