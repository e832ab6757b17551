import assert from "node:assert/strict";
import { test } from "node:test";
import { ManualClock } from "../../src/async/clock.ts";
import type { ConnectedHost, ExecHost } from "../../src/host/exec-host.ts";
import { HostPool } from "../../src/host/host-pool.ts";

/** A host that can be taken away and brought back; nothing is ever started on it. */
class FakeHost implements ExecHost {
  readonly name: string;
  connects = 0;
  closes = 0;
  reachable = true;
  alive = true;
  sandboxes: string[] = [];

  constructor(name: string) {
    this.name = name;
  }

  async connect(): Promise<ConnectedHost> {
    this.connects++;
    if (!this.reachable) throw new Error("refused");
    this.alive = true;
    return {
      backend: {
        start: () => Promise.reject(new Error("nothing runs here")),
        list: async () => [],
      },
      cwd: "/",
      shell: "/bin/sh",
      sandboxes: this.sandboxes,
      realPath: (path) => path,
      isAlive: () => this.alive,
      attachUrl: null,
      renewals: () => 0,
      close: async () => {
        this.closes++;
      },
    };
  }
}

function pool(hosts: FakeHost[], clock = new ManualClock()) {
  return new HostPool({ hosts, sandbox: "none", clock });
}

test("agents are spread evenly and each host is connected once", async () => {
  const hosts = [new FakeHost("a"), new FakeHost("b"), new FakeHost("c")];
  await using hostPool = pool(hosts);
  const opened = await Promise.all(Array.from({ length: 9 }, () => hostPool.openTools()));
  assert.deepEqual(
    hosts.map((host) => host.connects),
    [1, 1, 1],
  );
  assert.ok(opened.every(({ tools }) => tools.some((tool) => tool.definition.name === "exec_command")));
  await Promise.all(opened.map((tools) => tools.close()));
});

test("an unreachable host is skipped for a while and retried later", async () => {
  const clock = new ManualClock();
  const [gone, there] = [new FakeHost("gone"), new FakeHost("there")];
  gone.reachable = false;
  await using hostPool = pool([gone, there], clock);
  for (let row = 0; row < 4; row++) await (await hostPool.openTools()).close();
  assert.equal(gone.connects, 1);
  gone.reachable = true;
  await clock.advance(10_000);
  const first = await hostPool.openTools();
  const second = await hostPool.openTools();
  assert.equal(gone.connects, 2);
  await first.close();
  await second.close();
});

test("a connection that was lost for good is replaced by a new one", async () => {
  const host = new FakeHost("a");
  await using hostPool = pool([host]);
  await (await hostPool.openTools()).close();
  host.alive = false;
  await (await hostPool.openTools()).close();
  assert.equal(host.connects, 2);
});

test("when no host can be used, the error gives the reason of each", async () => {
  const hosts = [new FakeHost("a"), new FakeHost("b")];
  for (const host of hosts) host.reachable = false;
  await using hostPool = pool(hosts);
  await assert.rejects(hostPool.openTools(), /^Error: no host can run commands: a: refused; b: refused$/);
});

test("a sandbox that the host does not have is an error, not a run without one", async () => {
  const host = new FakeHost("a");
  await using hostPool = new HostPool({ hosts: [host], sandbox: "workspace-write" });
  await assert.rejects(hostPool.openTools(), /sandbox `bubblewrap` is not available: the host has none/);
});

test("closing the pool closes its connections", async () => {
  const hosts = [new FakeHost("a"), new FakeHost("b")];
  const hostPool = pool(hosts);
  await (await hostPool.openTools()).close();
  await hostPool[Symbol.asyncDispose]();
  assert.deepEqual(
    hosts.map((host) => host.closes),
    [1, 0],
  );
});
