import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { readdirSync, readlinkSync } from "node:fs";
import { createServer } from "node:net";
import { isObject } from "../../src/base/type-guards.ts";
import { policy } from "../support/network/network-config.ts";
import { ProbedHost } from "../support/network/network-probe.ts";
import { until } from "../support/system/until.ts";
import { attemptProgram, type Fixture, intent, type Json, READ_ROOT, startParams, testEscape } from "./inside.ts";

const CURL = "curl -sS -m 30 -o /dev/null -w '%{http_code}\\n'";

/** A start whose process may reach 127.0.0.1 through its proxy, and nothing else. */
const managed = (domains: Record<string, "allow" | "deny"> = { "127.0.0.1": "allow" }): Json => ({
  enforceManagedNetwork: true,
  networkProxy: { proxy: policy({ domains, allowLocalBinding: true }) },
});

const sandbox = () => intent([READ_ROOT], { network: "enabled" });
const script = (fixture: Fixture, text: string, more: Json = {}) =>
  fixture.script(sandbox(), text, { ...managed(), ...more });
async function attempt(fixture: Fixture, ...args: string[]): Promise<string> {
  const { output } = await fixture.run(sandbox(), [attemptProgram(), ...args], managed());
  return output.trim();
}

testEscape("a managed process without proxy variables reaches nothing", async (fixture) => {
  await using host = await ProbedHost.open();
  const url = `http://127.0.0.1:${host.port}/`;
  const { output } = await script(fixture, `env -i ${CURL} ${url} 2>&1; ${CURL} --noproxy '*' ${url} 2>&1`);
  assert.equal(output.match(/^000$/gm)?.length, 2, output);
  assert.deepEqual(host.requests, []);
  // Its proxy is still reachable at the port that the variables named, and judges every request.
  const judged = await script(fixture, `env -i ${CURL} -x http://127.0.0.1:61128 http://127.0.0.2:${host.port}/`);
  assert.equal(judged.output, "403\n");
  assert.deepEqual(host.requests, []);
});

testEscape("a managed process sends no datagram to the host and cannot look up names itself", async (fixture) => {
  await using host = await ProbedHost.open();
  assert.equal(await attempt(fixture, "datagram", "127.0.0.1", `${host.udpPort}`), "ok", "stays in the namespace");
  for (const address of ["192.0.2.1", "2001:db8::1"])
    assert.equal(await attempt(fixture, "datagram", address, "53"), "ENETUNREACH");
  const { output } = await script(fixture, "getent hosts procwire.invalid; echo $?");
  assert.equal(output, "2\n");
  assert.equal(host.datagrams, 0);
});

testEscape("a managed process reaches no listener of the host over IPv6", async (fixture) => {
  const server = createServer((socket) => socket.end("reached\n")).listen(0, "::1");
  const udp = createSocket("udp6").bind(0, "::1");
  let datagrams = 0;
  udp.on("message", () => datagrams++);
  await Promise.all([once(server, "listening"), once(udp, "listening")]);
  try {
    const address = server.address();
    assert.ok(typeof address === "object" && address);
    const { output } = await script(fixture, `{ cat </dev/tcp/::1/${address.port}; } 2>/dev/null; echo $?`);
    assert.equal(output, "1\n");
    await attempt(fixture, "datagram", "::1", `${udp.address().port}`);
    assert.equal(datagrams, 0);
  } finally {
    server.close();
    udp.close();
  }
});

testEscape("a managed process creates no raw, packet, netlink or Unix socket", async (fixture) => {
  const [unix, inet, inet6, netlink, packet, vsock] = ["1", "2", "10", "16", "17", "40"];
  const [stream, raw] = ["1", "3"];
  for (const family of [inet, inet6]) {
    assert.equal(await attempt(fixture, "socket", family, stream), "ok");
    assert.equal(await attempt(fixture, "socket", family, raw), "EPERM");
  }
  for (const family of [unix, netlink, packet, vsock])
    for (const type of [stream, raw]) assert.equal(await attempt(fixture, "socket", family, type), "EPERM");
  assert.equal(await attempt(fixture, "io_uring"), "EPERM");
});

testEscape("a managed process reaches no Unix socket of the host, by path or abstract", async (fixture) => {
  const path = `${fixture.directory}/service.sock`;
  const name = `procwire-managed-${process.pid}-${fixture.user.uid}`;
  const servers = [path, `\0${name}`].map((at) => createServer((socket) => socket.end("secret\n")).listen(at));
  await Promise.all(servers.map((server) => once(server, "listening")));
  try {
    for (const target of [path, `@${name}`]) assert.equal(await attempt(fixture, "connect", target), "EPERM");
    for (const type of ["2", "3"])
      for (const how of ["connect", "sendto"]) assert.equal(await attempt(fixture, "pair", type, how, path), "EPERM");
  } finally {
    for (const server of servers) server.close();
  }
});

testEscape("a managed process enters no other network namespace", async (fixture) => {
  assert.equal(await attempt(fixture, "setns", "/proc/1/ns/net"), "EPERM");
  assert.equal(await attempt(fixture, "unshare-net"), "EPERM");
  assert.equal(await attempt(fixture, "unshare"), "EPERM");
  assert.equal(await attempt(fixture, "ptrace"), "EPERM");
});

testEscape("a managed process inherits no listener and no channel, nor does a process around it", async (fixture) => {
  for (const tty of [false, true]) {
    const { output } = await script(fixture, "ls -l /proc/self/fd /proc/1/fd /proc/$$/fd 2>/dev/null", { tty });
    assert.doesNotMatch(output, /socket:/);
    assert.doesNotMatch(output, /sandbox-listeners/);
    // `ls` sorts its arguments.
    const own = output.slice(output.indexOf("/proc/self/fd"));
    assert.deepEqual(
      [...own.matchAll(/ (\d+) -> /g)].map(([, fd]) => fd),
      ["0", "1", "2", "3"],
      output,
    );
  }
});

testEscape("a managed process reaches neither its server nor the proxy of another process", async (fixture) => {
  await using host = await ProbedHost.open();
  const serverPort = new URL(fixture.server.url).port;
  // The proxy of an unsandboxed process listens on the host.
  const other = `other-${fixture.user.uid}`;
  await fixture.client.start(other, ["/bin/sh", "-c", "echo $HTTP_PROXY; exec sleep 1000"], {
    networkProxy: { proxy: policy({ domains: { "127.0.0.1": "allow" } }) },
  });
  await fixture.client.outputContains(other, "http://127.0.0.1:");
  const otherProxy = fixture.client.output(other).trim();
  for (const url of [`http://127.0.0.1:${serverPort}/healthz`, `${otherProxy}/`]) {
    const { port } = new URL(url);
    const { output } = await script(
      fixture,
      `${CURL} --noproxy '' ${url}
       ${CURL} --noproxy '' -p ${url} 2>/dev/null
       ${CURL} --noproxy '' -x "$ALL_PROXY" ${url} 2>/dev/null
       ${CURL} --noproxy '*' ${url} 2>/dev/null
       curl -sS -m 30 --noproxy '' ${url} | head -c 300`,
    );
    const [plain, ...rest] = output.split("\n");
    assert.equal(plain, "403", `${port}: ${output}`);
    assert.deepEqual(rest.slice(0, 3), ["000", "000", "000"], output);
  }
  // The same variables in the environment, without `networkProxy`: the server refuses to route to itself.
  const env = { PATH: "/usr/bin:/bin", HTTP_PROXY: `http://127.0.0.1:${serverPort}` };
  const routed = await fixture.script(sandbox(), `${CURL} http://127.0.0.1:${serverPort}/healthz 2>/dev/null`, {
    enforceManagedNetwork: true,
    env,
  });
  assert.equal(routed.output, "000\n");
  await fixture.client.call("process/terminate", { processId: other });
  assert.deepEqual(host.requests, []);
});

testEscape("the server holds no listener of a managed process that has ended", async (fixture) => {
  const { output: server } = await fixture.run(null, ["/bin/sh", "-c", "echo $PPID"]);
  const countSockets = () =>
    readdirSync(`/proc/${server.trim()}/fd`).filter((fd) => readlinkOrEmpty(server.trim(), fd).startsWith("socket:"))
      .length;
  await script(fixture, "true");
  const before = countSockets();
  for (const text of ["true", "exit 3", `exec 9<>/dev/tcp/127.0.0.1/61128; kill -9 $$`]) await script(fixture, text);
  await until("its sockets to close", () => countSockets() <= before);
});

testEscape(
  "a server without the addon rejects a managed network with a sandbox, and does not offer it",
  async (fixture) => {
    const start = startParams("p", ["/bin/true"], { ...managed(), sandbox: sandbox() });
    const error = await fixture.client.refused("process/start", start);
    assert.equal(error.code, -32602);
    assert.match(error.message, /^sandbox intent cannot be enforced on this executor: a managed network requires/);
    assert.deepEqual(await networkCapabilities(fixture), [false, false]);
  },
  { env: { PROCWIRE_NATIVE_SPAWNER: "/nowhere/spawner.node" } },
);

testEscape(
  "a server that enforces a managed network offers it to the Codex client in the handshake",
  async (fixture) => {
    assert.deepEqual(await networkCapabilities(fixture), [true, true]);
  },
);

async function networkCapabilities(fixture: Fixture): Promise<unknown[]> {
  await using client = await fixture.server.connect();
  const { environmentInfo } = await client.handshake({ clientName: "codex-environment" });
  assert.ok(isObject(environmentInfo) && isObject(environmentInfo.capabilities));
  const { networkProxyLaunch, networkProxyReviewDomains } = environmentInfo.capabilities;
  return [networkProxyLaunch, networkProxyReviewDomains];
}

function readlinkOrEmpty(pid: string, fd: string): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`);
  } catch {
    return "";
  }
}
