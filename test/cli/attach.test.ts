/** The commands that find, watch, drive and end processes of a server, on a real terminal and a real server. */

import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { constants } from "node:os";
import { after, before, describe, type TestContext, test } from "node:test";
import { parseDetachKey } from "../../src/cli/options/detach-key.ts";
import { findProcess } from "../../src/cli/support/find-process.ts";
import { NodeExecServerClient } from "../../src/client/node/node-client.ts";
import type { RemoteProcess } from "../../src/client/process/remote-process.ts";
import type { ExecProcess, ProcessListing, StartParams, TerminalSize } from "../../src/exec/exec-process.ts";
import { createHeadlessTerminal } from "../../src/exec/terminal/headless-terminal.ts";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { type RunningServer, startServer } from "../contract/backends.ts";
import { ENTRY } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { repetitions } from "../support/system/repetitions.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";

const needsTerminals = skipUnless(loadAddon().type === "loaded", "terminals need the addon");
const TIMEOUT = { timeout: 600_000 };
const CLI = `${process.execPath} ${ENTRY}`;

let server: RunningServer;
let client: NodeExecServerClient;
before(async () => {
  server = await startServer("ws://127.0.0.1:0");
  client = await NodeExecServerClient.connectWebSocket({ url: server.url });
});
after(async () => {
  await client.close();
  await server.stop();
});

interface Outcome {
  code: number | null;
  stdout: string;
  stderr: string;
}

function procwire(...args: string[]): ChildProcessWithoutNullStreams {
  const [name = "", ...rest] = args;
  return spawn(process.execPath, [ENTRY, name, "--connect", server.url, ...rest]);
}

async function outcome(child: ChildProcessWithoutNullStreams): Promise<Outcome> {
  const captured: Outcome = { code: null, stdout: "", stderr: "" };
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    captured.stdout += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    captured.stderr += text;
  });
  const [code] = await once(child, "close");
  return { ...captured, code };
}

const cli = (...args: string[]) => outcome(procwire(...args));

let started = 0;
async function start(script: string, more: object = {}): Promise<RemoteProcess & { handle: string }> {
  const child = await client.start({
    processId: `p${++started}`,
    argv: ["/bin/sh", "-c", script],
    cwd: "/",
    env: { PATH: "/usr/bin:/bin" },
    tty: false,
    ...more,
  });
  assert.ok(child.handle !== null);
  return child as RemoteProcess & { handle: string };
}

/**
 * Starts a shell on a test terminal that runs this command, and then prints its exit code and the terminal's settings.
 */
async function onTerminal(
  t: TestContext,
  command: string,
  more: Partial<StartParams> = {},
): Promise<ExecProcess | null> {
  if (needsTerminals) {
    t.skip(needsTerminals);
    return null;
  }
  const backend = createLocalBackend();
  t.after(() => backend.shutdown(0));
  return backend.start({
    processId: "terminal",
    argv: ["/bin/sh", "-c", `${command}; echo code $?; stty -a | grep -o -E -e '-?(icanon|echo) '; read y`],
    cwd: "/",
    env: { PATH: process.env.PATH ?? "", TERM: "xterm" },
    tty: true,
    size: { rows: 31, cols: 97 },
    ...more,
  });
}

const attach = (...args: string[]) => `${CLI} attach --connect ${server.url} ${args.join(" ")}`;
const isRaw = async (terminal: ExecProcess) => (await terminal.snapshot()).tty?.canonical === false;
const press = (terminal: ExecProcess, text: string) => terminal.write(Buffer.from(text));
const lastSize = ({ sizes }: RemoteProcess) => (sizes.last ? `${sizes.last.rows}x${sizes.last.cols}` : "");

/** The screen of a test terminal, drawn from everything that was written to it. */
async function screenOf(terminal: ExecProcess) {
  const { size } = terminal as ExecProcess & { size: TerminalSize };
  const emulator = await createHeadlessTerminal(size);
  await emulator.write((await terminal.snapshot()).terminal);
  const buffer = emulator.buffer();
  const lines = Array.from({ length: size.rows }, (_, row) => buffer.getLine(row)?.translateToString(true) ?? "");
  const cursor = { row: buffer.cursorY, col: buffer.cursorX };
  emulator.dispose();
  return { lines, cursor, alternate: buffer.type === "alternate" };
}

/** Terminal settings after the command, as the shell reports them. */
const RESTORED = /icanon\s+echo/;

describe("procwire attach", TIMEOUT, () => {
  test("replays earlier output, forwards keys and the terminal size, and exits with the process's exit code", async (t) => {
    const child = await start(
      "trap 'stty size' WINCH; echo before; while :; do read x && echo got $x; [ \"$x\" = end ] && exit 7; done",
      { tty: true, size: { rows: 10, cols: 20 } },
    );
    await waitFor(child, "before");
    const terminal = await onTerminal(t, attach(child.handle));
    if (!terminal) return;
    await waitFor(terminal, "before");
    await waitFor(child, "31 97");
    await until("raw mode of the terminal", () => isRaw(terminal));
    await press(terminal, "hello\r");
    await waitFor(terminal, "got hello");
    await terminal.resize({ rows: 40, cols: 120 });
    await waitFor(child, "40 120");
    await press(terminal, "end\r");
    await waitFor(terminal, "code 7");
    await waitFor(terminal, RESTORED);
  });

  for (const terminalQueries of ["server", undefined] as const)
    test(`leaves terminal queries to the server, which replies once, with terminalQueries ${terminalQueries ?? "absent"}`, async (t) => {
      const rounds = repetitions(100);
      // Queries the cursor position and reads exactly one reply each time; a second reply would remain at the end.
      const script = `stty raw -echo; printf 'past \\033[6n'; sleep 0.2; while read -r -t 0.1 -n 1 x; do :; done; printf waiting; read -r -d g go
        for i in {1..${rounds}}; do printf '\\033[6n'; read -r -d R -t 20 place || echo none; done
        read -r -t 0.3 -n 1 second; printf 'second<%q> done' "$second"; read -r -d x`;
      const child = await start("", { argv: ["/bin/bash", "-c", script], tty: true, terminalQueries });
      await waitFor(child, "waiting");
      // The local terminal of `attach` would also reply if it received the query.
      const terminal = await onTerminal(t, attach(child.handle), { terminalQueries: "server" });
      if (!terminal) return;
      await waitFor(terminal, "waiting");
      await until("raw mode of the terminal", () => isRaw(terminal));
      await press(terminal, "g");
      await waitFor(child, "done");
      assert.match(Buffer.from((await child.snapshot()).terminal).toString(), /waiting(?!.*none).*second<''> done/s);
      await child.terminate();
    });

  test("detaches with the detach key, and the process continues", async (t) => {
    const child = await start("echo ready; read x; echo got $x; read y", { tty: true });
    const terminal = await onTerminal(t, attach(child.handle.slice(0, 6)));
    if (!terminal) return;
    await waitFor(terminal, "ready");
    await press(terminal, "left\r\x1d");
    await waitFor(terminal, `detached from ${child.handle}`);
    await waitFor(terminal, "code 0");
    await waitFor(terminal, RESTORED);
    await waitFor(child, "got left");
    assert.equal(child.log.exit, null);
    await child.terminate();
  });

  for (const [screen, prepare, content] of [
    [
      "the normal screen with a scroll region",
      "printf 'first\\nsecond\\nthird\\033[2;3r\\033[1;1H'",
      ["first", "second", "third"],
    ],
    ["the alternate screen", "printf 'first\\nsecond\\n\\033[?1049h\\033[9;9Hfull screen'", ["first", "second"]],
  ] as const)
    test(`leaves a usable terminal after it detached from a program on ${screen}`, async (t) => {
      const modes = [1, 1000, 1002, 1003, 1004, 1006, 2004].map((mode) => `\\033[?${mode}h`).join("");
      const script = `stty -echo; ${prepare}; printf '${modes}\\033[?25l\\033[31m'; read x; echo $x`;
      const child = await start(script, { tty: true, size: { rows: 31, cols: 97 } });
      await waitFor(child, "\x1b[31m");
      const terminal = await onTerminal(t, attach(child.handle));
      if (!terminal) return;
      await until("raw mode of the terminal", () => isRaw(terminal));
      await press(terminal, "\x1d");
      await waitFor(terminal, RESTORED);
      const { lines, alternate, cursor } = await screenOf(terminal);
      const used = lines.filter((line) => line !== "");
      assert.deepEqual(used.slice(0, -2), [...content, `[detached from ${child.handle}]`, "code 0"]);
      assert.deepEqual([alternate, cursor.row], [false, lines.lastIndexOf(used.at(-1) ?? "") + 1]);
      const output = Buffer.from((await terminal.snapshot()).terminal).toString();
      for (const mode of [1, 1000, 1002, 1003, 1004, 1006, 2004])
        assert.ok(output.lastIndexOf(`\x1b[?${mode}l`) > output.lastIndexOf(`\x1b[?${mode}h`), `${mode}`);
      assert.ok(output.lastIndexOf("\x1b[?25h") > output.lastIndexOf("\x1b[?25l"));
      assert.ok(output.lastIndexOf("\x1b[0m") > output.lastIndexOf("\x1b[0;31m"));
      await child.terminate();
    });

  test("leaves the cursor behind the last output of a program that exited", async (t) => {
    const child = await start("printf 'one\\ntwo\\n'; read x; echo $x", { tty: true, size: { rows: 31, cols: 97 } });
    await waitFor(child, "two");
    const terminal = await onTerminal(t, attach(child.handle));
    if (!terminal) return;
    await until("raw mode of the terminal", () => isRaw(terminal));
    await press(terminal, "end\r");
    await waitFor(terminal, RESTORED);
    assert.deepEqual((await screenOf(terminal)).lines.slice(0, 5), ["one", "two", "end", "end", "code 0"]);
  });

  test("detaches with the key of --detach-key", async (t) => {
    const child = await start("echo ready; read x", { tty: true });
    const terminal = await onTerminal(t, attach("--detach-key", "ctrl-x", child.handle));
    if (!terminal) return;
    await waitFor(terminal, "ready");
    await until("raw mode of the terminal", () => isRaw(terminal));
    await press(terminal, "\x1d\x18");
    await waitFor(terminal, "code 0");
    await child.terminate();
  });

  for (const [signal, code] of [
    ["TERM", 143],
    ["HUP", 129],
  ] as const)
    test(`restores the terminal on ${signal}, and the process continues`, async (t) => {
      const child = await start("echo ready; read x", { tty: true });
      const command = `${attach(child.handle)} & pid=$!; echo pid $pid; fg >/dev/null`;
      const terminal = await onTerminal(t, `set -m; ${command}`);
      if (!terminal) return;
      await waitFor(terminal, "ready");
      await until("raw mode of the terminal", () => isRaw(terminal));
      const shown = Buffer.from((await terminal.snapshot()).terminal).toString();
      process.kill(Number(/pid (\d+)/.exec(shown)?.[1]), `SIG${signal}`);
      await waitFor(terminal, `code ${code}`);
      await waitFor(terminal, RESTORED);
      assert.equal(child.log.exit, null);
      await child.terminate();
    });

  test("restores the terminal when its server restarts without the process, and exits with 125", async (t) => {
    using scratch = scratchDirectory();
    const own = await startServer(`unix://${scratch.path}/socket`);
    t.after(() => own.stop("SIGKILL"));
    const started = await outcome(
      spawn(process.execPath, [
        ENTRY,
        ...["run", "--connect", own.url, "--detach", "--tty", "--", "sh", "-c", "echo ready; read x"],
      ]),
    );
    const terminal = await onTerminal(t, `${CLI} attach --connect ${own.url} ${started.stdout.trim()}`);
    if (!terminal) return;
    await waitFor(terminal, "ready");
    await until("raw mode of the terminal", () => isRaw(terminal));
    await own.stop("SIGKILL");
    const restarted = await startServer(own.url);
    t.after(() => restarted.stop("SIGKILL"));
    await waitFor(terminal, "code 125");
    await waitFor(terminal, RESTORED);
  });

  test("sends no key to the process with --view", async (t) => {
    const child = await start("echo ready; read x; echo got $x", { tty: true });
    const terminal = await onTerminal(t, attach("--view", child.handle));
    if (!terminal) return;
    await waitFor(terminal, "ready");
    await until("raw mode of the terminal", () => isRaw(terminal));
    await press(terminal, "viewer\r");
    await child.write(Buffer.from("owner\r"));
    await waitFor(terminal, "got owner");
    await waitFor(terminal, "code 0");
    assert.doesNotMatch(Buffer.from((await child.snapshot()).terminal).toString(), /viewer/);
  });

  test("draws the current screen first: colors, cursor and modes, without earlier output", async (t) => {
    const script = "seq 200; printf '\\033[?1049h\\033[?1006h\\033[3;5H\\033[31mred\\033[5;9H'; read x; echo $x";
    const child = await start(script, { tty: true, size: { rows: 31, cols: 97 } });
    await waitFor(child, "red");
    const terminal = await onTerminal(t, attach(child.handle));
    if (!terminal) return;
    await until("the screen", async () => (await screenOf(terminal)).lines[2] === "    red");
    const screen = await screenOf(terminal);
    assert.deepEqual([screen.cursor, screen.alternate], [{ row: 4, col: 8 }, true]);
    const output = Buffer.from((await terminal.snapshot()).terminal).toString();
    assert.match(output, /\x1b\[\?1006h/);
    assert.match(output, /\x1b\[0;31mred/);
    assert.doesNotMatch(output, /150/);
    await press(terminal, "end\r");
    await waitFor(terminal, "code 0");
  });

  test("shows a viewer with another size a part of the screen, which the arrow keys move and a resize redraws", async (t) => {
    const script = `stty -echo; for r in $(seq 1 40); do printf '\\033[%d;1Hrow-%d-%s' $r $r "$(printf '%0120d' 7)"; done; printf '\\033[1;1H'; cat`;
    const child = await start(script, { tty: true, size: { rows: 40, cols: 130 } });
    await waitFor(child, "row-40-");
    const terminal = await onTerminal(t, attach("--view", child.handle), { size: { rows: 12, cols: 60 } });
    if (!terminal) return;
    const shows = (text: RegExp, row = 0) =>
      until(`row ${row} ${text}`, async () => text.test((await screenOf(terminal)).lines[row] ?? ""));
    await shows(/^row-1-0+$/);
    await shows(/^row-11-0+$/, 10);
    await shows(/^\[arrows scroll, ctrl-t takes over; part of 130x40 at 1,1\]$/, 11);
    await until("raw mode of the terminal", () => isRaw(terminal));
    await press(terminal, "\x1b[B\x1b[B");
    await shows(/^row-3-0+$/);
    await press(terminal, "\x1b[6~");
    await shows(/^row-14-0+$/);
    await press(terminal, "\x1b[F");
    await shows(/^0+7$/);
    await shows(/part of 130x40 at 71,30/, 11);
    // A narrow terminal cuts the position, not the keys.
    await terminal.resize({ rows: 12, cols: 40 });
    await shows(/^\[arrows scroll, ctrl-t takes over; part ?$/, 11);
    await press(terminal, "\x1b[H");
    await shows(/^row-1-0+$/);
    await child.write(Buffer.from("\x1b[2;1Hlive"));
    // A line without a line feed stays in the line discipline until Enter.
    await child.write(Buffer.from("\r"));
    await shows(/^live2-0+$/, 1);
    await terminal.resize({ rows: 20, cols: 80 });
    await shows(/^row-19-0+$/, 18);
    await child.resize({ rows: 20, cols: 80 });
    await until("the whole screen", async () => !(await screenOf(terminal)).lines.join().includes("part of"));
    await child.terminate();
    await waitFor(terminal, RESTORED);
  });

  test("reports a new driver; one key takes over again", async (t) => {
    const child = await start("echo ready; while read x; do echo got $x; stty size; done", { tty: true });
    const terminal = await onTerminal(t, attach(child.handle));
    if (!terminal) return;
    await waitFor(terminal, "ready");
    await using other = await NodeExecServerClient.connectWebSocket({ url: server.url });
    const driver = await other.attach(child.handle, { role: "driver", size: { rows: 20, cols: 50 } });
    await waitFor(terminal, "[ctrl-t takes over: another client is the driver now, you are a viewer]");
    await driver.write(Buffer.from("other\r"));
    await until("the output", async () => (await screenOf(terminal)).lines.includes("got other"));
    await press(terminal, "x");
    await waitFor(terminal, "[you are a viewer: ctrl-t takes over");
    await driver.detach();
    await press(terminal, "\x14");
    await until("the driver's size", () => lastSize(child) === "31x97");
    await press(terminal, "back\r");
    await waitFor(child, "got back");
    await waitFor(child, "31 97");
    await child.terminate();
    await waitFor(terminal, RESTORED);
  });

  test("shows a viewer that the driver left, also if its connection is lost; one key takes over", async (t) => {
    const { stdout } = await cli("run", "--detach", "--tty", "--", "sh", "-c", "echo ready; read x; echo got $x");
    const handle = stdout.trim();
    const terminal = await onTerminal(t, attach("--view", handle));
    if (!terminal) return;
    await waitFor(terminal, "no driver: ctrl-t takes over");
    const other = await NodeExecServerClient.connectWebSocket({ url: server.url });
    await other.attach(handle, { role: "driver" });
    await until("the driver", async () => !(await screenOf(terminal)).lines.join().includes("no driver"));
    await other.close();
    await waitFor(terminal, "the driver left: ctrl-t takes over");
    await press(terminal, "\x14");
    await until("the notice is gone", async () => !(await screenOf(terminal)).lines.join().includes("ctrl-t"));
    await press(terminal, "mine\r");
    await waitFor(terminal, "got mine");
    await waitFor(terminal, "code 0");
  });

  test("restores the terminal after an uncaught error", async (t) => {
    const crash = `import { enterRawMode } from "${new URL("../../src/cli/terminal/raw-terminal.ts", import.meta.url)}"; enterRawMode(); console.log("is raw"); throw new Error("unforeseen");`;
    const terminal = await onTerminal(t, `${process.execPath} --input-type=module -e '${crash}'`);
    if (!terminal) return;
    await waitFor(terminal, "is raw");
    await waitFor(terminal, "code 1");
    await waitFor(terminal, RESTORED);
  });

  test("rejects an ID that matches no process, or is too short", async () => {
    const child = await start("read x", { pipeStdin: true });
    const unknown = await cli("attach", "zzzzzzzz1");
    assert.deepEqual([unknown.code, /unknown handle or name zzzzzzzz1/.test(unknown.stderr)], [1, true]);
    const short = await cli("attach", child.handle.slice(0, 3));
    assert.match(short.stderr, /unknown name \w+, and too short for a handle; give at least 4 characters/);
    const none = await cli("attach");
    assert.deepEqual([none.code, /give one ID/.test(none.stderr)], [2, true]);
    await child.terminate();
  });
});

describe("procwire run --detach", TIMEOUT, () => {
  test("prints a handle that ps, logs and kill accept, also after the exit", async () => {
    const { code, stdout } = await cli(
      "run",
      "--detach",
      "--",
      "sh",
      "-c",
      "echo ready; echo oops >&2; exec sleep 100",
    );
    assert.equal(code, 0);
    assert.match(stdout, /^[a-z2-7]{12}\n$/);
    const handle = stdout.trim();
    const listed = await cli("ps");
    assert.match(listed.stdout, new RegExp(`^${handle} .* running .* server .*sleep 100'$`, "m"));
    await until("its output", async () => {
      const logs = await cli("logs", handle);
      return logs.stdout === "ready\n" && logs.stderr === "oops\n";
    });
    assert.equal((await cli("kill", handle.slice(0, 8))).code, 0);
    const again = await cli("kill", handle);
    assert.deepEqual([again.code, again.stderr], [1, `procwire kill: ${handle} has already exited\n`]);
    assert.doesNotMatch((await cli("ps")).stdout, new RegExp(handle));
    assert.match((await cli("ps", "--all")).stdout, new RegExp(`^${handle} .* SIGTERM .* server `, "m"));
    // An exited process can still be attached to: the command shows all output and exits with the process's exit code.
    const ended = procwire("attach", handle);
    ended.stdin.end();
    assert.deepEqual((await outcome(ended)).stdout, "ready\n");
  });

  test("uses the server of `procwire start`, and never runs on the local host", async () => {
    const detach = (...args: string[]) =>
      outcome(spawn(process.execPath, [ENTRY, "run", "--detach", ...args, "--", "true"]));
    const { stdout, stderr } = await detach();
    assert.match(
      stdout + stderr,
      /^[a-z2-7]{12}\n$|: no procwire server at 127\.0\.0\.1:7070; start one with "procwire s/,
    );
    const local = await detach("--connect", "local");
    assert.deepEqual([local.code, /--connect local: this command requires a server/.test(local.stderr)], [2, true]);
  });
});

describe("procwire kill", TIMEOUT, () => {
  test("sends the signal of -s, and reports a wrong ID after it killed the others", async () => {
    const child = await start("trap 'echo usr1' USR1; echo ready; while :; do sleep 0.02; done");
    await waitFor(child, "ready");
    assert.equal((await cli("kill", "-s", "usr1", child.handle)).code, 0);
    const { seq } = await waitFor(child, "usr1");
    assert.equal((await cli("kill", "-s", String(constants.signals.SIGUSR1), child.handle)).code, 0);
    await waitFor(child, "usr1", { afterSeq: seq });
    assert.equal((await cli("kill", "-s", "NOSUCH", child.handle)).code, 2);
    const killed = await cli("kill", "zzzzzzzz1", child.handle);
    assert.deepEqual([killed.code, /^procwire kill: unknown handle or name zzzzzzzz1/.test(killed.stderr)], [1, true]);
    assert.equal((await child.wait()).exitReason, "terminated");
  });
});

describe("procwire logs", TIMEOUT, () => {
  test("prints the last lines, and the output since a given time", async () => {
    const child = await start("for i in 1 2 3 4 5; do echo line $i; done; read x", { pipeStdin: true });
    await waitFor(child, "line 5");
    assert.equal((await cli("logs", "--tail", "2", child.handle)).stdout, "line 4\nline 5\n");
    assert.equal((await cli("logs", "--tail", "0", child.handle)).stdout, "");
    assert.match((await cli("logs", "--since", "1h", child.handle)).stdout, /^line 1\n/);
    const { times = [], ageMs: written = 0 } = await child.read({ times: true });
    assert.ok(times.length > 0 && times.every((atMs) => atMs <= written));
    await until(
      "a later time than that of the output",
      async () => ((await child.read({ times: true })).ageMs ?? 0) > written,
    );
    assert.equal((await cli("logs", "--since", "0s", child.handle)).stdout, "");
    await child.terminate();
  });

  test("follows with -f: prints earlier output, then each new line once, until the process exits", async () => {
    const child = await start("echo before; while read x; do echo got $x; echo oops $x >&2; done; echo over", {
      pipeStdin: true,
    });
    await waitFor(child, "before");
    const following = procwire("logs", "-f", child.handle.slice(0, 6));
    const followed = outcome(following);
    let shown = "";
    following.stdout.on("data", (text: string) => {
      shown += text;
    });
    await until("the earlier output", () => shown === "before\n");
    for (const round of [1, 2, 3]) {
      await child.write(Buffer.from(`${round}\n`));
      await until("the next line", () => shown.endsWith(`got ${round}\n`));
    }
    assert.equal(following.exitCode, null);
    await child.closeStdin();
    assert.deepEqual(await followed, {
      code: 0,
      stdout: "before\ngot 1\ngot 2\ngot 3\nover\n",
      stderr: "oops 1\noops 2\noops 3\n",
    });
  });

  test("reports how much output is no longer retained", async () => {
    const child = await start("head -c 3000000 /dev/zero; echo; read x", { pipeStdin: true });
    await until("the whole output", () => child.log.totalBytes === 3_000_001);
    const { stdout, stderr } = await cli("logs", child.handle);
    const missed = Number(/logs: (\d+) bytes of output missed/.exec(stderr)?.[1]);
    assert.equal(missed + stdout.length, 3_000_001);
    await child.terminate();
  });
});

describe("procwire ps", TIMEOUT, () => {
  test("shows the process tree of each process", async () => {
    const child = await start("sleep 606 & sleep 607; :");
    const tree = async () => (await client.tree(child.handle)).processes;
    await until("both to sleep", async () => (await tree()).filter(({ argv }) => argv[0] === "sleep").length === 2);
    const { stdout } = await cli("ps", "--tree");
    const lines = stdout.split("\n");
    const at = lines.findIndex((line) => line.startsWith(child.handle));
    assert.match(lines[at + 1] ?? "", /^ {2}\d+ {2}sleeping {2}\d+\.\d\ds {2}\d+K {2}\/bin\/sh -c/);
    assert.match(
      lines
        .slice(at + 2, at + 4)
        .sort()
        .join("\n"),
      /^ {4}\d+ .* sleep 60\d\n {4}\d+ .* sleep 60\d$/,
    );
    const json = (await cli("ps", "--tree", "--json")).stdout.split("\n").find((line) => line.includes(child.handle));
    assert.deepEqual(
      JSON.parse(json ?? "").tree.map(({ pid }: { pid: number }) => pid),
      (await tree()).map(({ pid }) => pid),
    );
    await child.terminate();
  });

  test("refreshes with --watch until SIGINT", async () => {
    const child = await start("read x", { pipeStdin: true });
    const watching = procwire("ps", "--watch", "--json");
    let shown = "";
    watching.stdout.setEncoding("utf8").on("data", (text: string) => {
      shown += text;
    });
    await until("a second look", () => shown.split(child.handle).length > 2);
    watching.kill("SIGINT");
    assert.equal((await outcome(watching)).code, 0);
    await child.terminate();
  });
});

describe("prefix of a handle", TIMEOUT, () => {
  test("is accepted by every command that takes an ID", async () => {
    const child = await start("echo shown; exec sleep 100");
    await waitFor(child, "shown");
    const id = child.handle.slice(0, 7);
    using scratch = scratchDirectory();
    const path = `${scratch.path}/one.cast`;
    const attached = procwire("attach", "--view", id);
    let shown = "";
    attached.stdout.on("data", (chunk) => {
      shown += chunk;
    });
    await until("attach shows it", () => shown === "shown\n");
    attached.kill();
    assert.equal((await cli("logs", id)).stdout, "shown\n");
    assert.equal((await cli("replay", id)).stdout, "shown\r\n");
    assert.equal((await cli("export", id, path)).code, 0);
    assert.match(readFileSync(path, "utf8"), /"shown/);
    const shared = await cli("share", "--expires", "1m", id);
    assert.match(`${shared.stdout}${shared.stderr}`, new RegExp(`process=${child.handle}`));
    assert.equal((await cli("kill", id)).code, 0);
    assert.equal((await child.wait()).exitReason, "terminated");
  });

  test("is rejected with the candidates if it matches several processes", async () => {
    const handles = ["aaaa2222bbbb", "aaaa3333bbbb", "cccc2222bbbb"];
    const list = async () => handles.map((handle) => ({ handle }) as ProcessListing);
    const lister = { list };
    assert.equal((await findProcess(lister, "cccc")).handle, "cccc2222bbbb");
    assert.equal((await findProcess(lister, "aaaa3")).handle, "aaaa3333bbbb");
    await assert.rejects(findProcess(lister, "aaaa"), {
      message: "aaaa matches 2 processes: aaaa2222bbbb, aaaa3333bbbb; give more characters",
    });
  });
});

describe("parsing", () => {
  test("accepts a control key or none as detach key", () => {
    assert.deepEqual(["ctrl-]", "ctrl-a", "^X", "none"].map(parseDetachKey), [0x1d, 1, 0x18, null]);
    for (const text of ["", "x", "ctrl-", "ctrl-ab", "alt-x"])
      assert.throws(() => parseDetachKey(text), /invalid --detach-key/);
  });
});
