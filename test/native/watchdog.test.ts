import assert from "node:assert/strict";
import type { ChildProcess } from "node:child_process";
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { nativeFileCandidates } from "../../src/native/native-files.ts";
import { childrenOf } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";
import { addon, isRunning, NO_ADDON, startChild, TERMINAL } from "./started.ts";

const watchdog = nativeFileCandidates("watchdog").next().value;
const fixtures = join(import.meta.dirname, "..", "fixtures", "native");
const scratch = mkdtempSync(join(tmpdir(), "procwire-watchdog-"));
after(() => rmSync(scratch, { recursive: true, force: true, maxRetries: 10 }));

function startWatchdog(argv: string[], stdio: "pipe" | "ignore" = "pipe"): ChildProcess {
  assert.ok(watchdog);
  return spawn(watchdog, ["--", ...argv], { stdio: [stdio, stdio, "inherit"] });
}

function guardFor(patienceMs: number, argv: string[]): ChildProcess {
  assert.ok(watchdog);
  return spawn(watchdog, ["--shutdown-timeout-ms", String(patienceMs), "--", ...argv], {
    stdio: ["ignore", "pipe", "pipe"],
  });
}

function ended(child: ChildProcess): Promise<[code: number | null, signal: string | null]> {
  return new Promise((resolve) => child.once("exit", (code, signal) => resolve([code, signal])));
}

async function firstOutput(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => child.stdout?.once("data", (data: Buffer) => resolve(data.toString())));
}

const pidsIn = (place: string) => readdirSync(place).map((name) => Number(readFileSync(join(place, name), "utf8")));
const childOf = (pid: number) => addon().childPids(pid)[0] ?? 0;
/** Below both watchdogs. */
const serverOf = (pid: number) => childOf(childOf(pid));

describe("the watchdog", {
  skip: NO_ADDON || (watchdog ? false : "THE WATCHDOG IS NOT TESTED: it was not built"),
}, () => {
  test("exits with the code of its server, or by the same signal", async () => {
    for (const code of [0, 1, 42])
      assert.deepEqual(await ended(startWatchdog(["sh", "-c", `exit ${code}`])), [code, null]);
    for (const signal of ["TERM", "KILL", "SEGV", "INT"])
      assert.deepEqual(await ended(startWatchdog(["sh", "-c", `ulimit -c 0; kill -${signal} $$; sleep 10`])), [
        null,
        `SIG${signal}`,
      ]);
  });

  test("survives a SIGHUP that its server survives", async () => {
    // The watchdog reports it after three times the timeout.
    const script =
      "trap 'at=0' HUP; echo ready; while :; do sleep 0.02; [ -z \"$at\" ] && continue; at=$((at+1)); [ $at = 30 ] && echo still; done";
    const child = guardFor(200, ["sh", "-c", script]);
    await firstOutput(child);
    child.kill("SIGHUP");
    const code = ended(child);
    assert.equal(await Promise.race([firstOutput(child), code.then(() => "ended")]), "still\n");
    child.kill("SIGTERM");
    assert.deepEqual(await code, [null, "SIGTERM"]);
  });

  test("reports an error if the server cannot be executed", async () => {
    const child = spawn(watchdog ?? "", ["--", "no-such-server"], { stdio: ["ignore", "ignore", "pipe"] });
    const code = ended(child);
    const text = (await child.stderr?.toArray())?.join("");
    assert.equal(text, "procwire: cannot run no-such-server: No such file or directory\n");
    assert.deepEqual(await code, [127, null]);
  });

  test("removes NOTIFY_SOCKET from the environment of its server", async () => {
    const script = "env | grep -E 'NOTIFY_SOCKET|PROCWIRE_SERVICE'; readlink /proc/self/fd/[3-9]*";
    const child = spawn(watchdog ?? "", ["--", "sh", "-c", script], {
      stdio: ["ignore", "pipe", "inherit"],
      env: { ...process.env, NOTIFY_SOCKET: join(scratch, "notify"), PROCWIRE_SERVICE_STATE_FD: "1" },
    });
    const code = ended(child);
    assert.equal((await child.stdout.toArray()).join(""), "");
    assert.deepEqual(await code, [1, null]);
  });

  test("forwards TERM and HUP, and an INT from another process", async () => {
    for (const signal of ["SIGTERM", "SIGHUP", "SIGINT"] as const) {
      const name = signal.slice(3);
      const child = startWatchdog([
        "sh",
        "-c",
        `trap "echo got ${name}; exit 9" ${name}; echo ready; while :; do sleep 0.02; done`,
      ]);
      assert.equal(await firstOutput(child), "ready\n");
      const recorded = firstOutput(child);
      child.kill(signal);
      assert.equal(await recorded, `got ${name}\n`);
      assert.deepEqual(await ended(child), [9, null]);
    }
  });

  test("holds open only its cgroup and the pipe to the sentinel, and neither stdin nor stdout", async () => {
    const child = startWatchdog(["cat"]);
    child.stdin?.write("through\n");
    assert.equal(await firstOutput(child), "through\n");
    const open = (pid: number | undefined) =>
      readdirSync(`/proc/${pid}/fd`).map((fd) => [fd, readlinkSync(`/proc/${pid}/fd/${fd}`)] as const);
    // The initial arguments, without those of the watchdogs.
    const [lower = 0] = childrenOf(child.pid ?? 0);
    const [server = 0] = childrenOf(lower);
    assert.deepEqual(
      open(server).filter(([, path]) => path.includes("cgroup")),
      [],
    );
    for (const pid of [child.pid, lower])
      await until(`${pid} has closed all other descriptors`, () => {
        const [stdin, stdout, , ...others] = open(pid).map(([, path]) => path);
        const ownOnly = others.length <= 3 && others.every((path) => /^\/.*cgroup|^pipe:/.test(path));
        return ownOnly && stdin === "/dev/null" && stdout === "/dev/null";
      });
    const status = readFileSync(`/proc/${child.pid}/status`, "utf8");
    assert.ok(Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) < 2048, status);
    const done = ended(child);
    child.stdin?.end();
    assert.deepEqual(await done, [0, null]);
  });

  test("does not forward an interrupt from a terminal, which the server receives itself", async () => {
    // The terminal sends the signal to both, and the server must count one. Node counts each signal, while the trap of a
    // shell would merge two into one.
    const server = `let count = 0; process.on("SIGINT", () => { if (++count === 1) setTimeout(() => console.log("count=" + count), 200); }); setInterval(() => {}, 1000); console.log("ready");`;
    const started = await startChild([watchdog ?? "", "--", process.execPath, "-e", server], {
      terminal: TERMINAL,
    });
    await started.until((output) => output.includes("ready"));
    started.child.input.write(Buffer.from("\x03"));
    await started.until((output) => output.includes("count="));
    assert.match(started.output().toString(), /count=1\r/);
    started.child.signalGroup(9);
    await started.close;
  });

  for (const victim of ["server", "watchdog"] as const) {
    test(`leaves no descendant when the ${victim} is killed: pipe, terminal, ignoring signals, own POSIX session, forked twice`, async () => {
      const places = ["pipe", "terminal"].map(() => mkdtempSync(join(scratch, `${victim}-`)));
      const child = startWatchdog([process.execPath, join(fixtures, "server.ts"), ...places]);
      assert.equal(await firstOutput(child), "ready\n");
      const pids = places.flatMap(pidsIn);
      assert.equal(pids.length, 8);
      const server = serverOf(child.pid ?? 0);
      for (const pid of [...pids, server]) assert.ok(isRunning(pid), `${pid} was not even running`);
      const done = ended(child);
      process.kill(victim === "server" ? server : (child.pid ?? 0), "SIGKILL");
      assert.deepEqual(await done, [null, "SIGKILL"]);
      for (const pid of [...pids, server]) await until(`${pid} is gone`, () => !isRunning(pid));
    });
  }

  test("kills the processes that remain when a server exits", async () => {
    const place = mkdtempSync(join(scratch, "left-"));
    const script = `sh "${fixtures}/orphan-maker.sh" "${place}" & while [ ! -s "${place}/leader" ]; do sleep 0.01; done; exit 6`;
    assert.deepEqual(await ended(startWatchdog(["sh", "-c", script], "ignore")), [6, null]);
    const pids = pidsIn(place);
    assert.equal(pids.length, 4);
    for (const pid of pids) assert.ok(!isRunning(pid));
  });

  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    test(`kills a server that does not exit after ${signal}, and all its processes`, async () => {
      const place = mkdtempSync(join(scratch, "deaf-"));
      const script = `trap "" TERM INT; sh "${fixtures}/orphan-maker.sh" "${place}" & while [ ! -s "${place}/leader" ]; do sleep 0.01; done; echo ready; while :; do sleep 1; done`;
      const child = guardFor(200, ["sh", "-c", script]);
      // Once by the script itself and once by the orphan maker, in one chunk or in two.
      assert.match(await firstOutput(child), /^ready\n/);
      const said = child.stderr?.toArray();
      const done = ended(child);
      child.kill(signal);
      assert.deepEqual(await done, [null, "SIGKILL"]);
      for (const pid of pidsIn(place)) assert.ok(!isRunning(pid), `${pid} is left`);
      assert.match(String((await said)?.join("")), /server reported no shutdown progress for 200 ms; killing it/);
    });
  }

  test("kills a stopped server", async () => {
    const child = guardFor(200, ["sh", "-c", "kill -STOP $$; exit 3"]);
    const done = ended(child);
    await until("it is stopped", () => {
      const server = serverOf(child.pid ?? 0);
      return server > 0 && /\) T /.test(readFileSync(`/proc/${server}/stat`, "utf8"));
    });
    child.kill("SIGTERM");
    assert.deepEqual(await done, [null, "SIGKILL"]);
  });

  test("waits while the server reports shutdown progress, and ignores reports of other processes", async () => {
    const script = (rounds: number) =>
      `trap 'n=0; while [ $n -lt ${rounds} ]; do kill -USR1 $PROCWIRE_WATCHDOG; sleep 0.2; n=$((n+1)); done; exit 7' TERM; echo ready; while :; do sleep 0.02; done`;
    const busy = guardFor(1500, ["bash", "-c", script(15)]);
    assert.equal(await firstOutput(busy), "ready\n");
    const done = ended(busy);
    busy.kill("SIGTERM");
    assert.deepEqual(await done, [7, null]);

    const deaf = guardFor(1500, ["sh", "-c", 'trap "" TERM; echo ready; while :; do sleep 1; done']);
    assert.equal(await firstOutput(deaf), "ready\n");
    const killed = ended(deaf);
    deaf.kill("SIGTERM");
    const stranger = setInterval(() => deaf.kill("SIGUSR1"), 50);
    assert.deepEqual(await killed, [null, "SIGKILL"]);
    clearInterval(stranger);
  });
});
