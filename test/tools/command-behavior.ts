import assert from "node:assert/strict";
import { existsSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { ApprovalPolicy, ApprovalRequest } from "../../src/tools/policy/approval.ts";
import type { ToolOutput } from "../../src/tools/tool.ts";
import { freePort } from "../support/system/free-port.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";
import { collectEvents, fact, sessionOf, textOf } from "./calls.ts";
import type { Behaves, Setup } from "./host.ts";

const noLess = skipUnless(
  ["/usr/bin/less", "/bin/less"].some((path) => existsSync(path)),
  "less is not installed; run `npm run setup:debian`",
);

/** Behavior of unified exec with real processes, on any backend. */
export function testCommands(behaves: Behaves): void {
  behaves(
    "a command that ends within its yield window returns its output and its exit code",
    async ({ call, directory }) => {
      const output = await call("exec_command", { cmd: "echo err >&2; pwd; exit 3" });
      assert.equal(fact(output, "exit_code"), 3);
      assert.deepEqual(textOf(output).split("\n").sort(), ["", directory, "err"]);
      assert.match(output.text, /^Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess exited with code 3\n/);
    },
  );

  behaves("a REPL is driven over several calls", async ({ call }) => {
    const cmd = `${process.execPath} -i`;
    const session_id = sessionOf(await call("exec_command", { cmd, tty: true, yield_time_ms: 250 }));
    const say = async (chars: string, pattern: string) => {
      await call("write_stdin", { session_id, chars });
      const waited = await call("wait_for", { session_id, until: "pattern", pattern });
      assert.match(String(fact(waited, "wait")), /^matched/, waited.text);
      return waited;
    };
    await say("globalThis.x = 20 + 1\n", "\\n21");
    const second = await say("x * 2\n", "\\n42");
    assert.deepEqual(fact(second, "awaiting_input"), { secret: false }, "it reads keys by itself");
    await call("write_stdin", { session_id, chars: ".exit\n" });
    const last = await call("wait_for", { session_id, until: "exit" });
    // The command may already have ended within the yield window of the write.
    if (last.ok) assert.equal(fact(last, "exit_code"), 0);
    else assert.match(last.text, new RegExp(`^\\w+ failed: Unknown process id ${session_id}$`));
  });

  behaves(
    "a password prompt is detected by the terminal mode, and the input stays secret",
    async ({ unified, call }) => {
      const events = collectEvents(unified);
      const cmd = 'read -rsp "Password: " secret; echo; printf %s "$secret" | wc -c';
      const session_id = sessionOf(await call("exec_command", { cmd, tty: true, yield_time_ms: 250 }));
      await until("the terminal hides what is typed", async () => {
        const looked = await call("wait_for", { session_id, until: "idle", idle_ms: 20 });
        const awaiting = fact(looked, "awaiting_input");
        return JSON.stringify(awaiting) === '{"secret":true}';
      });
      const typed = await call("write_stdin", { session_id, chars: "hunter2\n", yield_time_ms: 10_000 });
      assert.match(textOf(typed), /^\s*7\s*$/m);
      await unified.close();
      const typedEvents = events.filter((event) => event.type === "TerminalInteraction");
      assert.deepEqual(
        typedEvents.map((event) => event.stdin),
        [null],
      );
    },
  );

  const less = async ({ call, directory }: Setup) => {
    const lines = Array.from({ length: 100 }, (_, index) => `line ${index + 1}`);
    writeFileSync(join(directory, "file"), `${lines.join("\n")}\n`);
    const cmd = "TERM=xterm less -M file";
    const session_id = sessionOf(await call("exec_command", { cmd, tty: true, yield_time_ms: 250 }));
    const screen = async () => {
      const shown = (await call("read_screen", { session_id })).structured;
      assert.ok(shown && Array.isArray(shown.lines));
      return { lines: shown.lines.map(String), alternate: shown.alternate };
    };
    await until("first page", async () => (await screen()).lines[23]?.startsWith("file lines 1-23") ?? false);
    const first = await screen();
    assert.deepEqual([first.lines[0], first.lines[22], first.alternate], ["line 1", "line 23", true]);
    await call("write_stdin", { session_id, chars: "G" });
    await until("the last page", async () => (await screen()).lines[22] === "line 100");
    assert.match((await call("read_screen", { session_id })).text, /^Screen: 80 columns, 24 rows, alternate\n/);
    await call("write_stdin", { session_id, chars: "q" });
    await call("wait_for", { session_id, until: "exit" });
  };
  behaves("read_screen shows a full-screen program as a user sees it", less, { skip: noLess });

  behaves("terminal queries get a reply, and read_screen does not show them", async ({ call }) => {
    const ask = String.raw`stty raw -echo; printf 'at:\033[6n'; IFS= read -r -d R -t 20 place; stty sane; printf '<%q>\n' "$place"`;
    const output = await call("exec_command", {
      cmd: ask,
      shell: "/bin/bash",
      tty: true,
      yield_time_ms: 20_000,
    });
    assert.equal(fact(output, "exit_code"), 0);
    assert.match(textOf(output), /<\$'\\E\[1;4'>/);
  });

  behaves("a result shows head and tail of 50 MB of output, and every byte can be read", async ({ call }) => {
    const size = 50_000_000;
    const cmd = `i=0; while [ $i -lt 50 ]; do printf 'part %03d\\n' $i; head -c 999991 /dev/zero | tr '\\0' x; i=$((i+1)); done`;
    const started = await call("exec_command", { cmd, yield_time_ms: 30_000, max_output_tokens: 100 });
    const output = started.structured?.session_id === undefined ? started : await finish(call, started);
    assert.equal(fact(output, "exit_code"), 0, output.text.slice(0, 300));
    const number = 1;
    const read = async (offset: number, max_output_tokens: number) => {
      const range = await call("read_output", { session_id: number, offset, max_output_tokens });
      assert.ok(range.ok, range.text);
      return range;
    };
    assert.match(started.text, /Warning: truncated output \(original token count: \d+\)\n/);
    assert.match(textOf(started), /^part 000\nx+…\d+ tokens truncated…x+$/);
    for (const part of [0, 17, 49]) {
      const range = await read(part * 1_000_000, 3);
      assert.equal(textOf(range), `part ${String(part).padStart(3, "0")}\nxxx`);
      assert.deepEqual([fact(range, "original"), fact(range, "omitted")], [size, 0]);
      assert.equal(fact(range, "next_offset"), part * 1_000_000 + 12);
    }
    assert.equal(textOf(await read(-4, 10)), "xxxx");
  });

  behaves(
    "a build that outlives its yield window keeps running, and its end is reported",
    async ({ call, directory }) => {
      const cmd = "echo begun; until [ -e go ]; do sleep 0.02; done; echo built; exit 4";
      const first = await call("exec_command", { cmd, yield_time_ms: 250 });
      const session_id = sessionOf(first);
      assert.match((await call("list_sessions", {})).text, /^1: running/);
      writeFileSync(join(directory, "go"), "");
      const last = await call("wait_for", { session_id, until: "exit" });
      assert.deepEqual([fact(last, "exit_code"), fact(last, "wait")], [4, "exited"]);
      assert.equal(textOf(first) + textOf(last), "begun\nbuilt\n");
      assert.equal((await call("list_sessions", {})).text, "No sessions");
    },
  );

  for (const tty of [true, false]) {
    behaves(`Ctrl-C ends a command ${tty ? "in a terminal" : "without one"}`, async ({ call }) => {
      const cmd = "echo ready; sleep 60";
      const session_id = sessionOf(await call("exec_command", { cmd, tty, login: false, yield_time_ms: 250 }));
      await call("wait_for", { session_id, until: "pattern", pattern: "ready" });
      const output = await call("write_stdin", { session_id, chars: "\u0003", yield_time_ms: 30_000 });
      assert.equal(fact(output, "exit_code"), 130, output.text);
    });
  }

  behaves("a write without a terminal fails, and the error names the remedy", async ({ call }) => {
    const session_id = sessionOf(await call("exec_command", { cmd: "sleep 60", yield_time_ms: 250 }));
    const output = await call("write_stdin", { session_id, chars: "hello\n" });
    assert.equal(output.ok, false);
    assert.match(
      output.text,
      /^write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true/,
    );
  });

  behaves(
    "write_stdin works without a terminal if pipeStdin is set",
    async ({ call }) => {
      const session_id = sessionOf(await call("exec_command", { cmd: 'read -r a; echo "<$a>"', yield_time_ms: 250 }));
      const output = await call("write_stdin", { session_id, chars: "hello\n", yield_time_ms: 30_000 });
      assert.deepEqual([fact(output, "exit_code"), textOf(output)], [0, "<hello>\n"]);
    },
    { options: () => ({ pipeStdin: true }) },
  );

  behaves("wait_for waits for a port, a pattern or idle output, and ends at its timeout", async ({ call }) => {
    const port = await freePort();
    const script = `setTimeout(() => require("node:net").createServer().listen(${port}, "127.0.0.1", () => console.log("up")), 100)`;
    const cmd = `exec ${process.execPath} -e '${script}'`;
    const session_id = sessionOf(await call("exec_command", { cmd, yield_time_ms: 250 }));
    const wait = async (args: Record<string, unknown>) =>
      fact(await call("wait_for", { session_id, timeout_ms: 20_000, ...args }), "wait");
    assert.equal(await wait({ until: "port", port }), "listening");
    assert.equal(await wait({ until: "pattern", pattern: "^u[pq]" }), 'matched "up"');
    assert.equal(await wait({ until: "idle", idle_ms: 50 }), "idle");
    assert.equal(await wait({ until: "pattern", pattern: "never", timeout_ms: 50 }), "timeout");
    const bad = await call("wait_for", { session_id, until: "pattern", pattern: "(" });
    assert.match(bad.text, /^wait_for: invalid pattern `\(`: error parsing regexp: missing closing \): `\(`$/);
    assert.equal((await call("wait_for", { session_id, until: "port" })).text, "wait_for: missing argument `port`");
  });

  behaves("wait_for ends when the process exits before it prints the pattern", async ({ call, directory }) => {
    const cmd = "until [ -e go ]; do sleep 0.02; done; echo done";
    const session_id = sessionOf(await call("exec_command", { cmd, yield_time_ms: 250 }));
    writeFileSync(join(directory, "go"), "");
    const output = await call("wait_for", { session_id, until: "pattern", pattern: "never" });
    assert.equal(fact(output, "wait"), "the process ended before the condition came true");
    assert.deepEqual([fact(output, "exit_code"), textOf(output)], [0, "done\n"]);
  });

  behaves("wait_for finds a pattern in the last output of a process", async ({ call, directory }) => {
    const cmd = "until [ -e go ]; do sleep 0.02; done; seq 1 60000; echo needle";
    const session_id = sessionOf(await call("exec_command", { cmd, yield_time_ms: 250 }));
    const waiting = call("wait_for", {
      session_id,
      until: "pattern",
      pattern: "^needle",
      max_output_tokens: 10,
    });
    writeFileSync(join(directory, "go"), "");
    assert.equal(fact(await waiting, "wait"), 'matched "needle"');
  });

  behaves("a command with a background process returns when the command itself exits", async ({ call }) => {
    const cmd = "sleep 60 & echo $!";
    const output = await call("exec_command", { cmd, yield_time_ms: 30_000 });
    process.kill(Number(textOf(output)), "SIGKILL");
    assert.equal(fact(output, "exit_code"), 0);
    assert.ok(Number(fact(output, "wall_time_seconds")) < 20, "not at the end of its window");
  });

  behaves("errors distinguish a missing program from a missing directory", async ({ call }) => {
    const shell = await call("exec_command", { cmd: "true", shell: "/no/such/shell" });
    assert.equal(shell.ok, false);
    assert.match(shell.text, /^exec_command failed: .*No such file or directory/);
    const workdir = await call("exec_command", { cmd: "true", workdir: "nowhere" });
    assert.equal(workdir.ok, false);
    assert.match(workdir.text, /^exec_command failed: .*No such file or directory/);
  });

  const judged: ApprovalRequest[] = [];
  const approval: ApprovalPolicy = {
    review(request) {
      judged.push(request);
      return { type: "allow" };
    },
    ask: async () => ({ type: "refuse", reason: "this test gives no approval" }),
  };
  behaves(
    "an approval shows the resolved directory, the path of the shell and the whole argv",
    async ({ call, directory }) => {
      mkdirSync(join(directory, "real"));
      symlinkSync("real", join(directory, "link"));
      const cmd = 'pwd; tr "\\0" "|" </proc/$$/cmdline';
      const output = await call("exec_command", { cmd, workdir: "link/../link", shell: "sh", login: false });
      const [seen] = judged.splice(0);
      const real = join(directory, "real");
      assert.deepEqual([seen?.workdir, seen?.argv, seen?.shell], [real, ["/bin/sh", "-c", cmd], "system"]);
      assert.equal(textOf(output), `${real}\n/bin/sh|-c|${cmd}|`);
    },
    { options: () => ({ approval }) },
  );

  behaves("commands do not inherit API keys of the host", async ({ call }) => {
    process.env.PROCWIRE_TEST_API_KEY = "visible";
    try {
      const output = await call("exec_command", { cmd: 'echo "[$PROCWIRE_TEST_API_KEY] $TERM $PAGER"' });
      assert.equal(textOf(output), "[] dumb cat\n");
    } finally {
      delete process.env.PROCWIRE_TEST_API_KEY;
    }
  });

  behaves("close ends running commands", async ({ unified, call }) => {
    const started = await call("exec_command", { cmd: 'echo "pid $$"; exec sleep 60', yield_time_ms: 250 });
    const args = { session_id: sessionOf(started), until: "pattern", pattern: "pid [0-9]+\\n" };
    const pid = Number(/\d+/.exec(String(fact(await call("wait_for", args), "wait")))?.[0]);
    assert.ok(isAlive(pid));
    await unified.close();
    await until("the process is gone", () => !isAlive(pid));
  });
}

/** Waits for the end of a session that outlived its first yield window. */
function finish(call: Setup["call"], output: ToolOutput): Promise<ToolOutput> {
  return call("wait_for", { session_id: sessionOf(output), until: "exit", max_output_tokens: 100 });
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
