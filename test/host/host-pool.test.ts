import assert from "node:assert/strict";
import { test } from "node:test";
import { HostLostError } from "../../src/exec/backend/host-errors.ts";
import type { StartParams } from "../../src/exec/exec-process.ts";
import type { ConnectedHost, ExecHost } from "../../src/host/exec-host.ts";
import { HostPool } from "../../src/host/host-pool.ts";
import { type NetworkChoice, parseNetworkWords } from "../../src/tools/network/network-rules.ts";
import { ManualClock } from "../support/manual-clock.ts";

/** A fake host whose connection tests can cut and restore; no command runs on it. */
class FakeHost implements ExecHost {
  readonly name: string;
  connects = 0;
  closes = 0;
  reachable = true;
  alive = true;
  sandboxes: string[] = [];
  onStart: (params: StartParams) => void = () => undefined;

  constructor(name: string) {
    this.name = name;
  }

  async connect(): Promise<ConnectedHost> {
    this.connects++;
    if (!this.reachable) throw new Error("refused");
    this.alive = true;
    return {
      backend: {
        start: (params) => {
          this.onStart(params);
          return Promise.reject(new Error("nothing runs here"));
        },
        list: async () => [],
      },
      cwd: "/",
      shell: "/bin/sh",
      sandboxes: this.sandboxes,
      realPath: (path) => path,
      isSandboxedPeer: () => false,
      isAlive: () => this.alive,
      attachUrl: null,
      reopenCount: () => 0,
      close: async () => {
        this.closes++;
      },
    };
  }
}

function pool(hosts: FakeHost[], clock = new ManualClock()) {
  return new HostPool({ hosts, sandbox: "none", clock });
}

test("HostPool distributes agents evenly and connects each host once", async () => {
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

test("HostPool skips an unreachable host for a while and retries it later", async () => {
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

test("HostPool replaces a permanently lost connection", async () => {
  const host = new FakeHost("a");
  await using hostPool = pool([host]);
  await (await hostPool.openTools()).close();
  host.alive = false;
  await (await hostPool.openTools()).close();
  assert.equal(host.connects, 2);
});

test("HostPool moves a row to another host until a command ran, and then fails with the name of the lost host", async () => {
  const hosts = [new FakeHost("a"), new FakeHost("b")];
  const started: string[] = [];
  for (const host of hosts) host.onStart = () => started.push(host.name);
  await using hostPool = pool(hosts);
  const opened = await hostPool.openTools();
  const run = () => {
    const tool = opened.tools.find(({ definition }) => definition.name === "exec_command") ?? assert.fail();
    return tool.call({ cmd: "true", login: false });
  };
  const [first = assert.fail()] = hosts.filter(({ connects }) => connects === 1);
  first.alive = false;
  first.reachable = false;
  assert.match((await run()).text, /nothing runs here/);
  const second = hosts.find((host) => host !== first) ?? assert.fail();
  assert.deepEqual(started, [first.name, second.name]);
  second.alive = false;
  await assert.rejects(run(), { constructor: HostLostError, message: `run command: the host ${second.name} was lost` });
  await opened.close();
});

test("HostPool replaces a lost host once for concurrent calls of an agent", async () => {
  const clock = new ManualClock();
  const hosts = [new FakeHost("a"), new FakeHost("b")];
  const started: string[] = [];
  for (const host of hosts) host.onStart = () => started.push(host.name);
  await using hostPool = pool(hosts, clock);
  const run = ({ tools }: Awaited<ReturnType<typeof hostPool.openTools>>) => {
    const tool = tools.find(({ definition }) => definition.name === "exec_command") ?? assert.fail();
    return tool.call({ cmd: "true", login: false });
  };
  const opened = await hostPool.openTools();
  const [first = assert.fail()] = hosts;
  first.alive = false;
  first.reachable = false;
  await Promise.all([run(opened), run(opened)]);
  assert.deepEqual(started, ["a", "a", "b", "b"]);
  await opened.close();
  first.reachable = true;
  await clock.advance(10_000);
  // The closed tools do not count as load of their host.
  const later = [await hostPool.openTools(), await hostPool.openTools()];
  for (const tools of later) await run(tools);
  assert.deepEqual(started.slice(4), ["a", "b"]);
  for (const tools of later) await tools.close();
});

test("HostPool reports the error of every host if none is available", async () => {
  const hosts = [new FakeHost("a"), new FakeHost("b")];
  for (const host of hosts) host.reachable = false;
  await using hostPool = pool(hosts);
  await assert.rejects(hostPool.openTools(), /^Error: no host can run commands: a: refused; b: refused$/);
});

test("HostPool rejects a sandbox that the host does not support", async () => {
  const host = new FakeHost("a");
  await using hostPool = new HostPool({ hosts: [host], sandbox: "workspace-write" });
  await assert.rejects(hostPool.openTools(), /sandbox `bubblewrap` is not available: the host supports none/);
});

test("HostPool closes its connections when it is disposed", async () => {
  const hosts = [new FakeHost("a"), new FakeHost("b")];
  const hostPool = pool(hosts);
  await (await hostPool.openTools()).close();
  await hostPool[Symbol.asyncDispose]();
  assert.deepEqual(
    hosts.map((host) => host.closes),
    [1, 0],
  );
});

test("HostPool narrows the network of one agent, and rejects network rules that a host cannot enforce", async () => {
  const host = new FakeHost("a");
  host.sandboxes = ["bubblewrap", "managed-network"];
  const network: NetworkChoice = {
    type: "managed",
    layers: [{ fallback: "deny", allow: ["**.a.test"], ask: [], deny: [], ports: null, methods: null }],
  };
  await using hostPool = new HostPool({ hosts: [host], sandbox: "read-only", network });
  const starts: StartParams[] = [];
  host.onStart = (params) => starts.push(params);
  const words = parseNetworkWords(["allow:b.a.test,other.test"], "column `net`");
  for (const narrower of [null, words]) {
    const { tools, close } = await hostPool.openTools(undefined, undefined, narrower);
    const exec = tools.find((tool) => tool.definition.name === "exec_command");
    await exec?.call({ cmd: "x", login: false });
    await close();
  }
  assert.deepEqual(
    starts.map(({ networkProxy, enforceManagedNetwork }) => [networkProxy?.proxy.domains, enforceManagedNetwork]),
    [
      [{ "**.a.test": "allow" }, true],
      [{ "b.a.test": "allow" }, true],
    ],
  );
  host.sandboxes = ["bubblewrap"];
  host.alive = false;
  await assert.rejects(hostPool.openTools(), /network rules are not available: the host cannot enforce them/);
});
