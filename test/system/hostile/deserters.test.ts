import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { sh, type WireClient } from "../../support/servers/raw-connection.ts";
import {
  childrenOf,
  isAlive,
  PROCWIRE,
  ServeChild,
  scratchDirectory,
  serve,
  withEnvironment,
} from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { repetitions } from "../../support/system/repetitions.ts";
import { NO_SERVER_CGROUP } from "../../support/system/server-cgroup.ts";
import { skipUnless } from "../../support/system/skip-unless.ts";
import { until } from "../../support/system/until.ts";
import { commandAs, USERS, type User } from "../../support/system/users.ts";

/**
 * Deserters: daemons that also change the tree tag by which a server identifies descendants
 * (`native/process/tree-tag.cc`). The server still ends them with the process that started them.
 */

const ROUNDS = repetitions(200);
const AT_ONCE = 10;

const watchdog = fileURLToPath(new URL("../../../native/build/watchdog", import.meta.url));
const hasWatchdog = existsSync(watchdog);

function skipFor(user: User): string | false {
  const [program = "test", ...args] = [...commandAs(user), "test", "-x", PROCWIRE];
  const canRun = spawnSync(program, args, { stdio: "ignore" }).status === 0;
  return skipUnless(hasWatchdog && canRun, `${user.name} cannot run ${PROCWIRE} with its watchdog`);
}

async function serveAs(user: User, ...args: string[]): Promise<ServeChild> {
  const [program = PROCWIRE, ...before] = [...commandAs(user), PROCWIRE, "serve"];
  const server = new ServeChild(["--listen", "ws://127.0.0.1:0", ...args], {
    command: [program, ...before],
    env: { HOME: "/nonexistent" },
    cwd: "/",
  });
  return server.listening();
}

async function connected(server: ServeChild): Promise<WireClient> {
  const client = await server.connect();
  await client.handshake();
  return client;
}

const CLOSED = ">/dev/null 2>&1 </dev/null";
/**
 * A daemon: forked twice, in a new POSIX session, ignoring signals, without inherited descriptors. `first` runs before
 * the daemon reports that it is up.
 */
const daemon = (first: string) =>
  `(setsid bash -c 'trap "" TERM HUP; ${first}; echo $$ >$PLACE.new; mv $PLACE.new $PLACE; exec sleep 1000' ${CLOSED} &)`;
const NOTHING = ":";
/** Overwrites each resource limit that can hold half of a tree tag. */
const DROPS_TAG = "ulimit -x 4096; ulimit -R 5000000";
/** Sets a well-formed tree tag of a process that never existed. */
const FAKES_TAG = "ulimit -x 4503599627370497; ulimit -R 4503599627370497";
/** Overwrites only the limit that programs with realtime threads set. */
const LIMITS_REALTIME = "ulimit -R 5000000";
/** Returns a shell substitution that reads a resource limit of another process. Every user may read it. */
const limitOf = (pid: number, name: string) => `$(sed -n "s/^Max ${name} *\\([0-9]*\\).*/\\1/p" /proc/${pid}/limits)`;
const copiesTagOf = (pid: number) => `ulimit -x ${limitOf(pid, "file locks")}`;
const copiesTagAndCheckOf = (pid: number) => `${copiesTagOf(pid)}; ulimit -R ${limitOf(pid, "realtime timeout")}`;

/** Returns the current time in the resolution that the kernel uses for start times. */
const ticks = () => readFileSync("/proc/uptime", "utf8").split(" ")[0];
const commandLine = (pid: number) => readFileSync(`/proc/${pid}/cmdline`, "utf8");

/** Starts a daemon from a new process and returns its pid. */
async function startDaemon(client: WireClient, processId: string, first: string, then: string, more: object = {}) {
  using place = scratchDirectory();
  chmodSync(place.path, 0o777);
  const file = join(place.path, "pid");
  const env = { PATH: "/usr/bin:/bin", PLACE: file };
  await client.start(processId, sh(`${daemon(first)}; ${then}`), { cwd: "file:///", env, ...more });
  await until(`the daemon of ${processId} is there`, () => existsSync(file));
  const pid = Number(readFileSync(file, "utf8"));
  assert.ok(isAlive(pid), `${pid} is not there to begin with`);
  return pid;
}

for (const user of USERS) {
  describe(`deserters of ${user.name}`, { skip: skipFor(user) }, () => {
    test("end when the process that started them is terminated, are reported, and other daemons stay", async () => {
      await using server = await serveAs(user);
      const others = await connected(server);
      const client = await connected(server);
      const early = await startDaemon(others, "early", NOTHING, "exec sleep 1000");
      const pids = [
        await startDaemon(client, "dropped", DROPS_TAG, "exec sleep 1000"),
        await startDaemon(client, "faked", FAKES_TAG, "exec sleep 1000"),
      ];
      const honest = [
        early,
        await startDaemon(others, "late", NOTHING, "exec sleep 1000"),
        await startDaemon(others, "realtime", LIMITS_REALTIME, "exit 0"),
        await startDaemon(client, "own", NOTHING, "exec sleep 1000"),
      ];
      for (const [at, processId] of ["dropped", "faked"].entries()) {
        assert.deepEqual(await client.call("process/terminate", { processId }), { running: true });
        await until(`${processId} is gone`, () => !isAlive(pids[at] ?? 0));
      }
      for (const pid of pids)
        await until(`${pid} is logged`, () => new RegExp(`killed orphans .*${pid}`).test(server.stderr));
      assert.deepEqual(honest.filter(isAlive), honest);
      assert.equal(honest.filter((pid) => server.stderr.includes(`${pid}`)).length, 0);
    });

    test("end with their session when the process that started them has exited", async () => {
      await using server = await serveAs(user, "--detached-session-ttl", "0");
      const others = await connected(server);
      const honest = await startDaemon(others, "honest", NOTHING, "exit 0");
      const client = await connected(server);
      const pid = await startDaemon(client, "p", DROPS_TAG, "exit 0");
      assert.equal((await client.finished("p")).exitCode, 0);
      client.cut();
      await until("the deserter to end", () => !isAlive(pid));
      assert.ok(isAlive(honest));
    });

    test(`end when the process is terminated at any point of their escape, ${ROUNDS} times`, async () => {
      await using server = await serveAs(user);
      const client = await connected(server);
      const marker = `DESERTS_FROM=${process.pid}-${user.uid}-${Date.now()}`;
      const [name = "", value = ""] = marker.split("=");
      const env = { PATH: "/usr/bin:/bin", PLACE: "/dev/null", [name]: value };
      const early = await startDaemon(client, "early", NOTHING, "exec sleep 1000");
      const ways = user.uid === 0 ? [DROPS_TAG] : [DROPS_TAG, copiesTagAndCheckOf(early)];
      const desert = (way = DROPS_TAG) =>
        `(setsid bash -c '${way}; (setsid sleep 1000 &); exec sleep 1000' ${CLOSED} &)`;
      const round = async (at: number) => {
        const processId = `p${at}`;
        await client.start(processId, sh(`${desert(ways[at % ways.length])}; exec sleep 1000`), {
          cwd: "file:///",
          env,
        });
        // During these calls the daemon does none, some or all of its forks.
        for (let calls = at % 8; calls > 0; calls--) await client.call("environment/status", {});
        await client.call("process/terminate", { processId });
      };
      for (let at = 0; at < ROUNDS; at += AT_ONCE)
        await Promise.all(Array.from({ length: AT_ONCE }, (_, next) => round(at + next)));
      await until("none is left", () => withEnvironment(marker).length === 0);
      assert.ok(isAlive(early));
    });
  });
}

const [ordinary] = USERS.filter(({ name }) => name === "an ordinary user");
assert.ok(ordinary);

describe("deserters that copy the tree tag of another process of their server", {
  skip: skipFor(ordinary),
}, () => {
  test("end when the process that started them is terminated, whichever tag they copy, and the tagged processes stay", async () => {
    await using server = await serveAs(ordinary);
    const others = await connected(server);
    const client = await connected(server);
    const realtime = await startDaemon(others, "realtime", LIMITS_REALTIME, "exec sleep 1000");
    const early = await startDaemon(others, "early", NOTHING, "exec sleep 1000");
    // Start times have the resolution of one clock tick, so the next daemons must start in a later tick.
    const begun = ticks();
    await until("another tick", () => ticks() !== begun);
    const ways = {
      marker: copiesTagOf(early),
      halves: copiesTagAndCheckOf(early),
      lowered: `${copiesTagOf(early)}; ${LIMITS_REALTIME}`,
      nothing: `${copiesTagOf(early)}; ulimit -R 0`,
    };
    const deserters = new Map<string, number>();
    for (const [way, first] of Object.entries(ways))
      deserters.set(way, await startDaemon(client, way, first, "exec sleep 1000"));
    const late = await startDaemon(others, "late", NOTHING, "exec sleep 1000");
    deserters.set("later", await startDaemon(client, "later", copiesTagAndCheckOf(late), "exec sleep 1000"));
    for (const [processId, pid] of deserters) {
      assert.deepEqual(await client.call("process/terminate", { processId }), { running: true });
      await until(`${processId} is gone`, () => !isAlive(pid));
    }
    const honest = [early, realtime, late];
    assert.deepEqual(honest.filter(isAlive), honest);
    assert.equal(honest.filter((pid) => server.stderr.includes(`${pid}`)).length, 0);
  });

  test("end with their session when the process that started them has exited", async () => {
    await using server = await serveAs(ordinary, "--detached-session-ttl", "0");
    const honest = await startDaemon(await connected(server), "honest", NOTHING, "exec sleep 1000");
    const client = await connected(server);
    const pid = await startDaemon(client, "p", copiesTagOf(honest), "exit 0");
    assert.equal((await client.finished("p")).exitCode, 0);
    client.cut();
    await until("the deserter to end", () => !isAlive(pid));
    assert.ok(isAlive(honest));
  });

  test("end with their server, even if the tree tag is that of a persistent process", {
    skip: NO_SUPERVISOR,
  }, async () => {
    await using server = new SupervisedServer(await serveAs(ordinary, "--supervised"));
    const client = await connected(server.serve);
    const honest = await startDaemon(client, "persistent", NOTHING, "exec sleep 1000", {
      lifetime: "persistent",
    });
    const pid = await startDaemon(client, "p", copiesTagAndCheckOf(honest), "exec sleep 1000");
    const [persistent = 0] = childrenOf(server.supervisorPid).filter((child) => /^sleep/.test(commandLine(child)));
    await server.killServer([honest, persistent]);
    await until("the deserter to end", () => !isAlive(pid));
    assert.ok(isAlive(honest));
  });
});

const root: User = { name: "root", uid: 0 };
const CAP_SYS_RESOURCE = 24;
const canRaiseLimits = () => {
  const bits = /^CapEff:\t(\w+)$/m.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? "0";
  return ((BigInt(`0x${bits}`) >> BigInt(CAP_SYS_RESOURCE)) & 1n) === 1n;
};

interface TakesAll {
  skip: string | false;
  serve(...args: string[]): Promise<ServeChild>;
  takes(pid: number): string;
  /** Matches the lines of /proc/PID/limits that hold a tree tag. */
  tagLines: RegExp;
}

/** Ways to copy the whole tree tag of another process, so that both tags are equal. */
const TAKES_ALL: Record<string, TakesAll> = {
  "who may raise limits": {
    skip: canRaiseLimits() ? false : "root may not raise limits here",
    serve: (...args) => serveAs(root, ...args),
    takes: copiesTagAndCheckOf,
    tagLines: /^Max (file locks|realtime timeout).*$/gm,
  },
  "of a server whose limits leave one half for the tree tag": {
    skip: false,
    serve: (...args) => serveBelowAnother(...args),
    takes: (pid) => `prlimit --pid $$ --rss=${limitOf(pid, "resident set")}:`,
    tagLines: /^Max resident set.*$/gm,
  },
};

/** Starts a server below the tree tag of another server. */
async function serveBelowAnother(...args: string[]): Promise<ServeChild> {
  const program = `ulimit -x 4503599627370497; exec "$0" serve "$@"`;
  const listen = ["--listen", "ws://127.0.0.1:0", ...args];
  return new ServeChild(listen, { command: ["bash", "-c", program, PROCWIRE] }).listening();
}

const inCgroups = process.getuid?.() === 0 ? skipFor(root) || NO_SERVER_CGROUP : "only root can make cgroups";

for (const [whose, way] of Object.entries(TAKES_ALL)) {
  describe(`deserters ${whose}, which copy the whole tree tag of another process`, {
    skip: way.skip || inCgroups,
  }, () => {
    const readTagLines = (pid: number) => readFileSync(`/proc/${pid}/limits`, "utf8").match(way.tagLines);

    /** Returns the pids of the process whose tree tag is copied (`other`) and of the deserter (`pid`). */
    const desert = async (server: ServeChild, then: string, more: object = {}) => {
      const other = await startDaemon(await connected(server), "other", NOTHING, "exec sleep 1000", more);
      const client = await connected(server);
      const pid = await startDaemon(client, "p", way.takes(other), then);
      assert.deepEqual(readTagLines(pid), readTagLines(other));
      return { client, other, pid };
    };

    test("end when the process that started them is terminated, and the other process stays", async () => {
      await using server = await way.serve();
      const { client, other, pid } = await desert(server, "exec sleep 1000");
      assert.deepEqual(await client.call("process/terminate", { processId: "p" }), { running: true });
      await until("the deserter to end", () => !isAlive(pid));
      assert.ok(isAlive(other));
    });

    test("end with their session, also when the process that started them has exited", async () => {
      await using server = await way.serve("--detached-session-ttl", "0");
      const { client, other, pid } = await desert(server, "exit 0");
      assert.equal((await client.finished("p")).exitCode, 0);
      client.cut();
      await until("the deserter to end", () => !isAlive(pid));
      assert.ok(isAlive(other));
    });

    test("end with their server, even if the tree tag is that of a persistent process", {
      skip: NO_SUPERVISOR,
    }, async () => {
      await using server = new SupervisedServer(await way.serve("--supervised"));
      const { other, pid } = await desert(server.serve, "exec sleep 1000", { lifetime: "persistent" });
      const [persistent = 0] = childrenOf(server.supervisorPid).filter((child) => /^sleep/.test(commandLine(child)));
      await server.killServer([other, persistent]);
      await until("the deserter to end", () => !isAlive(pid));
      assert.ok(isAlive(other));
    });
  });
}

describe("daemons of a server that another server runs", { skip: skipFor(ordinary) }, () => {
  test("end when the process that started them is terminated, with or without a tree tag, and other daemons stay", async () => {
    await using server = await serveBelowAnother();
    const client = await connected(server);
    const early = await startDaemon(client, "early", NOTHING, "exec sleep 1000");
    for (const [processId, first] of Object.entries({ marked: NOTHING, dropped: "ulimit -m 4096" })) {
      const pid = await startDaemon(client, processId, first, "exec sleep 1000");
      await client.call("process/terminate", { processId });
      await until(`${processId} is gone`, () => !isAlive(pid));
    }
    assert.ok(isAlive(early));
  });
});

describe("daemons of an ordinary user without cgroups", () => {
  const user = ordinary;
  const skip = skipFor(user);

  test("end when the server and both watchdogs are killed at once, and those of other servers stay", {
    skip,
  }, async () => {
    await using other = await serve();
    const stays = await startDaemon(await connected(other), "p", NOTHING, "exec sleep 1000");
    const server = await serveAs(user);
    const client = await connected(server);
    const pids = [
      await startDaemon(client, "p", NOTHING, "exec sleep 1000"),
      await startDaemon(client, "gone", NOTHING, "exit 0"),
    ];
    const three = [server.child.pid ?? 0, server.lowerWatchdogPid(), server.serverPid()];
    // The test stops all of them first, so that none reacts to the death of another.
    for (const signal of ["SIGSTOP", "SIGKILL"] as const) for (const pid of three) process.kill(pid, signal);
    await until(`none is left (${pids.filter(isAlive)})`, () => !pids.some(isAlive));
    await server.exited;
    assert.ok(isAlive(stays));
  });
});
