/** The combinations of `sandbox`, `enforceManagedNetwork` and `networkProxy`, as root and as an ordinary user. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { attemptProgram, type Fixture, intent, READ_ROOT, testEscape, workspaceWrite } from "../escape/inside.ts";
import { noSandbox } from "../sandbox/sandbox-fixture.ts";
import { type Json, PROXY_ONLY, ProbedHost, probeResults } from "../support/network/network-probe.ts";
import { PROCWIRE, ServeChild } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const enabled = (): Json => intent([READ_ROOT], { network: "enabled" });
const restricted = (): Json => intent([READ_ROOT]);
const withPermissions = (permissions: Json): Json => ({ permissions, windowsSandboxLevel: "disabled" });
const UNRESTRICTED_FILES = { type: "managed", file_system: { type: "unrestricted" }, network: "enabled" };

async function probe(fixture: Fixture, host: ProbedHost, more: Json) {
  const processId = `probe-${Math.random()}`;
  const argv = ["/bin/bash", "-c", host.probe(attemptProgram())];
  const { sandboxType } = await fixture.client.start(processId, argv, more);
  const { output, exited } = await fixture.client.finished(processId);
  return { results: probeResults(output), output, exited, sandboxType };
}

for (const [name, sandbox] of [
  ["enabled network", enabled],
  ["restricted network", restricted],
  ["permissions of type disabled", () => withPermissions({ type: "disabled" })],
  ["an unrestricted file system", () => withPermissions(UNRESTRICTED_FILES)],
] as const)
  testEscape(`with ${name} an enforced process reaches its proxy only`, async (fixture) => {
    await using host = await ProbedHost.open();
    for (const tty of [false, true]) {
      const more = { sandbox: sandbox(), enforceManagedNetwork: true, networkProxy: host.networkProxy(), tty };
      const { results, output, exited, sandboxType } = await probe(fixture, host, more);
      const found = Object.fromEntries(Object.entries(results).map(([way, result]) => [way, result.trim()]));
      assert.deepEqual(found, PROXY_ONLY, output);
      assert.deepEqual([sandboxType, exited.sandboxDenied], ["linuxSeccomp", false]);
    }
    assert.deepEqual(host.requests, Array(4).fill("GET /"));
    assert.equal(host.datagrams, 0);
  });

testEscape("an enforced process in the workspace-write mode of Codex reaches its proxy only", async (fixture) => {
  await using host = await ProbedHost.open();
  const sandbox = workspaceWrite(fixture.directory, { network: "enabled" });
  const more = { sandbox, enforceManagedNetwork: true, networkProxy: host.networkProxy() };
  const limits = { openFiles: 128, cpuTimeMs: 600_000 };
  const { results, output } = await probe(fixture, host, { ...more, limits });
  assert.deepEqual(results, PROXY_ONLY, output);
});

testEscape("with enabled network and no enforcement a process reaches its proxy and the host", async (fixture) => {
  await using host = await ProbedHost.open();
  const more = { sandbox: enabled(), enforceManagedNetwork: false, networkProxy: host.networkProxy() };
  const { results, output } = await probe(fixture, host, more);
  const { allowed, socks, denied, direct, unix } = results;
  assert.deepEqual([allowed, socks, denied, direct, unix], ["200", "200", "403", "200", "ok"], output);
});

testEscape("with restricted network and no enforcement a process reaches nothing", async (fixture) => {
  await using host = await ProbedHost.open();
  const more = { sandbox: restricted(), enforceManagedNetwork: false, networkProxy: host.networkProxy() };
  const { results, output } = await probe(fixture, host, more);
  const { allowed, socks, denied, direct } = results;
  assert.deepEqual([allowed, socks, denied, direct], ["000", "000", "000", "000"], output);
  assert.deepEqual([host.requests, host.datagrams], [[], 0]);
});

testEscape("without a sandbox nothing is enforced", async (fixture) => {
  await using host = await ProbedHost.open();
  for (const sandbox of [undefined, null]) {
    const more = { sandbox, enforceManagedNetwork: true, networkProxy: host.networkProxy() };
    const { results, output, sandboxType } = await probe(fixture, host, more);
    const { allowed, socks, denied, direct } = results;
    assert.deepEqual([allowed, socks, denied, direct, sandboxType], ["200", "200", "403", "200", "none"], output);
  }
});

testEscape("an enforced process without a proxy exits with 101 and Codex's text", async (fixture) => {
  const bridge = "failed to prepare host proxy routing bridge: managed proxy mode requires";
  for (const [env, text] of [
    [{}, `${bridge} proxy environment variables\n`],
    [{ HTTP_PROXY: "http://192.0.2.1:3128" }, `${bridge} parseable loopback proxy endpoints\n`],
  ] as const)
    for (const sandbox of [enabled(), withPermissions({ type: "disabled" })]) {
      const more = { enforceManagedNetwork: true, env: { PATH: "/usr/bin:/bin", ...env } };
      const { output, exited } = await fixture.script(sandbox, "echo ran", more);
      assert.deepEqual([output, exited.exitCode, exited.sandboxDenied], [text, 101, true]);
    }
});

testEscape("an enforced process reaches the loopback proxy that its environment names", async (fixture) => {
  await using host = await ProbedHost.open();
  const env = {
    PATH: "/usr/bin:/bin",
    HTTP_PROXY: `http://127.0.0.1:${host.port}`,
    http_proxy: `localhost:${host.port}/`,
    ALL_PROXY: `socks5h://user:word@127.0.0.1:${host.port}`,
    HTTPS_PROXY: "http://192.0.2.1:3128",
  };
  const more = { enforceManagedNetwork: true, managedNetwork: { loopbackPorts: [host.port] }, env };
  const script = `echo "$HTTP_PROXY $http_proxy $ALL_PROXY $HTTPS_PROXY"; unset NO_PROXY no_proxy
    curl -sS -m 30 http://other.test/; curl -s -m 30 --noproxy '*' http://127.0.0.1:${host.port}/ || echo unreachable
    ${attemptProgram()} socket 1`;
  const { output } = await fixture.script(enabled(), script, more);
  const [variables, ...rest] = output.split("\n");
  assert.equal(
    variables,
    "http://127.0.0.1:61200 127.0.0.1:61200/ socks5h://user:word@127.0.0.1:61200 http://192.0.2.1:3128",
  );
  assert.deepEqual(rest, ["served", "unreachable", "EPERM", ""], output);
  assert.deepEqual(host.requests, ["GET http://other.test/"]);
});

testEscape("a persistent process cannot have an enforced network", async (fixture) => {
  const error = await fixture.client.refused("process/start", {
    ...{ processId: "p", argv: ["true"], cwd: "file:///", env: {}, tty: false, lifetime: "persistent" },
    ...{ sandbox: enabled(), enforceManagedNetwork: true },
  });
  assert.equal(error.code, -32602);
  assert.match(error.message, /lifetime "persistent" is not/);
});

test("a server in a nested user namespace enforces a managed network", {
  skip:
    noSandbox ||
    skipUnless(
      spawnSync("unshare", ["--user", "--map-root-user", "bwrap", "--unshare-net", "--ro-bind", "/", "/", "true"])
        .status === 0,
      "user namespaces cannot be nested on this host",
    ),
}, async () => {
  await using host = await ProbedHost.open();
  await using server = new ServeChild(["--listen", "ws://127.0.0.1:0"], {
    command: ["unshare", "--user", "--map-root-user", PROCWIRE, "serve"],
  });
  await server.listening();
  await using client = await server.connect();
  await client.handshake();
  await client.start("p", ["/bin/bash", "-c", host.probe(attemptProgram())], {
    ...{ sandbox: enabled(), enforceManagedNetwork: true, networkProxy: host.networkProxy() },
  });
  const { output } = await client.finished("p");
  assert.deepEqual(probeResults(output), PROXY_ONLY, output);
});
