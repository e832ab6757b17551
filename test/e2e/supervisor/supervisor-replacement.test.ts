/** A supervisor that is replaced in place by another executable, with its pid, children and descriptors. */
import assert from "node:assert/strict";
import { copyFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { waitFor } from "../../../src/exec/wait/wait-for-output.ts";
import { nativeFileCandidates } from "../../../src/native/native-files.ts";
import { childrenOf, isAlive, PROCWIRE, ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import {
  buildAlteredSupervisor,
  installSupervisor,
  NO_COMPILER,
  NO_SUPERVISOR,
  persistentParams,
  SupervisedServer,
} from "../../support/servers/supervised-server.ts";
import { until } from "../../support/system/until.ts";

const OPTIONS = { timeout: 600_000, skip: NO_SUPERVISOR };
const [SUPERVISOR = ""] = nativeFileCandidates("supervisor");
const [WATCHDOG = ""] = nativeFileCandidates("watchdog");

/** Reports whether the supervisor runs the file that had this path when it was started. */
const runs = (pid: number, path: string) => readlinkSync(`/proc/${pid}/exe`) === path;

/** Requests a hot restart and waits for the next server. */
async function reload(server: SupervisedServer, persistentPids: readonly (number | null)[]): Promise<void> {
  const former = await server.serverPid(persistentPids);
  server.serve.child.kill("SIGHUP");
  await until("the former server to be gone", () => !isAlive(former));
  await using client = await server.connect();
  await client.list();
}

describe("a supervisor whose file was replaced", OPTIONS, () => {
  test("continues as the new file with the same pid, and keeps input, output and exit status of its processes", async () => {
    using directory = scratchDirectory();
    await using server = await SupervisedServer.upgradable(directory.path);
    await using client = await server.connect();
    const { supervisorPid } = server;
    const start = (id: string, script: string, tty = false) => client.start(persistentParams(id, script, { tty }));
    const echo = await start("echo", 'while read line; do echo "got $line"; done; exit 7');
    const terminal = await start("terminal", 'echo up; read line; echo "line $line"; exit 3', true);
    // Reads nothing until a signal arrives, so that input waits in the supervisor.
    const full = await start("full", "trap : USR1; echo up; sleep 300 & wait; wc -c; exit 0");
    const dead = await start("dead", "echo last words; exit 5");
    const all = [echo, terminal, full, dead];
    const pids = all.map(({ pid }) => pid);
    await Promise.all([waitFor(terminal, "up"), waitFor(full, "up")]);
    await dead.wait();
    const size = 1_000_000;
    const writing = full.write(new Uint8Array(size).fill(120));
    for (let time = 0; time < 3; time++) {
      installSupervisor(directory.path);
      assert.equal(runs(supervisorPid, join(directory.path, "supervisor")), false);
      await reload(server, pids);
      assert.equal(server.supervisorPid, supervisorPid);
      assert.equal(runs(supervisorPid, join(directory.path, "supervisor")), true);
      await echo.write(Buffer.from(`${time}\n`));
      await waitFor(echo, `got ${time}\n`);
    }
    await terminal.write(Buffer.from("typed\n"));
    await waitFor(terminal, "line typed");
    await full.signal("SIGUSR1");
    await writing;
    await full.closeStdin();
    await waitFor(full, `${size}\n`);
    await echo.closeStdin();
    assert.deepEqual(await Promise.all(all.map(async (process) => (await process.wait()).exitCode)), [7, 3, 0, 5]);
    assert.equal(Buffer.from((await dead.snapshot()).stdout).toString(), "last words\n");
    assert.equal(server.serve.stderr.match(/procwire: supervisor replaced by/g)?.length, 3);
    assert.deepEqual(await server.serve.stop(), { code: 0, signal: null });
  });

  test("is replaced after a crash of its server as well", async () => {
    using directory = scratchDirectory();
    await using server = await SupervisedServer.upgradable(directory.path);
    await using client = await server.connect();
    const persistent = await client.start(persistentParams("p", "exec sleep 300"));
    installSupervisor(directory.path);
    await server.killServer([persistent.pid]);
    await client.list();
    assert.equal(runs(server.supervisorPid, join(directory.path, "supervisor")), true);
    assert.equal(isAlive(persistent.pid ?? 0), true);
    // It still ends its processes with its own end.
    process.kill(server.supervisorPid, "SIGKILL");
    await server.serve.exited;
    assert.equal(isAlive(persistent.pid ?? 0), false);
  });

  test("stays if the new file cannot run, or cannot read its state", { skip: NO_COMPILER }, async () => {
    using directory = scratchDirectory();
    using builds = scratchDirectory();
    await using server = await SupervisedServer.upgradable(directory.path);
    await using client = await server.connect();
    const persistent = await client.start(persistentParams("p", "while read line; do echo got $line; done"));
    const broken = join(builds.path, "broken");
    writeFileSync(broken, "not an executable", { mode: 0o755 });
    const altered = (line: string, changed: string, header: string) =>
      buildAlteredSupervisor(builds.path, header, line, changed);
    for (const [file, message] of [
      [broken, "cannot take over; the running supervisor stays"],
      [
        altered("#define SUPERVISOR_STATE_VERSION 1u", "#define SUPERVISOR_STATE_VERSION 2u", "supervisor-state.c"),
        "cannot read the state of the running supervisor: supervisor state version is 1, supported version is 2",
      ],
      [
        altered("#define SEGMENT_VERSION 1u", "#define SEGMENT_VERSION 2u", "state-segment-layout.h"),
        "cannot read the state of the running supervisor: state segment version is 1, supported version is 2",
      ],
    ] as const) {
      installSupervisor(directory.path, file);
      await reload(server, [persistent.pid]);
      assert.ok(server.serve.stderr.includes(message), server.serve.stderr);
      await persistent.write(Buffer.from("on\n"));
      await waitFor(persistent, "got on\n");
    }
    assert.doesNotMatch(server.serve.stderr, /supervisor replaced by/);
  });

  test("finds the supervisor of the installed package through bin/procwire", async () => {
    using directory = scratchDirectory();
    const copy = join(directory.path, "supervisor");
    copyFileSync(SUPERVISOR, copy);
    const command: [string, ...string[]] = [WATCHDOG, "--", copy, "--upgradable", PROCWIRE, "serve"];
    await using server = new SupervisedServer(
      await new ServeChild(["--listen", "ws://127.0.0.1:0", "--supervised"], { command }).listening(),
    );
    const { supervisorPid } = server;
    assert.equal(runs(supervisorPid, copy), true);
    await reload(server, []);
    assert.equal(runs(supervisorPid, SUPERVISOR), true);
    // A second restart finds the same file, and replaces nothing.
    await reload(server, []);
    assert.equal(server.serve.stderr.match(/procwire: supervisor replaced by/g)?.length, 1);
    assert.equal(childrenOf(supervisorPid).length, 1);
  });
});
