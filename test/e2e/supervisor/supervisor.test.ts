import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import type { ExecServerClient } from "../../../src/client/exec-server-client.ts";
import type { ExecProcess } from "../../../src/exec/exec-process.ts";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { childrenOf, isAlive, PROCWIRE, ServeChild, scratchDirectory, serve } from "../../support/servers/serve.ts";
import { NO_SUPERVISOR, persistentParams, SupervisedServer } from "../../support/servers/supervised-server.ts";
import { forbidGroupsBelow, groupOf, NO_SERVER_CGROUP } from "../../support/system/server-cgroup.ts";
import { until } from "../../support/system/until.ts";

const TIMEOUT = { timeout: 600_000, skip: NO_SUPERVISOR };
const text = (words: string) => new TextEncoder().encode(words);
const ECHO = 'while read line; do echo "got $line"; done; echo over; exit 7';

/** Runs a program until it exits. */
function run(program: string, args: string[]): Promise<{ stdout: string; stderr: string; code: number }> {
  return new Promise((resolve) =>
    execFile(program, args, (error, stdout, stderr) =>
      resolve({ stdout, stderr, code: error ? Number(error.code ?? -1) : 0 }),
    ),
  );
}

const NAMED = { name: "api", labels: { team: "x" } };

/** Checks that the current server lists a process with its name, and rejects the name for another process. */
async function assertNamed(client: ExecServerClient): Promise<void> {
  const listed = (await client.list({ allSessions: true })).filter(({ running }) => running);
  assert.deepEqual(
    listed.map(({ name, labels }) => ({ name, labels })),
    [NAMED],
  );
  await assert.rejects(client.start(persistentParams("second", "true", NAMED)), {
    message: `name \`api\` is in use by process ${listed[0]?.handle}; end that process, or choose another name`,
    reason: "nameInUse",
  });
}

interface ReceivedEvents {
  output: string;
  gaps: number;
  exitCode: number | null;
}

/** Collects events until the process is closed. An unawaited rejection does not hide the error of a failed test. */
function received(process: ExecProcess): Promise<ReceivedEvents> {
  const collected = collect(process);
  collected.catch(() => undefined);
  return collected;
}

async function collect(process: ExecProcess): Promise<ReceivedEvents> {
  let output = "";
  let gaps = 0;
  let exitCode: number | null = null;
  for await (const event of process.events({ lossless: true })) {
    if (event.type === "output") output += Buffer.from(event.chunk).toString("latin1");
    if (event.type === "gap") gaps++;
    if (event.type === "exited") exitCode = event.exitCode;
    if (event.type === "failed") assert.fail(`the process failed: ${event.message}`);
  }
  return { output, gaps, exitCode };
}

describe("a server that is killed below its supervisor", TIMEOUT, () => {
  for (const kind of ["tcp", "unix"] as const) {
    test(`loses no persistent process, byte, handle or name (${kind})`, async () => {
      using directory = scratchDirectory();
      const address = kind === "tcp" ? "ws://127.0.0.1:0" : `unix://${join(directory.path, "socket")}`;
      await using server = await SupervisedServer.start("--listen", address);
      await using client = await server.connect();
      const process = await client.start(persistentParams("p", ECHO, NAMED));
      const end = received(process);
      for (const word of ["one", "two", "three"]) {
        await process.write(text(`${word}\n`));
        await waitFor(process, `got ${word}\n`);
        await server.killServer([process.pid]);
      }
      assert.equal((await client.list())[0]?.lifetime, "persistent");
      await assertNamed(client);
      await process.closeStdin();
      assert.deepEqual(await end, { output: "got one\ngot two\ngot three\nover\n", gaps: 0, exitCode: 7 });
    });
  }

  for (const [where, isGrouped] of [
    ["in a cgroup each", true],
    ["where no cgroup can be made", false],
  ] as const)
    test(`ends processes that are not persistent, and their handles report it (${where})`, {
      skip: NO_SERVER_CGROUP && isGrouped ? NO_SERVER_CGROUP : false,
    }, async () => {
      await using server = await SupervisedServer.start();
      if (!isGrouped) forbidGroupsBelow(await server.serverPid([]));
      await using client = await server.connect();
      // A child, and a daemon: an orphan in a separate POSIX session.
      const script = "sleep 300 & echo $!; (setsid sleep 300 & echo $!); wait";
      const persistent = await client.start(persistentParams("persistent", script));
      const other = await client.start(persistentParams("other", script, { lifetime: "server" }));
      const pidsIn = async (process: ExecProcess) => {
        await waitFor(process, /\d+\n\d+\n/);
        return Buffer.from((await process.snapshot()).stdout)
          .toString()
          .trim()
          .split("\n")
          .map(Number);
      };
      const [persistentChildren, otherChildren] = [await pidsIn(persistent), await pidsIn(other)];
      const isOfServer = groupOf(other.pid ?? 0) === groupOf(await server.serverPid([persistent.pid]));
      assert.equal(isOfServer, !isGrouped, "it has a cgroup of its own where one can be made");
      const [handle] = (await client.list()).filter(({ processId }) => processId === "other");
      const generation = (await client.call("environment/info", {})).generation;
      await server.killServer([persistent.pid]);
      assert.deepEqual(
        (await client.list()).map(({ processId }) => processId),
        ["persistent"],
      );
      for (const pid of [other.pid, ...otherChildren]) assert.equal(isAlive(pid ?? 0), false, `${pid} must have ended`);
      for (const pid of [persistent.pid, ...persistentChildren])
        assert.equal(isAlive(pid ?? 0), true, `${pid} must run on`);
      const present = (await client.call("environment/info", {})).generation ?? "";
      assert.equal(present, generation?.replace(/-1$/, "-2"));
      const stale = new RegExp(`generation ${present}, earlier generations left only their persistent processes$`);
      await assert.rejects(client.backend.attachByHandle(handle?.handle ?? "", {}), stale);
      const ended = await other.read({ waitMs: 10_000 });
      assert.match(ended.failure ?? "", stale);
      await assert.rejects(client.call("process/read", { processId: "other" }), stale);
      // A descendant that loses its parent still belongs to the persistent process and ends with it.
      await persistent.terminate();
      await until("the children of the persistent process end", () => !persistentChildren.some(isAlive));
    });

  test("loses neither the size, the unfinished line nor the later output of a terminal", async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const script =
      'trap "stty size" WINCH; echo up; while ! read line; do :; done; echo "line $line"; stty size; exit 3';
    const process = await client.start(persistentParams("t", script, { tty: true, size: { rows: 30, cols: 100 } }));
    const end = received(process);
    await waitFor(process, "up");
    await process.resize({ rows: 31, cols: 101 });
    await waitFor(process, "31 101");
    await process.write(text("half "));
    await waitFor(process, "half ");
    const cat = await client.start(persistentParams("cat", "cat; exit 5", { tty: true }));
    await cat.write(text("open"));
    await waitFor(cat, "open");
    await server.killServer([process.pid, cat.pid]);
    // The next server knows that the line is open, so that it takes two end-of-file characters to end the input.
    await cat.closeStdin();
    assert.equal((await cat.wait()).exitCode, 5);
    await process.write(text("whole\n"));
    const { output, exitCode } = await end;
    assert.match(output, /line half whole\r\n31 101\r\n$/);
    assert.equal(exitCode, 3);
  });

  test("repeats no write and loses none, however large", async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    // The process reads nothing until a signal arrives, so that more input waits than input ring and pipe can hold.
    const process = await client.start(persistentParams("w", "trap : USR1; sleep 300 & wait; wc -c; exit 0"));
    const size = 3_000_000;
    const writing = process.write(new Uint8Array(size).fill(120));
    await until("the process in the list", async () => (await client.list()).length === 1);
    for (let time = 0; time < 3; time++) {
      await server.killServer([process.pid]);
      await client.list();
    }
    await process.signal("SIGUSR1");
    await writing;
    await process.closeStdin();
    const { output } = await received(process);
    assert.equal(Number(output), size);
  });

  test("records the input of a process with `recordInput`, before and after", async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const process = await client.start(persistentParams("r", "cat", { tty: true, recordInput: true }));
    await process.write(text("first\n"));
    await waitFor(process, "first");
    await server.killServer([process.pid]);
    await process.write(text("second\n"));
    await waitFor(process, "second");
    const { inputs } = await client.call("process/inputs", { processId: "r" });
    assert.equal(Buffer.from(inputs.at(-1)?.chunk ?? []).toString(), "second\n");
  });

  test("does not repeat a write that is resent with its write id", async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const process = await client.start(persistentParams("p", ECHO));
    const write = { processId: "p", chunk: text("once\n"), writeId: "the-same" };
    assert.deepEqual(await client.call("process/write", write), { status: "accepted" });
    await server.killServer([process.pid]);
    assert.deepEqual(await client.call("process/write", write), { status: "accepted" });
    const output = "got once\nover\n";
    // The next server knows the session and all of its processes: another client can take it over.
    await using other = await server.connect({ resumeSessionId: client.sessionId ?? "", takeOver: true });
    assert.deepEqual(await other.call("process/write", write), { status: "accepted" });
    await other.call("process/closeStdin", { processId: "p" });
    await other.call("process/wait", { processId: "p", until: { type: "exit" } });
    const { chunks } = await other.call("process/read", { processId: "p" });
    assert.equal(chunks.map(({ chunk }) => Buffer.from(chunk).toString()).join(""), output);
  });

  test("reports the exit status of even the shortest process, and leaves no state of it", async () => {
    // Each persistent process takes some descriptors, so the supervisor raises its limit.
    const command: [string, ...string[]] = ["sh", "-c", 'ulimit -Sn 256; exec "$0" "$@"', PROCWIRE, "serve"];
    const serve = new ServeChild(["--listen", "ws://127.0.0.1:0", "--supervised"], { command });
    await using server = new SupervisedServer(await serve.listening());
    await using client = await server.connect();
    const { supervisorPid } = server;
    const serverPid = await server.serverPid([]);
    // They are dead before the supervisor has received a message about any of them.
    process.kill(supervisorPid, "SIGSTOP");
    const codes = Array.from({ length: 10 }, (_, code) => code);
    const short: ExecProcess[] = [];
    for (const code of codes) short.push(await client.start(persistentParams(`p${code}`, `exit ${code}`)));
    await until("all to be dead", () => !short.some(({ pid }) => isAlive(pid ?? 0)));
    process.kill(supervisorPid, "SIGCONT");
    const ends = await Promise.all(short.map((process) => process.wait()));
    assert.deepEqual(
      ends.map(({ exitCode }) => exitCode),
      codes,
    );
    await until("no dead child to be left", () => String(childrenOf(supervisorPid)) === String(serverPid));
    const limits = readFileSync(`/proc/${supervisorPid}/limits`, "utf8");
    const [, soft, hard] = /^Max open files +(\S+) +(\S+)/m.exec(limits) ?? [];
    assert.equal(soft, hard);
  });

  test("accepts input for a closed stdin and drops it", async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const deaf = await client.start(persistentParams("deaf", "exec <&-; echo closed; exec sleep 300"));
    await waitFor(deaf, "closed\n");
    // More than input ring and pipe hold.
    await deaf.write(new Uint8Array(1_000_000));
    await server.killServer([deaf.pid]);
    await deaf.write(new Uint8Array(1_000_000));
    await deaf.terminate();
  });

  test("reports how a process ended while no server was running", async () => {
    for (const tty of [false, true]) {
      await using server = await SupervisedServer.start();
      await using client = await server.connect();
      for (let time = 0; time < 10; time++) {
        const process = await client.start(
          persistentParams(`e${time}`, "read go; i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo $i; done; exit 42", {
            tty,
          }),
        );
        const end = received(process);
        await process.write(text("go\n"));
        await server.killServer([process.pid]);
        const { output, gaps, exitCode } = await end;
        assert.equal(exitCode, 42, `run ${time}, terminal ${tty}`);
        if (gaps === 0) assert.match(output.replaceAll("\r", ""), /1\n2\n[\s\S]*49\n50\n$/);
      }
    }
  });

  test("is restarted after every crash, with growing delays, and loses no persistent process", async () => {
    await using server = await SupervisedServer.asShipped();
    await using client = await server.connect();
    const persistent = await client.start(persistentParams("p", ECHO));
    const end = received(persistent);
    for (let time = 0; time < 6; time++) {
      await server.killServer([persistent.pid]);
      await client.list();
    }
    const delays = [...server.serve.stderr.matchAll(/killed by signal 9; supervisor restarts it(?: in (\d+) ms)?\n/g)];
    const expectedDelays = [0, 100, 200, 400, 800, 1600];
    assert.equal(delays.length, expectedDelays.length);
    for (const [at, expected] of expectedDelays.entries()) {
      const delay = Number(delays[at]?.[1] ?? 0);
      // The supervisor reports the rest of the delay; on a loaded host, nothing may be left of a short one.
      assert.ok(delay <= expected, `delay ${at} is ${delay} ms`);
      if (expected >= 1600) assert.ok(delay > expected / 4, `delay ${at} is ${delay} ms`);
    }
    await persistent.write(text("on\n"));
    await persistent.closeStdin();
    assert.deepEqual(await end, { output: "got on\nover\n", gaps: 0, exitCode: 7 });
  });

  test("is not restarted after --give-up-after crashes within a minute: the supervisor reports that and ends everything", async () => {
    await using server = await SupervisedServer.asShipped("--give-up-after", "5");
    await using client = await server.connect();
    using directory = scratchDirectory();
    const bye = join(directory.path, "bye");
    const { pid } = await client.start(persistentParams("p", `trap 'touch ${bye}; exit' TERM; sleep 300 & wait`));
    for (let time = 0; time < 5; time++) {
      if (time > 0) await client.list();
      await server.killServer([pid]);
    }
    assert.deepEqual(await server.serve.exited, { code: 1, signal: null });
    assert.match(server.serve.stderr, /server was killed by signal 9, 5 crashes within a minute; supervisor gives up/);
    assert.ok(statSync(bye), "the process receives SIGTERM first");
    assert.equal(isAlive(pid ?? 0), false);
  });
});

describe("a server that is replaced", TIMEOUT, () => {
  test("restarts hot on SIGHUP: no client is rejected, and the socket stays the same", async () => {
    using directory = scratchDirectory();
    const path = join(directory.path, "socket");
    await using server = await SupervisedServer.start("--listen", `unix://${path}`);
    const { ino } = statSync(path);
    await using client = await server.connect();
    const process = await client.start(persistentParams("p", ECHO, NAMED));
    const end = received(process);
    const waiting = process.wait({ until: { type: "exit" } });
    waiting.catch(() => undefined);
    for (let time = 0; time < 3; time++) {
      const former = await server.serverPid([process.pid]);
      server.serve.child.kill("SIGHUP");
      await process.write(text(`${time}\n`));
      // A client that connects during the handoff waits in the backlog, or loses its session with the former server.
      await using stranger = await server.connect();
      await stranger.list().catch((error: Error) => {
        assert.match(error.message, /failed to resume exec-server session: unknown session id/);
      });
      await until("the former server to be gone", () => !isAlive(former));
    }
    assert.equal(statSync(path).ino, ino);
    await assertNamed(client);
    await process.closeStdin();
    assert.deepEqual(await end, { output: "got 0\ngot 1\ngot 2\nover\n", gaps: 0, exitCode: 7 });
    assert.equal((await waiting).exitCode, 7);
    await server.serve.stop();
    assert.throws(() => statSync(path), /ENOENT/);
  });

  test("restarts once more if SIGHUP arrives while it starts", async () => {
    await using server = await SupervisedServer.start();
    const first = await server.serverPid([]);
    server.serve.child.kill("SIGHUP");
    let second = first;
    await until("the next server to be started", () => {
      second = childrenOf(server.supervisorPid)[0] ?? first;
      return second !== first;
    });
    server.serve.child.kill("SIGHUP");
    await until("the next server to be gone", () => !isAlive(second));
    await using client = await server.connect();
    assert.deepEqual(await client.list(), []);
  });

  test("terminates non-persistent processes gracefully and rejects starts meanwhile; the next server accepts them", async () => {
    using directory = scratchDirectory();
    const file = join(directory.path, "end");
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const persistent = await client.start(persistentParams("persistent", ECHO));
    const script = `trap 'echo terminated' TERM; echo up; until [ -e ${file} ]; do sleep 0.01; done; echo bye`;
    const other = await client.start(persistentParams("other", script, { lifetime: "session" }));
    await waitFor(other, "up\n");
    server.serve.child.kill("SIGHUP");
    await waitFor(other, "terminated\n");
    const starting = client.start(persistentParams("late", "echo here", { lifetime: "session" }));
    // The server rejected the start before it responds to this call.
    await client.list();
    writeFileSync(file, "");
    await waitFor(other, "bye\n");
    assert.equal((await received(await starting)).output, "here\n");
    await persistent.terminate();
  });

  test("is replaced when it hangs", async () => {
    using directory = scratchDirectory();
    const config = join(directory.path, "config.json");
    writeFileSync(config, JSON.stringify({ supervised: true, livenessTimeout: 1 }));
    await using server = await SupervisedServer.start("--config", config);
    await using client = await server.connect();
    const process = await client.start(persistentParams("p", ECHO));
    const hung = await server.killServer([process.pid], "SIGSTOP");
    await until("the hung server to be gone", () => !isAlive(hung));
    await process.write(text("on\n"));
    await waitFor(process, "got on\n");
    assert.match(server.serve.stderr, /server sent no heartbeat for 1000 ms; replacing it/);
  });

  test("is ended by SIGTERM even when it hangs, together with its persistent processes", async () => {
    await using server = await SupervisedServer.impatient();
    await using client = await server.connect();
    const { pid } = await client.start(persistentParams("p", "trap '' TERM; sleep 300 & wait"));
    const hung = await server.killServer([pid], "SIGSTOP");
    await server.serve.stop();
    for (const left of [hung, pid]) assert.equal(isAlive(left ?? 0), false);
  });

  test("ends everything gracefully on SIGTERM", async () => {
    await using server = await SupervisedServer.start();
    await using client = await server.connect();
    const process = await client.start(
      persistentParams("p", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done"),
    );
    await waitFor(process, "up\n");
    const end = received(process);
    assert.deepEqual(await server.serve.stop(), { code: 0, signal: null });
    assert.match((await end).output, /^up\n[\s\S]*bye\n$/);
    assert.equal(isAlive(process.pid ?? 0), false);
  });

  test("that cannot listen makes its supervisor exit with the exit code of the server", async () => {
    await using first = await serve();
    await using second = new ServeChild(["--listen", first.url, "--supervised"]);
    assert.equal((await second.exited).code, 1);
    assert.match(second.stderr, /EADDRINUSE/);
    assert.doesNotMatch(second.stderr, /supervisor restarts it/);
  });
});

describe("a supervisor that is killed", TIMEOUT, () => {
  test("leaves no server and no process", async () => {
    for (let time = 0; time < 5; time++) {
      await using server = await SupervisedServer.start();
      await using client = await server.connect();
      const persistent = await client.start(persistentParams("p", "setsid sleep 300 & echo $!; wait"));
      await waitFor(persistent, "\n");
      const child = Number(Buffer.from((await persistent.snapshot()).stdout).toString());
      const all = [persistent.pid ?? 0, child, await server.serverPid([persistent.pid])];
      process.kill(server.supervisorPid, "SIGKILL");
      await server.serve.exited;
      for (const pid of all) assert.equal(isAlive(pid), false, `run ${time}: ${pid}`);
    }
  });
});

describe("the persistent lifetime", TIMEOUT, () => {
  test("is rejected by a server without a supervisor", async () => {
    await using plain = await serve();
    await using wire = await plain.connect();
    await wire.handshake({ extensions: ["attach"] });
    const params = {
      processId: "p",
      argv: ["true"],
      cwd: "file:///",
      env: {},
      tty: false,
      lifetime: "persistent",
    };
    assert.equal(
      (await wire.refused("process/start", params)).message,
      'lifetime "persistent" is not available: this server runs without --supervised',
    );
  });

  test("outlives its session: the next server still has a command without a client", async () => {
    await using server = await SupervisedServer.start("--detached-session-ttl", "0");
    const { stdout } = await run(PROCWIRE, [
      ...["run", "--connect", server.url, "--detach", "--lifetime", "persistent", "--"],
      ...["sh", "-c", "echo first; sleep 300"],
    ]);
    const handle = stdout.trim();
    const listed = async () => {
      await using client = await server.connect();
      return (await client.list({ allSessions: true }))[0];
    };
    const before = await listed();
    await server.killServer([before?.pid ?? 0]);
    const after = await listed();
    assert.equal(after?.handle, handle);
    assert.equal(after?.startedAtMs, before?.startedAtMs);
    const { stdout: table } = await run(PROCWIRE, ["ps", "--all", "--connect", server.url]);
    assert.match(table, new RegExp(`${handle}.* persistent `));
    const { stdout: logs } = await run(PROCWIRE, ["logs", "--connect", server.url, handle]);
    assert.equal(logs, "first\n");
  });

  test("needs a socket and a token that outlive the server", async () => {
    const refused = async (...args: string[]) => {
      const { stderr, code } = await run(PROCWIRE, ["serve", "--supervised", ...args]);
      assert.notEqual(code, 0);
      return stderr;
    };
    assert.match(await refused(), /--supervised requires a socket that outlives the server: --listen/);
    const auto = await refused("--listen", "ws://127.0.0.1:0", "--ws-auth", "auto");
    assert.match(auto, /--ws-auth auto conflicts with --supervised/);
    // The server reads the file, with or without a supervisor.
    using directory = scratchDirectory();
    const path = join(directory.path, "config.json");
    writeFileSync(path, JSON.stringify({ listen: "ws://127.0.0.1:0", supervised: true, livenessTimeout: 1 }));
    const { stderr, code } = await run(PROCWIRE, ["serve", "--config", path]);
    assert.equal(code, 2);
    assert.match(stderr, /`supervised` in --config .* is read after the supervisor starts; add the flag --supervised/);
  });
});
