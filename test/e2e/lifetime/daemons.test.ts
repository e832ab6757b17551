import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { sh, type WireClient } from "../../support/servers/raw-connection.ts";
import {
  childrenOf,
  isAlive,
  type ServeChild,
  scratchDirectory,
  serve,
  withEnvironment,
} from "../../support/servers/serve.ts";
import { groupOf, NO_SERVER_CGROUP } from "../../support/system/server-cgroup.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";

/**
 * Daemons: forked twice, in separate POSIX sessions, without inherited descriptors. They end with the process that
 * started them.
 */

const watchdog = fileURLToPath(new URL("../../../native/build/watchdog", import.meta.url));
const skip = skipUnless(existsSync(watchdog), "the watchdog is not built: it needs a C++ compiler");

/** Writes its pid to a file for the test, then sleeps. */
const stay = (name: string, then = "exec sleep 1000") =>
  `sh -c 'trap "" TERM HUP; echo $$ >"$0/${name}.new"; mv "$0/${name}.new" "$0/${name}"; ${then}' "$PLACE"`;
const CLOSED = ">/dev/null 2>&1 </dev/null";

/** Scripts that leave one daemon each, which writes its pid to the file of its name. */
const DAEMONS: Record<string, string> = {
  daemon: `(setsid ${stay("daemon")} ${CLOSED} &)`,
  nohup: `(setsid nohup ${stay("nohup")} ${CLOSED} &)`,
  stopped: `(setsid ${stay("stopped", "kill -STOP $$; exec sleep 1000")} ${CLOSED} &)`,
  closed: `(setsid ${stay("closed")} >&- 2>&- <&- &)`,
  // The watchdog is a subreaper and therefore adopts descendants that fork twice.
  adopted: `(setsid ${watchdog} -- sh -c '(setsid sh -c "echo \\$\\$ >$PLACE/adopted; exec sleep 1000" &); exec sleep 1000' ${CLOSED} &)`,
};

const ALL = Object.values(DAEMONS).join("\n");

async function startDaemons(client: WireClient, processId: string, after: string): Promise<number[]> {
  const place = scratchDirectory();
  const env = { PATH: "/usr/bin:/bin", PLACE: place.path };
  await client.start(processId, sh(`${ALL}\n${after}`), { env });
  const names = Object.keys(DAEMONS);
  const isThere = (name: string) => {
    const path = join(place.path, name);
    return existsSync(path) && readFileSync(path, "utf8") !== "";
  };
  await until(`all of them are there (${readdirSync(place.path)})`, () => names.every(isThere));
  const pids = names.map((name) => Number(readFileSync(join(place.path, name), "utf8")));
  place[Symbol.dispose]();
  for (const pid of pids) assert.ok(isAlive(pid), `${pid} is not there to begin with`);
  return pids;
}

async function connected(server: ServeChild): Promise<WireClient> {
  const client = await server.connect();
  await client.handshake();
  return client;
}

const left = (pids: number[]) => pids.filter(isAlive);

describe("daemons", { skip }, () => {
  test("end when the process that started them is terminated, and daemons of other processes stay", async () => {
    await using server = await serve();
    const client = await connected(server);
    const others = await startDaemons(client, "other", "exec sleep 1000");
    const pids = await startDaemons(client, "p", "exec sleep 1000");
    const answer = await client.call("process/terminate", { processId: "p" });
    assert.deepEqual(answer, { running: true });
    await until("none is left", () => left(pids).length === 0);
    assert.deepEqual(left(others), others);
  });

  test("are killed when the grace period elapses", async () => {
    await using server = await serve();
    const client = await connected(server);
    const pids = await startDaemons(client, "p", "exec sleep 1000");
    await client.call("process/terminate", { processId: "p", mode: { type: "graceful", timeoutMs: 1000 } });
    await until("none is left", () => left(pids).length === 0);
  });

  test("outlive the process that started them, and end with its session", async () => {
    await using server = await serve("--detached-session-ttl", "0");
    const other = await connected(server);
    const others = await startDaemons(other, "other", "exit 0");
    const client = await connected(server);
    const pids = await startDaemons(client, "p", "exit 0");
    assert.equal((await client.finished("p")).exitCode, 0);
    assert.deepEqual(left(pids), pids);
    client.cut();
    await until("none is left", () => left(pids).length === 0);
    assert.deepEqual(left(others), others);
  });

  test("a daemon that forks continuously ends too", async () => {
    await using server = await serve();
    const client = await connected(server);
    const marker = `HOPS_OF=${process.pid}-${Date.now()}`;
    const [name = "", value = ""] = marker.split("=");
    const hop = `sleep 0.01; setsid sh -c "$HOP" ${CLOSED} &`;
    const env = { PATH: "/usr/bin:/bin", HOP: hop, [name]: value };
    await client.start("p", sh(`(setsid sh -c "$HOP" ${CLOSED} &); exec sleep 1000`), { env });
    const seen = new Set<number>();
    const forks = () => {
      for (const pid of withEnvironment(marker)) seen.add(pid);
      return seen.size > 10;
    };
    await until("it forks", forks, server.exited);
    await client.call("process/terminate", { processId: "p" });
    // One scan may miss a daemon between two forks; fifty consecutive scans hardly can.
    let samples = 0;
    await until("it forks no more", () => {
      samples = withEnvironment(marker).length === 0 ? samples + 1 : 0;
      return samples > 50;
    });
  });

  const KILLED_AT_ONCE: Record<string, (server: ServeChild) => number[]> = {
    "the server and the upper watchdog": (server) => [server.child.pid ?? 0, server.serverPid()],
    "the server and the lower watchdog": (server) => [server.lowerWatchdogPid(), server.serverPid()],
    "both watchdogs": (server) => [server.child.pid ?? 0, server.lowerWatchdogPid()],
  };
  const ALL_THREE = (server: ServeChild) => [...[server.child.pid ?? 0, server.lowerWatchdogPid(), server.serverPid()]];

  /** Stops all processes before it kills them, so that none reacts to the death of another. */
  const killAtOnce = (pids: number[]) => {
    for (const pid of pids) process.kill(pid, "SIGSTOP");
    for (const pid of pids) process.kill(pid, "SIGKILL");
  };

  test("end when the server and both watchdogs are killed at once, and their cgroup is removed", {
    skip: NO_SERVER_CGROUP,
  }, async () => {
    await using server = await serve();
    const client = await connected(server);
    const pids = await startDaemons(client, "p", "sleep 1000");
    pids.push(...(await startDaemons(client, "gone", "exit 0")));
    const group = groupOf(server.serverPid());
    assert.ok(existsSync(group));
    killAtOnce(ALL_THREE(server));
    await until(`none is left (${left(pids)})`, () => left(pids).length === 0);
    await until("the group is removed", () => !existsSync(group));
    await client.ended();
  });

  test("are ended by the next server if the sentinel was killed too, and daemons of a living server stay", {
    skip: NO_SERVER_CGROUP,
  }, async () => {
    await using living = await serve();
    const others = await startDaemons(await connected(living), "other", "sleep 1000");
    await using server = await serve();
    const client = await connected(server);
    const pids = await startDaemons(client, "p", "sleep 1000");
    const group = groupOf(server.serverPid());
    const sentinels = childrenOf(server.child.pid ?? 0).filter((pid) => pid !== server.lowerWatchdogPid());
    assert.equal(sentinels.length, 1, "there is one sentinel");
    killAtOnce([...ALL_THREE(server), ...sentinels]);
    await client.ended();
    // The daemons live until the next server starts, here or in another test.
    await using _next = await serve();
    await until(`none is left (${left(pids)})`, () => left(pids).length === 0);
    await until("the group is removed", () => !existsSync(group));
    assert.deepEqual(left(others), others);
  });

  test("leave no cgroup and no sentinel when their server exits normally", {
    skip: NO_SERVER_CGROUP,
  }, async () => {
    const server = await serve();
    const pids = await startDaemons(await connected(server), "p", "sleep 1000");
    const group = groupOf(server.serverPid());
    pids.push(...childrenOf(server.child.pid ?? 0));
    await server.stop();
    assert.deepEqual([left(pids), existsSync(group)], [[], false]);
  });

  for (const [victims, find] of Object.entries(KILLED_AT_ONCE)) {
    test(`end when ${victims} are killed at once`, async () => {
      await using server = await serve();
      const client = await connected(server);
      const pids = await startDaemons(client, "p", "sleep 1000");
      pids.push(...(await startDaemons(client, "gone", "exit 0")));
      killAtOnce(find(server));
      await until(`none is left (${left(pids)})`, () => left(pids).length === 0);
      await client.ended();
    });
  }
});
