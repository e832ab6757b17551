import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { sh, type WireClient } from "../../support/servers/raw-connection.ts";
import { isAlive, PROCWIRE, ServeChild, serve } from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { forbidGroupsBelow, groupOf, groupsIn, NO_SERVER_CGROUP } from "../../support/system/server-cgroup.ts";
import { until } from "../../support/system/until.ts";

/** A cgroup for each process (`native/process/process-cgroup.cc`), on the real hierarchy. */

const SLEEP = ["sleep", "1000"];
const DAEMON = `setsid sh -c 'echo $$; exec >/dev/null 2>&1; exec sleep 1000' </dev/null &`;

async function connected(server: ServeChild): Promise<WireClient> {
  const client = await server.connect();
  await client.handshake();
  return client;
}

const pidOf = async (client: WireClient, processId: string): Promise<number> => {
  const { processes } = (await client.call("process/list", {})) as {
    processes: { processId: string; pid: number }[];
  };
  return processes.find((entry) => entry.processId === processId)?.pid ?? 0;
};

/** Runs `true` and asserts that it exits with code 0. */
async function runTrue(client: WireClient, processId: string): Promise<void> {
  await client.start(processId, ["true"]);
  assert.equal((await client.finished(processId)).exitCode, 0, processId);
}

/** Returns the pids in a cgroup; none if the cgroup was removed. */
function pidsIn(group: string): number[] {
  try {
    return readFileSync(join(group, "cgroup.procs"), "utf8").split("\n").filter(Boolean).map(Number);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENODEV") return [];
    throw error;
  }
}

const warnings = (server: ServeChild) => server.stderr.match(/process cgroups unavailable/g) ?? [];

describe("a cgroup for each process", { skip: NO_SERVER_CGROUP }, () => {
  /**
   * Returns the server, a client, and the path of the server's cgroups. The server creates empty cgroups in advance.
   */
  async function withGroups() {
    const server = await serve();
    const client = await connected(server);
    await runTrue(client, "first");
    const place = groupOf(server.serverPid());
    const paths = () => groupsIn(place).map((name) => join(place, name));
    const unused = () => paths().filter((path) => pidsIn(path).length === 0);
    await until("empty cgroups in advance", () => unused().length >= 32);
    return { server, client, place, paths, unused };
  }

  test("leaves no signal ignored or blocked in its process, also if the server ignores signals", async () => {
    const ignoring = `trap '' HUP USR1; exec "$0" serve "$@"`;
    const server = new ServeChild(["--listen", "ws://127.0.0.1:0"], { command: ["/bin/sh", "-c", ignoring, PROCWIRE] });
    await using _ = await server.listening();
    const client = await connected(server);
    await runTrue(client, "first");
    await client.start("p", ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]);
    const { output } = await client.finished("p");
    assert.match(output, /^SigBlk:\s+0+\nSigIgn:\s+0+\n$/);
    await client.close();
  });

  test("stays in use although another program replaces it between two processes", async () => {
    const { server, client, unused } = await withGroups();
    await using _ = server;
    for (const path of unused()) {
      rmdirSync(path);
      mkdirSync(path);
    }
    for (let at = 0; at < 3; at++) await runTrue(client, `p${at}`);
    await client.start("p", SLEEP);
    assert.ok(unused().length > 0);
    assert.match(groupOf(await pidOf(client, "p")), /\/tree-[\d-]+$/);
    assert.deepEqual(warnings(server), []);
    await client.close();
  });

  test("is separate, below the server cgroup, and replaced by the server after its process ends", async () => {
    const { server, client, place, paths, unused } = await withGroups();
    await using _ = server;
    const before = paths();
    const groups = [];
    for (const id of ["a", "b"]) {
      // The server may create another one after each start.
      await until("empty cgroups in advance", () => unused().length >= 32);
      const existing = paths();
      await client.start(id, SLEEP);
      groups.push(groupOf(await pidOf(client, id)));
      assert.ok(existing.includes(groups.at(-1) ?? ""));
    }
    assert.equal(new Set([...groups, place]).size, 3);
    for (let at = 0; at < 200; at++) await runTrue(client, `p${at}`);
    // The server replaces the cgroups that processes took with new empty ones.
    assert.ok(paths().length <= before.length + 2, `${paths().length} groups`);
  });

  test("stays with the daemons of an exited process", async () => {
    const { server, client } = await withGroups();
    await using _ = server;
    await client.start("left", sh(DAEMON));
    assert.equal((await client.finished("left")).exitCode, 0);
    const daemon = Number(client.output("left"));
    const group = groupOf(daemon);
    for (let at = 0; at < 100; at++) {
      await client.start(`p${at}`, SLEEP);
      assert.notEqual(groupOf(await pidOf(client, `p${at}`)), group);
    }
    assert.deepEqual(pidsIn(group), [daemon]);
  });

  test("is empty after a terminate, even if its processes fork continuously, and later processes start", async () => {
    const { server, client } = await withGroups();
    await using _ = server;
    const forks = "(setsid sh -c 'while :; do (exec sleep 1000) & done' &)";
    for (let round = 0; round < 5; round++) {
      await client.start(`forks${round}`, sh(`${forks}; ${forks}; exec sleep 1000`));
      const group = groupOf(await pidOf(client, `forks${round}`));
      await until("it forks", () => pidsIn(group).length > 20);
      await client.call("process/terminate", { processId: `forks${round}` });
      await until("all are gone", () => pidsIn(group).length === 0);
      for (let at = 0; at < 40; at++) await runTrue(client, `p${round}-${at}`);
    }
  });

  test("is optional: if it cannot be created, the server logs that once and relies on tree tags", async () => {
    await using server = await serve();
    const place = groupOf(server.serverPid());
    forbidGroupsBelow(server.serverPid());
    const client = await connected(server);
    for (const processId of ["a", "b", "c"]) await runTrue(client, processId);
    await client.start("left", sh(`${DAEMON} sleep 1000`));
    await until("the daemon is there", () => Number(client.output("left")) > 0);
    const daemon = Number(client.output("left"));
    assert.equal(groupOf(daemon), place);
    assert.equal(warnings(server).length, 1, server.stderr);
    await client.call("process/terminate", { processId: "left" });
    await until("the daemon to end", () => !isAlive(daemon));
  });

  const TAMPERED: Record<string, (group: string) => void> = {
    removed: (group) => rmdirSync(group),
    killed: (group) => writeFileSync(join(group, "cgroup.kill"), "1"),
    frozen: (group) => writeFileSync(join(group, "cgroup.freeze"), "1"),
    "made threaded": (group) => writeFileSync(join(group, "cgroup.type"), "threaded"),
  };
  for (const [how, tamper] of Object.entries(TAMPERED)) {
    test(`does not prevent a start after another program has ${how} it`, async () => {
      const { server, client, paths, unused } = await withGroups();
      await using _ = server;
      // Includes cgroups that held a process before.
      for (let at = 0; at < 40; at++) await client.start(`s${at}`, SLEEP);
      for (let at = 0; at < 40; at++) await client.call("process/terminate", { processId: `s${at}` });
      await until("all are empty", () => unused().length >= 40 && unused().length === paths().length);
      for (const group of unused()) tamper(group);
      for (let at = 0; at < 60; at++) await runTrue(client, `p${at}`);
    });
  }
});

describe("the cgroups of a server that is replaced", { skip: NO_SERVER_CGROUP || NO_SUPERVISOR }, () => {
  test("end with it, except those of persistent processes, which the next server terminates as a whole", async () => {
    await using server = await SupervisedServer.start();
    const client = await connected(server.serve);
    await client.start("persistent", sh(`${DAEMON} exec sleep 1000`), { lifetime: "persistent" });
    await client.start("other", SLEEP);
    await until("the daemon is there", () => Number(client.output("persistent")) > 0);
    const daemon = Number(client.output("persistent"));
    const persistent = groupOf(daemon);
    const place = join(persistent, "..");
    const other = groupOf(await pidOf(client, "other"));
    await server.killServer([daemon, await pidOf(client, "persistent")]);
    await until("the other's group is removed", () => !existsSync(other));
    assert.deepEqual(
      groupsIn(place).filter((name) => name.startsWith("persistent-")),
      [persistent.split("/").at(-1)],
    );
    assert.ok(isAlive(daemon));
  });
});
