import assert from "node:assert/strict";
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { waitFor } from "../../src/exec/wait/wait-for-output.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { loadAddon } from "../../src/native/load-addon.ts";
import { type RunningServer, startServer } from "../contract/backends.ts";
import { FaultProxy } from "../support/faults/fault-proxy.ts";
import { ENTRY } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const needsTerminals = skipUnless(loadAddon().type === "loaded", "terminals need the addon");
const TIMEOUT = { timeout: 600_000 };
const CLI = [process.execPath, ENTRY];

interface Outcome {
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: Buffer;
  stderr: string;
}

/** Starts the CLI from its sources. */
function procwire(...args: string[]): ChildProcessWithoutNullStreams {
  const child = spawn(process.execPath, [ENTRY, ...args]);
  child.stdin.on("error", () => undefined);
  return child;
}

async function outcome(child: ChildProcessWithoutNullStreams, input?: Uint8Array | string): Promise<Outcome> {
  const stdout: Buffer[] = [];
  let stderr = "";
  child.stdout.on("data", (data: Buffer) => stdout.push(data));
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  if (input !== undefined) child.stdin.end(input);
  const [code, signal] = await once(child, "close");
  return { code, signal, stdout: Buffer.concat(stdout), stderr };
}

let server: RunningServer;
before(async () => {
  server = await startServer("ws://127.0.0.1:0");
});
after(() => server.stop());

for (const where of ["here", "on a server"] as const) {
  const place = () => (where === "here" ? [] : ["--connect", server.url]);

  describe(`procwire run, ${where}`, TIMEOUT, () => {
    test("passes stdin, stdout, stderr and the exit code through", async () => {
      const child = procwire("run", ...place(), "--", "sh", "-c", "cat; echo problem >&2; exit 7");
      const { code, stdout, stderr } = await outcome(child, "hello\n");
      assert.deepEqual([code, stdout.toString(), stderr], [7, "hello\n", "problem\n"]);
    });

    test("passes megabytes through unchanged", async () => {
      const data = randomBytes(20_000_000);
      const { code, stdout } = await outcome(procwire("run", ...place(), "--", "cat"), data);
      assert.equal(code, 0);
      const hash = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
      assert.equal(hash(stdout), hash(data));
    });

    test("exits by the same signal as the command", async () => {
      const killed = await outcome(procwire("run", ...place(), "--", "sh", "-c", "kill -TERM $$"), "");
      assert.deepEqual([killed.code, killed.signal], [null, "SIGTERM"]);
      const quit = await outcome(procwire("run", ...place(), "--", "sh", "-c", "kill -QUIT $$"), "");
      assert.deepEqual([quit.code, quit.signal], [131, null]);
    });

    test("forwards signals to the command", async () => {
      const script = [
        'for s in INT TERM HUP QUIT USR1 USR2; do trap "echo got $s" $s; done',
        "echo ready; while :; do sleep 0.05; done",
      ].join("; ");
      const child = procwire("run", ...place(), "--", "sh", "-c", script);
      const seen = follow(child.stdout);
      await seen.until("ready");
      for (const name of ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"]) {
        child.kill(`SIG${name}` as NodeJS.Signals);
        await seen.until(`got ${name}`);
      }
      child.stdin.end();
      child.kill("SIGKILL");
      await once(child, "exit");
    });

    test("terminates the command after --timeout and exits with 124", async () => {
      const { code } = await outcome(procwire("run", ...place(), "--timeout", "0.2", "--", "sleep", "100"));
      assert.equal(code, 124);
    });

    test("names the command that cannot run, and exits with 126 or 127", async () => {
      const missing = await outcome(procwire("run", ...place(), "--", "no-such-program"), "");
      assert.equal(missing.code, 127);
      assert.match(missing.stderr, /^procwire run: no-such-program: No such file or directory/);
      const forbidden = await outcome(procwire("run", ...place(), "--", "/etc/passwd"), "");
      assert.equal(forbidden.code, 126);
    });

    test("terminates the command when the reader of its output closes the pipe", async () => {
      const child = procwire("run", ...place(), "--", "yes");
      await once(child.stdout, "data");
      child.stdout.destroy();
      const [code] = await once(child, "exit");
      assert.equal(code, 141);
    });

    test("waits for a command that closed its stdout", async () => {
      const { code, stdout } = await outcome(
        procwire("run", ...place(), "--", "sh", "-c", "echo out; exec >&-; sleep 0.1; exit 3"),
        "",
      );
      assert.deepEqual([code, stdout.toString()], [3, "out\n"]);
    });

    test("sets variables and the working directory", async () => {
      const { stdout } = await outcome(
        procwire("run", ...place(), "--cwd", "/tmp", "--env", "A=b=c", "--", "sh", "-c", "pwd; echo $A"),
        "",
      );
      assert.equal(stdout.toString(), "/tmp\nb=c\n");
    });
  });

  describe(`procwire run --tty, ${where}`, TIMEOUT, () => {
    test("forwards keys and the terminal size, and restores the terminal", {
      skip: needsTerminals,
    }, async () => {
      await using backend = createLocalBackend();
      const words = [
        ...CLI,
        "run",
        ...place(),
        "--tty",
        "--",
        "sh",
        "-c",
        "'trap \"stty size; exit 5\" WINCH; stty size; while :; do sleep 0.05; done'",
      ];
      const script = `${words.join(" ")}; echo code $?; stty -a | grep -o -E -e '-?(icanon|echo) '; read y`;
      const terminal = await backend.start({
        processId: "terminal",
        argv: ["/bin/sh", "-c", script],
        cwd: "/",
        env: { PATH: process.env.PATH ?? "", TERM: "xterm" },
        tty: true,
        size: { rows: 31, cols: 97 },
      });
      await using _ = terminal;
      await waitFor(terminal, "31 97");
      const during = (await terminal.snapshot()).tty;
      assert.deepEqual([during?.canonical, during?.echo], [false, false]);
      await terminal.resize({ rows: 40, cols: 120 });
      await waitFor(terminal, "40 120");
      await waitFor(terminal, /code 5\s+icanon\s+echo/);
      const afterwards = (await terminal.snapshot()).tty;
      assert.deepEqual([afterwards?.canonical, afterwards?.echo], [true, true]);
    });

    test("interrupts the command with ctrl-C, and restores the terminal", {
      skip: needsTerminals,
    }, async () => {
      await using backend = createLocalBackend();
      const words = [...CLI, "run", ...place(), "--tty", "--", "sh", "-c", "'echo ready; exec sleep 100'"];
      const terminal = await backend.start({
        processId: "terminal",
        argv: ["/bin/sh", "-c", `trap '' INT; ${words.join(" ")}; echo code $?; read y`],
        cwd: "/",
        env: { PATH: process.env.PATH ?? "", TERM: "xterm" },
        tty: true,
      });
      await using _ = terminal;
      await waitFor(terminal, "ready");
      await terminal.write(new Uint8Array([3]));
      await waitFor(terminal, "code 130");
      const afterwards = (await terminal.snapshot()).tty;
      assert.deepEqual([afterwards?.canonical, afterwards?.echo], [true, true]);
    });
  });
}

describe("procwire run with a server", TIMEOUT, () => {
  test("exits with 125 when no server listens", async () => {
    const { code, stderr } = await outcome(procwire("run", "--connect", "ws://127.0.0.1:1", "--", "true"), "");
    assert.equal(code, 125);
    assert.match(stderr, /^procwire run: no procwire server at /);
  });

  test("exits with 125 when the server restarts without the process", async (t) => {
    using scratch = scratchDirectory();
    const own = await startServer(`unix://${scratch.path}/socket`);
    const child = procwire("run", "--connect", own.url, "--", "sh", "-c", "echo ready; sleep 100");
    const ended = outcome(child);
    await follow(child.stdout).until("ready");
    await own.stop("SIGKILL");
    const restarted = await startServer(own.url);
    t.after(() => restarted.stop());
    const { code, stderr } = await ended;
    assert.equal(code, 125);
    assert.match(stderr, /exec-server transport disconnected/);
  });

  test("restores the terminal when the server restarts without the process", {
    skip: needsTerminals,
  }, async (t) => {
    using scratch = scratchDirectory();
    const own = await startServer(`unix://${scratch.path}/socket`);
    await using backend = createLocalBackend();
    const words = [...CLI, "run", "--connect", own.url, "--tty", "--", "sh", "-c", "'echo ready; exec sleep 100'"];
    const terminal = await backend.start({
      processId: "terminal",
      argv: ["/bin/sh", "-c", `${words.join(" ")}; echo code $?; read y`],
      cwd: "/",
      env: { PATH: process.env.PATH ?? "", TERM: "xterm" },
      tty: true,
    });
    await using _ = terminal;
    await waitFor(terminal, "ready");
    const during = (await terminal.snapshot()).tty;
    assert.deepEqual([during?.canonical, during?.echo], [false, false]);
    await own.stop("SIGKILL");
    const restarted = await startServer(own.url);
    t.after(() => restarted.stop());
    await waitFor(terminal, "code 125");
    const afterwards = (await terminal.snapshot()).tty;
    assert.deepEqual([afterwards?.canonical, afterwards?.echo], [true, true]);
  });

  test("continues after a lost connection without a visible difference", async () => {
    await using proxy = await FaultProxy.before(server.url);
    const script = "echo ready; cat; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; exit 9";
    const child = procwire("run", "--connect", proxy.url, "--", "sh", "-c", script);
    const ended = outcome(child);
    await follow(child.stdout).until("ready");
    proxy.cut();
    child.stdin.write("one\n");
    proxy.cut({ side: "client" });
    child.stdin.end("two\n");
    const { code, stdout } = await ended;
    assert.equal(code, 9);
    const lines = Array.from({ length: 2000 }, (_, index) => `line ${index}\n`).join("");
    assert.equal(stdout.toString(), `ready\none\ntwo\n${lines}`);
  });

  test("lists the processes of every session", async () => {
    const child = procwire("run", "--connect", server.url, "--", "sh", "-c", "echo ready; cat");
    const ended = outcome(child);
    await follow(child.stdout).until("ready");
    const { code, stdout } = await outcome(procwire("ps", "--connect", server.url), "");
    child.stdin.end();
    await ended;
    assert.equal(code, 0);
    assert.match(stdout.toString(), /^HANDLE +NAME +STATE +AGE +OWNER +PID +LIFETIME +OUTPUT +ID +LABELS +COMMAND\n/);
    assert.match(stdout.toString(), /^[a-z2-7]{12} .* running .* sh -c 'echo ready; cat'$/m);
  });

  test("lists no control character that a terminal would interpret", async () => {
    const word = "\x1b[2J\u202e\x9b1A\x7f\n";
    const child = procwire("run", "--connect", server.url, "--", "sh", "-c", "echo ready; cat", word);
    const ended = outcome(child);
    await follow(child.stdout).until("ready");
    const listed = await outcome(procwire("ps", "--tree", "--connect", server.url), "");
    const json = await outcome(procwire("ps", "--json", "--connect", server.url), "");
    child.stdin.end();
    await ended;
    // Once in the list and once in the process tree.
    assert.equal(listed.stdout.toString().match(/cat' \$'\\x1b\[2J\\u202e\\u009b1A\\x7f\\n'$/gm)?.length, 2);
    const one = json.stdout
      .toString()
      .split("\n")
      .find((line) => line.includes("u202e"));
    assert.deepEqual(JSON.parse(one ?? "").argv.at(-1), word);
    assert.doesNotMatch(listed.stdout.toString() + json.stdout.toString(), /[\x1b\u202e\x9b\x7f]/);
  });

  test("distinguishes wrong arguments from a failed command", async () => {
    const none = await outcome(procwire("run"), "");
    assert.deepEqual([none.code, none.stderr], [2, "procwire run: no command given; see `procwire run --help`\n"]);
    const wrong = await outcome(procwire("run", "--timeout", "soon", "--", "true"), "");
    assert.equal(wrong.code, 2);
    const help = await outcome(procwire("run", "--help"), "");
    assert.match(help.stdout.toString(), /^Usage: procwire run \[OPTIONS\] \[--\] COMMAND/);
  });
});

/** Waits for text in a stream, from the end of the previous match. */
function follow(stream: NodeJS.ReadableStream): { until(wanted: string): Promise<void> } {
  let text = "";
  let wake: () => void = () => undefined;
  stream.on("data", (data: Buffer) => {
    text += data.toString();
    wake();
  });
  return {
    until: async (wanted) => {
      for (;;) {
        const at = text.indexOf(wanted);
        if (at >= 0) {
          text = text.slice(at + wanted.length);
          return;
        }
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
  };
}
