import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  mkdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { describe, test } from "node:test";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import { collectOutput } from "../../src/exec/run/collect-output.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { ensureRuntimeDirectory } from "../../src/host/runtime-directory.ts";
import { bridge } from "../../src/host/stdio-bridge.ts";
import { connectUserServer } from "../../src/host/user-server.ts";
import { watchIdle } from "../../src/server/lifecycle/idle-exit.ts";
import { carryThroughCuts } from "../support/faults/cut-pipe.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { isAlive, PROCWIRE, ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { NO_SUPERVISOR, persistentParams } from "../support/servers/supervised-server.ts";
import { UserServerDirectory } from "../support/servers/user-server.ts";
import { nameOf } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

const TIMEOUT = { timeout: 600_000 };

describe("a server that is started on demand", TIMEOUT, () => {
  test("runs commands over the stdio of a connect program, outlives that program, and serves the next client", async () => {
    await using place = new UserServerDirectory();
    const run = (...words: string[]) =>
      runCli(["run", "--connect", place.url("echo a greeting; printf more;"), "--", ...words], {
        cwd: place.directory,
        stdin: "typed\n",
      });
    const first = await run("sh", "-c", "cat; echo problem >&2; exit 7");
    assert.deepEqual([first.code, first.stdout, first.stderr], [7, "typed\n", "problem\n"]);
    const pids = place.serverPids();
    assert.ok(pids.length > 0);
    const second = await run("echo", "again");
    assert.deepEqual([second.code, second.stdout], [0, "again\n"]);
    assert.deepEqual(place.serverPids(), pids);
    assert.equal(statSync(place.runtimeDirectory).mode & 0o777, 0o700);
    assert.equal(statSync(join(place.runtimeDirectory, "server.sock")).mode & 0o777, 0o600);
  });

  test("starts once, even if many clients request it at the same moment", async () => {
    for (let round = 0; round < 3; round++) {
      await using place = new UserServerDirectory();
      const sockets = await Promise.all(
        Array.from({ length: 40 }, () => connectUserServer({ directory: place.runtimeDirectory })),
      );
      for (const socket of sockets) socket.destroy();
      assert.equal(place.log().match(/listening on/g)?.length, 1);
    }
  });

  test("runs in a separate POSIX session and inherits no descriptor of the program that started it", async () => {
    await using place = new UserServerDirectory();
    // Node itself closes descriptor 9, but not descriptor 60.
    const held = spawn(
      "bash",
      ["-c", `exec 9>&2 60>&2; PROCWIRE_RUNTIME_DIR='${place.runtimeDirectory}' '${PROCWIRE}' connect`],
      { stdio: ["pipe", "pipe", "pipe"] },
    );
    held.stdin.end();
    const [logged] = await Promise.all([text(held.stderr), text(held.stdout), once(held, "exit")]);
    assert.equal(logged, "");
    const [pid] = place.serverPids();
    assert.ok(pid !== undefined && isAlive(pid));
    assert.equal(readlinkSync(`/proc/${pid}/fd/2`), join(place.runtimeDirectory, "server.log"));
    const session = readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /, "")
      .split(" ")[3];
    assert.ok(place.serverPids().includes(Number(session)));
  });

  test("is replaced when it is killed, and the handle of a persistent process stays valid", {
    skip: NO_SUPERVISOR,
  }, async () => {
    await using place = new UserServerDirectory();
    await using client = await NodeExecServerClient.connectWebSocket({ url: place.url() });
    const script = 'while read line; do echo "got $line"; done; exit 7';
    const persistent = await client.start(persistentParams("persistent", script));
    const end = collectOutput(persistent);
    const write = (words: string) => persistent.write(new TextEncoder().encode(words));
    // Twice, because a replacement must be replaceable as well.
    for (const word of ["one", "two"]) {
      await write(`${word}\n`);
      await waitFor(persistent, `got ${word}\n`);
      const [pid = 0] = place.serverPids().filter((one) => nameOf(`/proc/${one}/exe`).endsWith("/node"));
      process.kill(pid, "SIGKILL");
      await until("the killed server to exit", () => !isAlive(pid));
    }
    await write("three\n");
    await waitFor(persistent, "got three\n");
    await persistent.closeStdin();
    const { stdout, exit } = await end;
    assert.deepEqual([Buffer.from(stdout).toString(), exit.exitCode], ["got one\ngot two\ngot three\n", 7]);
  });

  test("exits together with its supervisor after the idle timeout", async () => {
    await using place = new UserServerDirectory();
    const socket = await connectUserServer({ directory: place.runtimeDirectory, idleExitSeconds: 0.3 });
    socket.destroy();
    await until("all of it has ended", () => place.serverPids().length === 0);
    assert.equal(statSync(join(place.runtimeDirectory, "server.sock"), { throwIfNoEntry: false }), undefined);
  });

  test("reports why it could not start", async () => {
    await using place = new UserServerDirectory();
    mkdirSync(place.runtimeDirectory, { mode: 0o700 });
    writeFileSync(join(place.runtimeDirectory, "server.sock"), "");
    const { code, stderr } = await runCli(["run", "--connect", place.url(), "--", "true"], {
      cwd: place.directory,
    });
    assert.equal(code, 125);
    assert.match(stderr, /a server was started and ended with 2: .*there is a file that is not a socket/);
  });

  test("receives the request again if it exits before it responds", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "socket");
    let taken = 0;
    await using server = createServer((socket) => {
      taken++;
      // Closes the first connection after its request, like a server that exits because it was idle.
      if (taken === 1) socket.once("data", () => socket.destroy());
      else socket.pipe(socket);
    }).listen(path);
    await once(server, "listening");
    const input = new PassThrough();
    const output = new PassThrough();
    const bridged = bridge(input, output, () => opened(path));
    input.write("request");
    const [answer] = await once(output, "data");
    input.end(" and more");
    assert.equal(String(answer) + (await text(output)), "request and more");
    await bridged;
    assert.equal(taken, 2);
  });
});

function opened(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path, allowHalfOpen: true });
    socket.once("error", reject);
    socket.once("connect", () => resolve(socket));
  });
}

describe("the directory of a per-user server", () => {
  test("is refused if other users have access to it", () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "runtime");
    ensureRuntimeDirectory(path);
    ensureRuntimeDirectory(path);
    assert.equal(statSync(path).mode & 0o777, 0o700);
    chmodSync(path, 0o750);
    assert.throws(() => ensureRuntimeDirectory(path), /others may use it \(mode 0750\); chmod it to 0700/);
    chmodSync(path, 0o700);
    const link = join(scratch.path, "link");
    symlinkSync(path, link);
    assert.throws(() => ensureRuntimeDirectory(link), /it is a symbolic link; set PROCWIRE_RUNTIME_DIR/);
    writeFileSync(join(scratch.path, "file"), "");
    assert.throws(() => ensureRuntimeDirectory(join(scratch.path, "file")), /it is a file/);
    assert.throws(() => ensureRuntimeDirectory(join(scratch.path, "no", "such")), /cannot make the runtime directory/);
    if (process.getuid?.() !== 0) return;
    chownSync(path, 12345, 12345);
    assert.throws(() => ensureRuntimeDirectory(path), /it belongs to user 12345, not to 0/);
  });
});

describe("a connection through a program", TIMEOUT, () => {
  test("loses and duplicates nothing when the program is killed repeatedly", async () => {
    await using place = new UserServerDirectory();
    const pids = join(place.directory, "pids");
    writeFileSync(pids, "");
    const connectPids = () => readFileSync(pids, "utf8").trim().split("\n").map(Number);
    await using client = await NodeExecServerClient.connectWebSocket({
      url: place.url(`echo $$ >> '${pids}';`),
      logLimits: { retainedBytes: 64 * 1024 * 1024 },
    });
    await carryThroughCuts(client, {
      bytes: 6_000_000,
      cuts: 4,
      opened: () => connectPids().length,
      cut: () => void process.kill(connectPids().at(-1) ?? 0, "SIGKILL"),
    });
  });

  test("reports the program's own message when it does not connect", async () => {
    const failing = (command: string) =>
      NodeExecServerClient.connectWebSocket({ url: `exec:${command}`, connectTimeoutMs: 20_000 });
    await assert.rejects(failing("echo no route >&2; exit 255"), {
      code: "PIPE",
      message: /^exec:.*: no route$/s,
    });
    await assert.rejects(failing("exit 3"), {
      code: "PIPE",
      message: /`\/bin\/sh` exited with exit code 3$/,
    });
    await assert.rejects(failing("true"), { code: "PIPE", message: /exited before it reached a server$/ });
    await assert.rejects(failing("yes"), { code: "PIPE", message: /got \d+ bytes of other output$/ });
    await assert.rejects(failing("echo; echo procwire-connect missing Linux sparc64; exit 127"), {
      code: "MISSING",
      message: /procwire is not installed on that host \(Linux sparc64\); add it to the PATH/,
    });
    await assert.rejects(NodeExecServerClient.connectWebSocket({ url: "exec:exec sleep 100", connectTimeoutMs: 300 }), {
      code: "TIMEOUT",
    });
  });

  test("reaches another server by its path", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "other.sock");
    await using server = await new ServeChild(["--listen", `unix://${path}`]).listening();
    await using client = await NodeExecServerClient.connectWebSocket({
      url: `exec:'${PROCWIRE}' connect unix://${path}`,
    });
    const child = await client.start({
      processId: "1",
      argv: ["echo", "there"],
      cwd: "/",
      env: {},
      tty: false,
    });
    const { stdout } = await collectOutput(child);
    assert.equal(Buffer.from(stdout).toString(), "there\n");
    await server.stop();
    await assert.rejects(
      NodeExecServerClient.connectWebSocket({ url: `exec:'${PROCWIRE}' connect unix://${path}` }),
      /no procwire server at .*other\.sock/,
    );
  });
});

describe("a server with --idle-exit", TIMEOUT, () => {
  test("exits after that time without connections, sessions and processes", async () => {
    const clock = new ManualClock();
    const server = { connectionCount: 0, sessionCount: 0, liveProcessCount: 0, acceptedCount: 0 };
    let isOver = false;
    const watch = watchIdle(server, 1000, clock);
    void watch.over.then(() => {
      isOver = true;
    });
    const isOverAfter = async (ms: number) => {
      await clock.advance(ms);
      return isOver;
    };
    for (const name of ["connectionCount", "sessionCount", "liveProcessCount"] as const) {
      assert.equal(await isOverAfter(900), false);
      server[name] = 1;
      assert.equal(await isOverAfter(3000), false, name);
      server[name] = 0;
    }
    assert.equal(await isOverAfter(900), false);
    // A client connected and left between two checks.
    server.acceptedCount++;
    assert.equal(await isOverAfter(900), false);
    assert.equal(await isOverAfter(300), true);
  });

  test("exits with code 0 and removes its socket", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "idle.sock");
    await using server = await new ServeChild([
      ...["--listen", `unix://${path}`, "--idle-exit", "0.3", "--detached-session-ttl", "0"],
    ]).listening();
    const client = await NodeExecServerClient.connectUnix({ path });
    await client.close();
    assert.deepEqual(await server.exited, { code: 0, signal: null });
    assert.equal(statSync(path, { throwIfNoEntry: false }), undefined);
  });
});

describe("PROCWIRE_CONNECT and --wait", TIMEOUT, () => {
  test("selects the server of commands without --connect, unless they run locally", async () => {
    using scratch = scratchDirectory();
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"]).listening();
    const env = { PROCWIRE_CONNECT: server.url.replace("ws://", "") };
    const cli = (...args: string[]) => runCli(args, { cwd: scratch.path, env });
    const there = await cli("run", "--", "sh", "-c", "echo $PPID");
    assert.equal(Number(there.stdout), server.serverPid());
    const here = await cli("run", "--connect", "local", "--", "sh", "-c", "echo $PPID");
    assert.notEqual(Number(here.stdout), server.serverPid());
    assert.equal((await cli("ps")).code, 0);
    const wrong = await runCli(["ps"], { cwd: scratch.path, env: { PROCWIRE_CONNECT: "gopher://x" } });
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /^procwire ps: unsupported PROCWIRE_CONNECT `gopher:\/\/x`; expected/);
  });

  test("waits for a server to come up", async () => {
    using scratch = scratchDirectory();
    const path = join(scratch.path, "late.sock");
    const waiting = runCli(["run", "--connect", `unix://${path}`, "--wait", "60", "--", "echo", "up"], {
      cwd: scratch.path,
    });
    const early = await runCli(["run", "--connect", `unix://${path}`, "--", "echo", "up"], {
      cwd: scratch.path,
    });
    assert.equal(early.code, 125);
    assert.match(early.stderr, /no procwire server at .*late\.sock/);
    await using _ = await new ServeChild(["--listen", `unix://${path}`]).listening();
    const { code, stdout } = await waiting;
    assert.deepEqual([code, stdout], [0, "up\n"]);
  });
});
