/** Enforcement of the managed network by the real exec-server and by this one, side by side. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { uriFromPath } from "../src/protocol/path-uri.ts";
import { attemptProgram, intent, READ_ROOT } from "../test/escape/inside.ts";
import { noSandbox } from "../test/sandbox/sandbox-fixture.ts";
import { type Json, PROXY_ONLY, ProbedHost, probeResults } from "../test/support/network/network-probe.ts";
import { WireClient, webSocketWire } from "../test/support/servers/raw-connection.ts";
import { ServeChild } from "../test/support/servers/serve.ts";
import { codexHome, networkProfile, noCodex, runCodex } from "./codex-run.ts";

const CODEX = fileURLToPath(new URL("./node_modules/.bin/codex", import.meta.url));
const skip = noCodex || noSandbox;

interface Opened extends AsyncDisposable {
  url: string;
}

/** Starts `procwire serve` in its own process, because a proxy refuses connections to the listeners of its server. */
async function openProcwire(): Promise<Opened> {
  const server = new ServeChild(["--listen", "ws://127.0.0.1:0"]);
  await server.listening();
  return { url: server.url, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

async function openCodex(home: string): Promise<Opened> {
  const child: ChildProcess = spawn(CODEX, ["exec-server", "--listen", "ws://127.0.0.1:0"], {
    env: { PATH: process.env.PATH, HOME: home, CODEX_HOME: join(home, ".codex") },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const exited = once(child, "exit");
  assert.ok(child.stdout);
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  return {
    url: String(line),
    async [Symbol.asyncDispose]() {
      child.kill();
      await exited;
    },
  };
}

const withPermissions = (permissions: Json): Json => ({ permissions, windowsSandboxLevel: "disabled" });
const enabled = () => intent([READ_ROOT], { network: "enabled" });
const UNRESTRICTED = { type: "managed", file_system: { type: "unrestricted" }, network: "enabled" };

interface Row {
  title: string;
  sandbox: () => Json | null;
  enforce: boolean;
  hasProxy?: boolean;
  env?: (host: ProbedHost) => Record<string, string>;
}

/** The rows of the table, each one start. */
const ROWS: readonly Row[] = [
  { title: "enabled network, enforced", sandbox: enabled, enforce: true },
  { title: "restricted network, enforced", sandbox: () => intent([READ_ROOT]), enforce: true },
  { title: "enabled network, not enforced", sandbox: enabled, enforce: false },
  { title: "restricted network, not enforced", sandbox: () => intent([READ_ROOT]), enforce: false },
  { title: "no proxy, enforced", sandbox: enabled, enforce: true, hasProxy: false },
  {
    title: "a proxy of the environment, enforced",
    sandbox: enabled,
    enforce: true,
    hasProxy: false,
    env: ({ port }) => ({ HTTP_PROXY: `http://127.0.0.1:${port}`, http_proxy: `http://127.0.0.1:${port}` }),
  },
  { title: "permissions disabled, enforced", sandbox: () => withPermissions({ type: "disabled" }), enforce: true },
  { title: "files unrestricted, enforced", sandbox: () => withPermissions(UNRESTRICTED), enforce: true },
  { title: "no sandbox, enforced", sandbox: () => null, enforce: true },
];

/** Runs the probe of one row. Returns the results that both servers share. */
async function runRow(url: string, row: Row, host: ProbedHost, cwd: string) {
  await using client = new WireClient(await webSocketWire(url));
  await client.handshake();
  const sandbox = row.sandbox();
  const { sandboxType } = await client.start("p", ["/bin/bash", "-c", host.probe(attemptProgram())], {
    cwd: uriFromPath(cwd),
    env: { PATH: "/usr/bin:/bin", ...row.env?.(host) },
    sandbox: sandbox && { ...sandbox, cwd: uriFromPath(cwd), workspaceRoots: [uriFromPath(cwd)] },
    enforceManagedNetwork: row.enforce,
    ...(row.hasProxy !== false && { networkProxy: host.networkProxy() }),
  });
  const { output, exited } = await client.finished("p");
  const { exitCode, sandboxDenied } = exited;
  const refusal = /failed to prepare host proxy routing bridge: .*/.exec(output)?.[0];
  const { allowed, socks, denied, direct, socketpair, unix, netlink, interfaces } = probeResults(output);
  const reached = refusal === undefined ? { allowed, socks, denied, direct, socketpair } : {};
  // The filters differ where the network is off without a proxy.
  const filtered = row.enforce && refusal === undefined ? { unix, netlink, interfaces } : {};
  return { sandboxType, exitCode, sandboxDenied, refusal, ...reached, ...filtered };
}

describe("enforcement of the managed network, by the real exec-server and by this one", { skip }, () => {
  for (const row of ROWS)
    test(row.title, async () => {
      using place = codexHome();
      await using host = await ProbedHost.open();
      await using procwire = await openProcwire();
      await using codex = await openCodex(place.home);
      const expected = await runRow(codex.url, row, host, place.workspace);
      const found = await runRow(procwire.url, row, host, place.workspace);
      assert.deepEqual(found, expected);
    });
});

test("the real CLI with a managed network runs commands that reach only their proxy", { skip }, async () => {
  using place = codexHome();
  await using host = await ProbedHost.open();
  await using server = await openProcwire();
  const profile = networkProfile({ "127.0.0.1": "allow", "bad.test": "deny" });
  const command = (cmd: string) => ({ name: "exec_command", args: { cmd, login: false } });
  const ran = await runCodex(
    place,
    server.url,
    [
      command(`curl -sS http://127.0.0.1:${host.port}/`),
      command("curl -sS -i http://other.test/"),
      command("curl -sS http://bad.test/"),
      command(`curl -sS --noproxy '*' http://127.0.0.1:${host.port}/`),
      command(host.probe(attemptProgram())),
    ],
    [],
    profile,
  );
  assert.equal(ran.exitCode, 0, ran.stderr);
  const [allowed = "", other = "", denied = "", direct = "", probe = ""] = ran.outputs;
  assert.match(allowed, /Output:\nserved\n/);
  assert.match(other, /HTTP\/1.1 403.*x-proxy-error: blocked-by-allowlist.*"reason":"not_allowed"/is);
  assert.match(denied, /"reason":"denied"/);
  assert.match(direct, /Couldn't connect to server|Failed to connect/);
  assert.deepEqual(probeResults(probe.slice(probe.indexOf("Output:\n") + "Output:\n".length)), PROXY_ONLY);
});
