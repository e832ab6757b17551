import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { NO_ADDON, startChild, TERMINAL } from "../../native/started.ts";
import { sh, startParams, WireClient, webSocketWire } from "../../support/servers/raw-connection.ts";
import {
  isAlive,
  PROCWIRE,
  ServeChild,
  scratchDirectory,
  serve,
  withEnvironment,
} from "../../support/servers/serve.ts";
import { until } from "../../support/system/until.ts";

/** No started process survives when one of procwire's programs is killed without warning. */

const watchdog = fileURLToPath(new URL("../../../native/build/watchdog", import.meta.url));
const skip = !existsSync(watchdog) && "the watchdog is not built: it needs a C++ compiler";

/** Each script prints the pids of the processes that must not survive, one pid on each line. */
const KINDS: Record<string, { script: string; pids: number; tty?: boolean }> = {
  "with pipes": { script: "echo $$; sleep 1000 & echo $!; wait", pids: 2 },
  "in a terminal": { script: "echo $$; sleep 1000 & echo $!; wait", pids: 2, tty: true },
  "in a session of its own": { script: "setsid sh -c 'echo $$; exec sleep 1000' & echo $$; wait", pids: 2 },
  "twice forked": { script: "(setsid sh -c 'echo $$; exec sleep 1000' &) ; echo $$; sleep 1000", pids: 2 },
  "whose leader is gone": {
    script: "(setsid sh -c 'echo $$; exec sleep 1000 >/dev/null 2>&1 </dev/null' &)",
    pids: 1,
  },
  "deaf to TERM and HUP": {
    script: "trap '' TERM HUP INT; echo $$; sh -c 'echo $$; while :; do sleep 1; done' & wait",
    pids: 2,
  },
  "deaf in a terminal": {
    script: "trap '' TERM HUP INT; echo $$; while :; do sleep 1; done",
    pids: 1,
    tty: true,
  },
};

async function startAll(server: ServeChild): Promise<{ client: WireClient; pids: Map<string, number[]> }> {
  const client = await server.connect();
  await client.handshake();
  const pids = new Map<string, number[]>();
  for (const [kind, { script, tty = false }] of Object.entries(KINDS)) await client.start(kind, sh(script), { tty });
  for (const [kind, { pids: count }] of Object.entries(KINDS)) {
    const found = () => client.output(kind).match(/\d+(?=\r?\n)/g) ?? [];
    await client.until(`the pids of ${kind}`, () => found().length >= count);
    pids.set(kind, found().map(Number));
  }
  for (const [kind, all] of pids) assert.ok(all.every(isAlive), `${kind} is not there to begin with`);
  return { client, pids };
}

async function waitForEnd(pids: Map<string, number[]>): Promise<void> {
  for (const [kind, all] of pids) {
    await until(`what was started ${kind} is gone (${all.filter(isAlive)})`, () => !all.some(isAlive));
  }
}

describe("no orphans", { skip }, () => {
  test("the watchdogs are small, and one of them is the parent of the server", async () => {
    await using server = await serve();
    const watchdogs = [server.child.pid, server.lowerWatchdogPid()];
    assert.equal(new Set([...watchdogs, server.serverPid()]).size, 3);
    for (const pid of watchdogs) {
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      const kilobytes = Number(/^VmRSS:\s+(\d+)/m.exec(status)?.[1]);
      assert.ok(kilobytes < 2048, `a watchdog takes ${kilobytes} kB`);
    }
  });

  test("no process survives a SIGKILL of the server", async () => {
    await using server = await serve();
    const { client, pids } = await startAll(server);
    process.kill(server.serverPid(), "SIGKILL");
    await waitForEnd(pids);
    const exit = await server.exited;
    assert.ok(exit.signal === "SIGKILL" || exit.code === 137, JSON.stringify(exit));
    await client.ended();
  });

  test("no process survives a SIGKILL of the watchdog", async () => {
    await using server = await serve();
    const { client, pids } = await startAll(server);
    const serverPid = server.serverPid();
    server.child.kill("SIGKILL");
    await waitForEnd(pids);
    await until("the server is gone too", () => !isAlive(serverPid));
    await client.ended();
  });

  test("no process survives a graceful shutdown", async () => {
    await using server = await serve("--shutdown-grace", "0.2");
    const { pids } = await startAll(server);
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
    for (const [kind, all] of pids) assert.deepEqual(all.filter(isAlive), [], kind);
  });

  test("no process survives a SIGHUP of the server", async () => {
    await using server = await serve("--shutdown-grace", "0.2");
    const { pids } = await startAll(server);
    await server.stop("SIGHUP");
    await waitForEnd(pids);
  });

  test("a server whose terminal hangs up shuts down gracefully; its log escapes control characters of clients", {
    skip: NO_ADDON,
  }, async () => {
    using directory = scratchDirectory();
    const signalFile = join(directory.path, "signaled");
    const started = await startChild([PROCWIRE, "serve", "--listen", "ws://127.0.0.1:0"], {
      terminal: TERMINAL,
      env: { PATH: process.env.PATH ?? "/usr/bin:/bin", HOME: directory.path },
    });
    const shown = () => started.output().toString();
    await started.until(() => /ws:\S+\r\n/.test(shown()));
    const [url = ""] = /ws:\S+/.exec(shown()) ?? [];
    const client = new WireClient(await webSocketWire(url, {}));
    await client.handshake();
    // The log shows the method name of the invalid message, escaped.
    const stranger = new WireClient(await webSocketWire(url, {}));
    stranger.notify("\x1b[2Jword\u202e\x9b");
    await started.until(() => /\\x1b\[2Jword\\u202e\\u009b/.test(shown()));
    // An orphan without a tree tag; the server logs its command line when it kills the orphan.
    const up = join(directory.path, "up");
    const orphan = `(setsid bash -c 'ulimit -x 1; ulimit -m 1; echo >${up}; exec -a "$0" sleep 1000' "$1" >/dev/null 2>&1 </dev/null &); exec sleep 1000`;
    await client.start("orphan", [...sh(orphan), "sh", "\x1b[2Jname\u202e\x9b"]);
    await until("the orphan is there", () => existsSync(up));
    await client.call("process/terminate", { processId: "orphan" });
    await started.until(() => shown().includes("killed orphans"));
    await started.until(() => /\\u001b\[2Jname\\u202e\\u009b/.test(shown()));
    assert.doesNotMatch(shown(), /[\x1b\u202e\x9b]/);
    // The process exits only on SIGTERM, and writes a line to the file then.
    await client.start(
      "p",
      sh(`trap 'echo signaled >${signalFile}; exit' TERM; echo up; while :; do sleep 0.05; done`),
    );
    await client.outputContains("p", "up");
    started.child.closeStreams();
    // Exit code 0 means that the watchdogs did not have to kill the server.
    assert.deepEqual(await started.exit, { type: "code", code: 0 });
    assert.equal(existsSync(signalFile) && readFileSync(signalFile, "utf8"), "signaled\n");
    await client.ended();
  });

  /** Starts a server whose watchdog kills it after this time without progress in a shutdown. */
  function serveWithShutdownTimeout(shutdownTimeoutMs: number, ...args: string[]): Promise<ServeChild> {
    const path = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
    return new ServeChild(["--listen", "ws://127.0.0.1:0", ...args], {
      command: [
        watchdog,
        ...["--shutdown-timeout-ms", String(shutdownTimeoutMs), "--", process.execPath],
        ...[path("bin/main.cjs"), "src/cli/procwire.ts", "serve"],
      ],
    }).listening();
  }

  test("no process survives the shutdown of a hung server", async () => {
    await using server = await serveWithShutdownTimeout(300);
    const { pids } = await startAll(server);
    process.kill(server.serverPid(), "SIGSTOP");
    assert.deepEqual(await server.stop(), { code: null, signal: "SIGKILL" });
    for (const [kind, all] of pids) assert.deepEqual(all.filter(isAlive), [], kind);
  });

  test("no process survives a graceful shutdown that takes longer than the watchdog's timeout", async () => {
    await using server = await serveWithShutdownTimeout(2_000, "--shutdown-grace", "3.5");
    const { pids } = await startAll(server);
    assert.deepEqual(await server.stop(), { code: 0, signal: null });
    for (const [kind, all] of pids) assert.deepEqual(all.filter(isAlive), [], kind);
  });

  test("the processes of a server do not learn the pid of its watchdog", async () => {
    await using server = await serve();
    await using client = await server.connect();
    await client.handshake();
    const envPolicy = {
      inherit: "all",
      ignoreDefaultExcludes: true,
      exclude: [],
      set: {},
      includeOnly: [],
    };
    await client.call("process/start", startParams("p", ["/usr/bin/env"], { env: {}, envPolicy }));
    const { output } = await client.finished("p");
    assert.match(output, /^PATH=/m);
    assert.doesNotMatch(output, /PROCWIRE_WATCHDOG/);
  });

  test("a server without a watchdog reports it on stderr, in the health check, and to its clients", async () => {
    const path = (name: string) => fileURLToPath(new URL(`../../../${name}`, import.meta.url));
    await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0"], {
      // The variable of another watchdog, as a server started by another server may inherit it.
      env: { PROCWIRE_WATCHDOG: "1" },
      command: [process.execPath, path("bin/main.cjs"), "src/cli/procwire.ts", "serve"],
    }).listening();
    const missing = /^no watchdog: processes may outlive this server/;
    const health = await fetch(`${server.url.replace("ws:", "http:")}/healthz`);
    const { status, degraded } = (await health.json()) as { status: string; degraded: string[] };
    assert.equal(status, "degraded");
    assert.match(String(degraded), missing);
    await using client = await server.connect();
    const { environmentInfo } = await client.handshake();
    assert.match(String(Object(environmentInfo).degraded), missing);
    await until("the warning on stderr", () => server.stderr.includes("no watchdog: "));

    await using watched = await serve();
    const answer = await fetch(`${watched.url.replace("ws:", "http:")}/healthz`);
    assert.equal(((await answer.json()) as { status: string }).status, "ok");
  });

  test("no process of a nested server survives the end of its stdin", async () => {
    const marker = `PROCWIRE_TEST_MARK=${process.pid}-${Date.now()}`;
    await using server = await serve();
    const client = await server.connect();
    await client.handshake();
    const [name, value] = marker.split("=");
    const env = { PATH: "/usr/bin:/bin", [name ?? ""]: value };
    const inner = `exec '${fileURLToPath(new URL("../../../bin/procwire", import.meta.url))}' serve`;
    await client.start("inner", sh(inner), { pipeStdin: true, env });
    const say = (message: object) => client.write("inner", `${JSON.stringify(message)}\n`);
    await say({ id: 1, method: "initialize", params: { clientName: "x" } });
    await say({ method: "initialized" });
    const params = {
      processId: "p",
      argv: sh("setsid sleep 1000 & echo up; wait"),
      cwd: "file:///",
      env,
      tty: false,
    };
    await say({ id: 2, method: "process/start", params });
    await client.outputContains("inner", Buffer.from("up\n").toString("base64"));
    assert.ok(withEnvironment(marker).length >= 3);
    await client.call("process/closeStdin", { processId: "inner" });
    assert.equal((await client.finished("inner")).exitCode, 0);
    await until("nothing is left", () => withEnvironment(marker).length === 0);
  });
});
