import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { sh, startParams, type WireClient } from "../../support/servers/raw-connection.ts";
import { ServeChild, serve } from "../../support/servers/serve.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";

/** Resource limits of a process: requested at its start, or set on the server for all processes. */

const isRoot = process.getuid?.() === 0;
const v1 = (controller: string) => existsSync(`/sys/fs/cgroup/${controller}/cgroup.procs`);
const needsCgroup = (controller: string) =>
  skipUnless(isRoot && v1(controller), `no ${controller} cgroup can be made here`);
/** Returns the pids cgroup of this program, and thus of the servers it starts. */
const pidsGroup = () =>
  join("/sys/fs/cgroup/pids", /pids:(.*)/.exec(readFileSync("/proc/self/cgroup", "utf8"))?.[1] ?? "/");
const node = (script: string) => [process.execPath, "-e", script];

async function connected(server: ServeChild): Promise<WireClient> {
  const client = await server.connect();
  await client.handshake();
  return client;
}

/** Waits for `process/exited` and returns its params. */
async function exitOf(client: WireClient, processId: string): Promise<Record<string, unknown>> {
  const { params } = await client.waitFor(
    `the exit of ${processId}`,
    ({ method, params }) => method === "process/exited" && params?.processId === processId,
  );
  return params ?? {};
}

describe("limits of a process", () => {
  test("wall time: the process is terminated, and its exit reason names the limit", async () => {
    await using server = await serve();
    await using client = await connected(server);
    await client.start("p", sh("sleep 1000"), { limits: { wallTimeMs: 50 } });
    const { reason, limit } = await exitOf(client, "p");
    assert.deepEqual({ reason, limit }, { reason: "limit", limit: "wallTimeMs" });
    const waited = await client.call("process/wait", { processId: "p" });
    assert.deepEqual([waited.exitReason, waited.limit], ["limit", "wallTimeMs"]);
  });

  test("output: exactly the allowed amount is delivered, of all streams together", async () => {
    await using server = await serve();
    await using client = await connected(server);
    await client.start("p", sh("echo 12345 >&2; yes"), { limits: { outputBytes: 10_000 } });
    const { reason, limit } = await exitOf(client, "p");
    assert.deepEqual({ reason, limit }, { reason: "limit", limit: "outputBytes" });
    await client.finished("p");
    assert.equal(client.output("p").length, 10_000);
    // A process that writes exactly its limit is not terminated.
    await client.start("q", sh("printf 1234567890"), { limits: { outputBytes: 10 } });
    assert.equal((await exitOf(client, "q")).reason, "exited");
  });

  test("CPU time: the process is killed with SIGXCPU, and its exit reason names the limit", async () => {
    await using server = await serve();
    await using client = await connected(server);
    await client.start("p", sh("while :; do :; done"), { limits: { cpuTimeMs: 600 } });
    const { reason, limit, signal } = await exitOf(client, "p");
    assert.deepEqual({ reason, limit, signal }, { reason: "limit", limit: "cpuTimeMs", signal: "SIGXCPU" });
  });

  test("open files and memory of each process: the system refuses more", async () => {
    await using server = await serve();
    await using client = await connected(server);
    await client.start("files", sh("ulimit -n; ulimit -Hn"), { limits: { openFiles: 64 } });
    assert.equal((await client.finished("files")).output, "64\n64\n");
    const limits = { processMemoryBytes: 64 << 20 };
    const copy = (bytes: number) => sh(`dd if=/dev/zero of=/dev/null bs=${bytes} count=1`);
    await client.start("memory", copy(128 << 20), { limits });
    const { output, exitCode } = await client.finished("memory");
    assert.notEqual(exitCode, 0);
    assert.match(output, /memory/);
    // A process below the limit is not affected.
    await client.start("small", copy(16 << 20), { limits });
    assert.equal((await client.finished("small")).exitCode, 0);
  });

  test("memory of a tree: the tree is killed, and the exit reason names the limit", {
    skip: needsCgroup("memory"),
  }, async () => {
    await using server = await serve();
    await using client = await connected(server);
    const grow = "const buffers = []; for (;;) buffers.push(Buffer.alloc(8 << 20, 1));";
    await client.start("p", node(grow), { limits: { memoryBytes: 128 << 20 } });
    const { reason, limit, signal } = await exitOf(client, "p");
    assert.deepEqual({ reason, limit, signal }, { reason: "limit", limit: "memoryBytes", signal: "SIGKILL" });
  });

  test("processes of a tree: the system rejects one more, and no cgroup is left", {
    skip: needsCgroup("pids"),
  }, async () => {
    let pid: number;
    {
      await using server = await serve();
      pid = server.serverPid();
      await using client = await connected(server);
      const script = "for n in 1 2 3 4 5 6 7 8; do sleep 1000 >/dev/null 2>&1 & done; echo all; wait";
      await client.start("p", sh(script), { limits: { processes: 4 } });
      const { output, exitCode } = await client.finished("p");
      assert.notEqual(exitCode, 0);
      assert.match(output, /fork/i);
      assert.doesNotMatch(output, /all/);
      await client.start("q", sh("sleep 0 & wait; echo fine"), { limits: { processes: 4 } });
      assert.equal((await client.finished("q")).output, "fine\n");
    }
    const left = readdirSync(pidsGroup()).filter((name) => name.startsWith(`procwire-${pid}-`));
    assert.deepEqual(left, []);
  });

  test("the cgroups of a killed server are removed, those of a living one are not", {
    skip: needsCgroup("pids"),
  }, async () => {
    const startTime = readFileSync("/proc/self/stat", "utf8").split(") ")[1]?.split(" ")[19];
    const dead = join(pidsGroup(), `procwire-${process.pid}-1-1`);
    const living = join(pidsGroup(), `procwire-${process.pid}-${startTime}-1`);
    mkdirSync(dead);
    mkdirSync(living);
    try {
      await using server = await serve("--limit-processes", "100");
      assert.deepEqual([existsSync(dead), existsSync(living)], [false, true]);
      await server.stop();
    } finally {
      rmdirSync(living);
    }
  });

  test("the server's limits apply to every process, and a client can lower but not raise them", async () => {
    await using server = await serve("--limit-output-bytes", "100", "--limit-wall-time", "600");
    await using client = await connected(server);
    await client.start("p", sh("yes"));
    assert.equal((await exitOf(client, "p")).limit, "outputBytes");
    await client.finished("p");
    assert.equal(client.output("p").length, 100);
    await client.start("more", sh("yes"), { limits: { outputBytes: 1000 } });
    await client.finished("more");
    assert.equal(client.output("more").length, 100);
    await client.start("less", sh("yes"), { limits: { outputBytes: 10 } });
    await client.finished("less");
    assert.equal(client.output("less").length, 10);
  });

  test("a limit that cannot be enforced is rejected, also at the start of a server", async () => {
    // Only the addon can set this limit on a child.
    const env = { PROCWIRE_NATIVE_SPAWNER: "/nowhere" };
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"], { env }).listening();
    await using client = await connected(server);
    for (const name of ["cpuTimeMs", "memoryBytes", "processMemoryBytes", "openFiles", "processes"]) {
      const params = startParams("p", ["/bin/true"], { limits: { [name]: 1_000_000_000 } });
      const { code, message } = await client.refused("process/start", params);
      assert.equal(code, -32602);
      assert.match(message, new RegExp(`^limit ${name} cannot be enforced on this executor: the native addon`));
    }
    await client.start("q", sh("yes"), { limits: { outputBytes: 10 } });
    assert.equal((await exitOf(client, "q")).limit, "outputBytes");

    const refused = new ServeChild(["--listen", "ws://127.0.0.1:0", "--limit-open-files", "100"], { env });
    const { code } = await refused.exited;
    assert.notEqual(code, 0);
    assert.match(refused.stderr, /limit openFiles cannot be enforced/);
  });
});
