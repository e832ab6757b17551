import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { NO_ADDON } from "../../native/started.ts";
import { sh } from "../../support/servers/raw-connection.ts";
import { PROCWIRE, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

/** The kernel does not apply the process limit to root, so an ordinary user runs the server. */
const asOrdinaryUser =
  process.getuid?.() === 0 ? ["setpriv", "--reuid", "65531", "--regid", "65531", "--clear-groups"] : [];

function runAsOrdinaryUser(...command: string[]) {
  const [program = "", ...args] = [...asOrdinaryUser, ...command];
  return spawnSync(program, args, { encoding: "utf8" });
}

/** Why the limit cannot be tested on this host, or false. */
function missing(): string | false {
  const version = runAsOrdinaryUser(PROCWIRE, "--version");
  if (version.status !== 0)
    return `NOT TESTED: no ordinary user can run the server here: ${version.error ?? version.stderr}`;
  const limit = runAsOrdinaryUser("prlimit", "--nproc=100:", "true");
  return limit.status === 0 ? false : `NOT TESTED: no limit can be set here: ${limit.error ?? limit.stderr}`;
}

const skip = missing();
if (skip !== false && process.env.CI) assert.fail(skip);

function limitProcesses(pid: number, most: string): void {
  const { status, stderr } = runAsOrdinaryUser("prlimit", "--pid", String(pid), `--nproc=${most}:`);
  assert.equal(status, 0, stderr);
}

function serveOrdinary(env: Record<string, string> = {}): Promise<ServeChild> {
  const [program = PROCWIRE, ...args] = [...asOrdinaryUser, PROCWIRE, "serve", "--listen", "ws://127.0.0.1:0"];
  return new ServeChild(args, { command: [program], env: { HOME: "/tmp", ...env } }).listening();
}

function threadNames(pid: number): string[] {
  const tasks = `/proc/${pid}/task`;
  return readdirSync(tasks).map((thread) => readFileSync(join(tasks, thread, "comm"), "utf8").trim());
}

/** One request of every kind that needs a thread. */
const REQUESTS: [method: string, params: Record<string, unknown>][] = [
  ["fs/getMetadata", { path: "file:///tmp" }],
  ["fs/readFile", { path: "file:///proc/version" }],
  ["http/request", { method: "GET", url: "http://localhost:1/", requestId: "r" }],
  ["environmentConfig/read", { cwd: "file:///tmp", configPaths: [["a"]], requirementsPaths: [] }],
  ["capabilityRoots/discoverV1", { roots: [{ id: "r", path: "file:///tmp/nowhere" }] }],
  ["capabilities/discoverV2", { cwd: "file:///tmp" }],
  ["environment/info", {}],
];

describe("at the limit of processes", { skip, timeout: 600_000 }, () => {
  test("the server responds to every request and running processes continue", async () => {
    await using server = await serveOrdinary();
    const client = await server.connect();
    await client.handshake();
    await client.start("p", sh("cat"), { pipeStdin: true });
    await until("the threads", () => threadNames(server.serverPid()).includes("libuv-worker"));
    limitProcesses(server.serverPid(), "1");
    for (const [method, params] of REQUESTS) {
      const { error } = await client.request(method, params);
      assert.doesNotMatch(error?.message ?? "", /threads/, method);
    }
    const waited = await client.call("process/wait", {
      processId: "p",
      until: { type: "port", port: 1 },
      timeoutMs: 0,
    });
    assert.equal(waited.reason, "timeout");
    const refused = await client.refused("process/start", {
      processId: "q",
      argv: sh("true"),
      cwd: "file:///tmp",
      env: {},
      tty: false,
    });
    assert.match(refused.message, /Resource temporarily unavailable \(os error 11\)/);
    await client.write("p", "still here\n");
    await client.outputContains("p", "still here");
    limitProcesses(server.serverPid(), "1000");
    await client.start("r", sh("echo again"));
    assert.equal((await client.finished("r")).output, "again\n");
    await client.close();
    assert.equal((await server.stop()).code, 0);
  });

  test("a server rejects requests that need threads until it can create the threads", {
    skip: NO_ADDON,
  }, async () => {
    using directory = scratchDirectory();
    chmodSync(directory.path, 0o755);
    const script = join(directory.path, "limit.cjs");
    const limit = `require("child_process").spawnSync("prlimit", ["--pid", process.pid, "--nproc=1:"])`;
    writeFileSync(script, `if (process.argv.includes("serve")) ${limit};`, { mode: 0o644 });
    await using server = await serveOrdinary({ NODE_OPTIONS: `--require ${script}` });
    const client = await server.connect();
    await client.handshake();
    for (const [method, params] of REQUESTS) {
      if (method === "environment/info") continue;
      assert.match((await client.refused(method, params)).message, /cannot start libuv threads/, method);
    }
    const first = { processId: "q", argv: sh("true"), cwd: "file:///tmp", env: {}, tty: false };
    assert.match((await client.refused("process/start", first)).message, /os error 11/);
    assert.equal((await client.call("environment/status")).status, "ready");
    limitProcesses(server.serverPid(), "1000");
    assert.equal((await client.call("fs/getMetadata", { path: "file:///tmp" })).isDirectory, true);
    await client.start("p", sh("echo up"));
    assert.equal((await client.finished("p")).output, "up\n");
    await client.close();
    assert.equal((await server.stop()).code, 0);
  });
});
