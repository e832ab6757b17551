import assert from "node:assert/strict";
import { test } from "node:test";
import { DisconnectedError } from "../../src/protocol/errors.ts";
import type { UnifiedExecOptions } from "../../src/tools/unified-exec.ts";
import { createUnifiedExec } from "../../src/tools/unified-exec.ts";
import { call, collectEvents, fact, isSettled, sessionOf, textOf, typesOf } from "./calls.ts";
import { ScriptedBackend } from "./scripted-backend.ts";

function setUp(options: Partial<UnifiedExecOptions> = {}) {
  const backend = new ScriptedBackend();
  const { clock } = backend;
  const unified = createUnifiedExec({ backend, clock, cwd: "/w", ...options });
  /** Starts a call and runs its pending reactions without advancing the clock. */
  const begin = async (name: string, args: Record<string, unknown>, context = {}) => {
    const result = call(unified, name, args, context);
    await clock.advance(0);
    // Wrapped in an object, because awaiting the promise itself would await the call.
    return { result };
  };
  /** Starts a session that outlives its first yield window. */
  const session = async (args: Record<string, unknown> = {}) => {
    const { result } = await begin("exec_command", { cmd: "server", yield_time_ms: 250, ...args });
    await clock.advance(250);
    return sessionOf(await result);
  };
  return { backend, clock, unified, begin, session };
}

/** Reports whether a call returns exactly at the end of its yield window. */
async function windowOf(setup: ReturnType<typeof setUp>, name: string, args: Record<string, unknown>, ms: number) {
  const { result } = await setup.begin(name, args);
  await setup.clock.advance(ms - 1);
  assert.equal(await isSettled(result), false, `${name} before ${ms} ms`);
  await setup.clock.advance(1);
  assert.equal(await isSettled(result), true, `${name} after ${ms} ms`);
  return result;
}

test("exec_command waits 10 s by default, at least 250 ms and at most 30 s", async () => {
  const setup = setUp();
  const cases: [number | undefined, number][] = [
    [undefined, 10_000],
    [1, 250],
    [12_345, 12_345],
    [60_000, 30_000],
  ];
  for (const [requestedMs, window] of cases) {
    const args = { cmd: "sleep", ...(requestedMs !== undefined && { yield_time_ms: requestedMs }) };
    const output = await windowOf(setup, "exec_command", args, window);
    assert.equal(fact(output, "wall_time_seconds"), window / 1000);
    assert.match(output.text, new RegExp(`Wall time: ${(window / 1000).toFixed(4)} seconds`));
  }
  await setup.unified.close();
});

test("write_stdin with text waits 250 ms by default, at least that and at most 30 s", async () => {
  const setup = setUp();
  const session_id = await setup.session({ tty: true });
  await windowOf(setup, "write_stdin", { session_id, chars: "a" }, 250);
  await windowOf(setup, "write_stdin", { session_id, chars: "a", yield_time_ms: 1 }, 250);
  await windowOf(setup, "write_stdin", { session_id, chars: "a", yield_time_ms: 1000 }, 1000);
  await windowOf(setup, "write_stdin", { session_id, chars: "a", yield_time_ms: 90_000 }, 30_000);
  assert.deepEqual(setup.backend.last.input, ["a", "a", "a", "a"]);
  await setup.unified.close();
});

test("write_stdin without text waits at least 5 s and at most 5 minutes", async () => {
  const setup = setUp();
  const session_id = await setup.session();
  await windowOf(setup, "write_stdin", { session_id }, 5_000);
  await windowOf(setup, "write_stdin", { session_id, chars: "", yield_time_ms: 250 }, 5_000);
  await windowOf(setup, "write_stdin", { session_id, yield_time_ms: 20_000 }, 20_000);
  await windowOf(setup, "write_stdin", { session_id, yield_time_ms: 900_000 }, 300_000);
  assert.deepEqual(setup.backend.last.input, []);
  await setup.unified.close();
});

test("the bounds of a poll can be configured", async () => {
  const setup = setUp({ limits: { pollMinMs: 100, pollMaxMs: 600_000 } });
  const session_id = await setup.session();
  await windowOf(setup, "write_stdin", { session_id }, 100);
  await windowOf(setup, "write_stdin", { session_id, yield_time_ms: 900_000 }, 600_000);
  await setup.unified.close();
});

test("a call is answered as soon as the process has exited and closed its streams", async () => {
  const { backend, unified, begin, clock } = setUp();
  const { result } = await begin("exec_command", { cmd: "make" });
  backend.last.print("built\n");
  backend.last.end(2);
  await clock.advance(0);
  const output = await result;
  assert.deepEqual([fact(output, "exit_code"), textOf(output)], [2, "built\n"]);
  assert.equal(fact(output, "session_id"), undefined);
  await unified.close();
});

test("a call waits 50 ms after the exit for streams that another process holds open", async () => {
  const { backend, unified, begin, clock } = setUp();
  const { result } = await begin("exec_command", { cmd: "daemon &" });
  backend.last.exit(0);
  await clock.advance(49);
  assert.equal(await isSettled(result), false);
  backend.last.print("late\n");
  await clock.advance(1);
  const output = await result;
  assert.deepEqual([fact(output, "exit_code"), textOf(output)], [0, "late\n"]);
  await unified.close();
});

test("output later than 50 ms after the exit belongs to no session, and no event contains it", async () => {
  const { backend, unified, begin, clock } = setUp();
  const events = collectEvents(unified);
  const { result } = await begin("exec_command", { cmd: "daemon &" });
  backend.last.exit(0);
  await clock.advance(50);
  await result;
  backend.last.print("much later\n");
  await clock.advance(0);
  await unified.close();
  assert.deepEqual(typesOf(events), ["ExecCommandBegin", "ExecCommandEnd"]);
});

test("a session returns its id, and each call only new output", async () => {
  const { backend, unified, begin, clock } = setUp();
  const first = await begin("exec_command", { cmd: "server", yield_time_ms: 1000 });
  backend.last.print("one\n");
  await clock.advance(1000);
  const output = await first.result;
  assert.equal(textOf(output), "one\n");
  const session_id = sessionOf(output);
  backend.last.print("two\n");
  const second = await begin("write_stdin", { session_id });
  backend.last.print("three\n", "stderr");
  backend.last.end(0);
  await clock.advance(0);
  assert.equal(textOf(await second.result), "two\nthree\n");
  const third = await begin("write_stdin", { session_id });
  assert.deepEqual(await third.result, {
    ok: false,
    text: `write_stdin failed: Unknown process id ${session_id}`,
  });
  await unified.close();
});

test("a process that ends between two calls is reported by the next call, and only then removed", async () => {
  const { backend, unified, begin, session, clock } = setUp();
  const session_id = await session();
  backend.last.print("bye\n");
  backend.last.end(3);
  await clock.advance(0);
  const { result } = await begin("write_stdin", { session_id, chars: "too late" });
  const output = await result;
  assert.deepEqual([fact(output, "exit_code"), textOf(output)], [3, "bye\n"]);
  assert.deepEqual(backend.last.input, []);
  await unified.close();
});

test("characters are never cut between two calls", async () => {
  const { backend, unified, begin, session, clock } = setUp();
  const session_id = await session();
  const [first = 0, ...rest] = new TextEncoder().encode("€");
  backend.last.printBytes([0x61, first]);
  const one = await begin("write_stdin", { session_id });
  await clock.advance(5_000);
  assert.equal(textOf(await one.result), "a");
  // Output of the other stream may be in between.
  backend.last.print("x", "stderr");
  backend.last.printBytes(rest);
  const two = await begin("write_stdin", { session_id });
  await clock.advance(5_000);
  assert.equal(textOf(await two.result), "x€");
  await unified.close();
});

test("Ctrl-C without a terminal is sent as an interrupt, in order with the other input", async () => {
  const { backend, unified, begin, session, clock } = setUp({ pipeStdin: true });
  const session_id = await session();
  const { result } = await begin("write_stdin", { session_id, chars: "a\u0003b" });
  await clock.advance(250);
  await result;
  assert.deepEqual(backend.last.input, ["a", "<interrupt>", "b"]);
  await unified.close();
});

test("Ctrl-C into a terminal is sent unchanged", async () => {
  const { backend, unified, begin, session, clock } = setUp();
  const session_id = await session({ tty: true });
  const { result } = await begin("write_stdin", { session_id, chars: "\u0003" });
  await clock.advance(250);
  await result;
  assert.deepEqual(backend.last.input, ["\u0003"]);
  await unified.close();
});

test("an interrupt does not queue behind a write that the process does not read", async () => {
  const { backend, unified, begin, session, clock } = setUp({ pipeStdin: true });
  const session_id = await session();
  const { promise, resolve } = Promise.withResolvers<void>();
  backend.last.blocked = promise;
  const { result } = await begin("write_stdin", { session_id, chars: "much", yield_time_ms: 1000 });
  const interrupt = await begin("write_stdin", { session_id, chars: "\u0003" });
  assert.deepEqual(backend.last.input, ["much", "<interrupt>"]);
  await clock.advance(1000);
  assert.equal(sessionOf(await result), session_id, "the window ends all the same");
  await interrupt.result;
  resolve();
  await unified.close();
});

test("a closed stdin is reported at once, with the remedy", async () => {
  const { backend, unified, begin, session } = setUp();
  const session_id = await session();
  backend.last.writeStatus = "stdinClosed";
  const { result } = await begin("write_stdin", { session_id, chars: "a" });
  const output = await result;
  assert.equal(output.ok, false);
  assert.match(output.text, /^write_stdin failed: stdin is closed for this session; rerun exec_command with tty=true/);
  await unified.close();
});

test("a process that cannot be started returns the error of the backend", async () => {
  const { backend, unified } = setUp();
  backend.startError = "No such file or directory (os error 2)";
  const output = await call(unified, "exec_command", { cmd: "x" });
  assert.deepEqual(output, {
    ok: false,
    text: "exec_command failed: No such file or directory (os error 2)",
    structured: {
      not_started: "failed",
      argv: ["/bin/bash", "-c", "x"],
      reason: "No such file or directory (os error 2)",
    },
  });
  await unified.close();
});

test("a process whose server is lost is reported with the reason and its output", async () => {
  const { backend, unified, begin, clock } = setUp();
  const { result } = await begin("exec_command", { cmd: "x" });
  backend.last.print("so far\n");
  backend.last.log.fail(new DisconnectedError("gone"));
  await clock.advance(0);
  const output = await result;
  assert.equal(output.ok, false);
  assert.match(output.text, /failed: exec-server transport disconnected: gone\n/);
  assert.equal(textOf(output), "so far\n");
  await unified.close();
});

test("a cancelled call ends the wait and not the process", async () => {
  const { backend, unified, begin, clock } = setUp();
  const controller = new AbortController();
  const { result } = await begin("exec_command", { cmd: "server" }, { signal: controller.signal });
  controller.abort();
  await clock.advance(0);
  const session_id = sessionOf(await result);
  assert.equal(backend.last.terminated, false);
  const again = await begin("write_stdin", { session_id });
  backend.last.end(0);
  await clock.advance(0);
  assert.equal(fact(await again.result, "exit_code"), 0);
  await unified.close();
});

test("the next call returns the output and the end that a cancelled call did not return", async () => {
  const { backend, unified, begin, clock } = setUp();
  const controller = new AbortController();
  const { result } = await begin("exec_command", { cmd: "server" }, { signal: controller.signal });
  backend.last.print("one\n");
  await clock.advance(0);
  controller.abort();
  await clock.advance(0);
  const given = await result;
  assert.equal(textOf(given), "");
  const session_id = sessionOf(given);
  for (const name of ["write_stdin", "wait_for"]) {
    const again = new AbortController();
    const args = { session_id, ...(name === "wait_for" && { until: "exit" }) };
    const next = await begin(name, args, { signal: again.signal });
    backend.last.print(`${name}\n`);
    if (name === "wait_for") backend.last.end(3);
    again.abort();
    await clock.advance(1000);
    await next.result;
  }
  // The process has ended, and the first call is aborted.
  await (await begin("write_stdin", { session_id }, { signal: AbortSignal.abort() })).result;
  const last = await begin("write_stdin", { session_id });
  await clock.advance(0);
  const output = await last.result;
  assert.deepEqual([fact(output, "exit_code"), textOf(output)], [3, "one\nwrite_stdin\nwait_for\n"]);
  await unified.close();
});

test("no call gets more than 10,000 tokens of output", async () => {
  const { backend, unified, begin, clock } = setUp();
  const { result } = await begin("exec_command", { cmd: "yes", max_output_tokens: 1_000_000 });
  backend.last.print("x".repeat(100_000));
  backend.last.end(0);
  await clock.advance(0);
  const shown = textOf(await result);
  assert.match(shown, /^x{20000}…15000 tokens truncated…x{20000}$/);
  const rest = await begin("read_output", { session_id: 1, offset: 1000, max_output_tokens: 1_000_000 });
  assert.match((await rest.result).text, /^Bytes 1000 to 41000 of 100000\nOutput:\nx{40000}$/);
  await unified.close();
});

test("a screen has no trailing blanks, and the cursor is within it", async () => {
  const { backend, unified, begin, clock } = setUp();
  const { result } = await begin("exec_command", { cmd: "ui", tty: true, yield_time_ms: 250 });
  backend.last.print(`a   \r\n\x1b[7m   \x1b[0m\r\n${"z".repeat(80)}`);
  await clock.advance(250);
  const session_id = sessionOf(await result);
  const screen = await (await begin("read_screen", { session_id })).result;
  assert.deepEqual(fact(screen, "cursor"), { row: 2, col: 79 });
  assert.match(screen.text, new RegExp(`Cursor: row 3, column 80\nText:\na\n\n${"z".repeat(80)}$`));
  await unified.close();
});

test("kill_session ends a session immediately or gracefully, and reports its end", async () => {
  const { backend, unified, begin, clock } = setUp();
  for (const force of [false, true]) {
    const { result } = await begin("exec_command", { cmd: "server", yield_time_ms: 250 });
    await clock.advance(250);
    const session_id = sessionOf(await result);
    const { result: killed } = await begin("kill_session", { session_id, force });
    await clock.advance(0);
    const output = await killed;
    assert.deepEqual([backend.last.terminated, fact(output, "exit_code")], [true, 143]);
    assert.equal(backend.last.terminateMode?.type, force ? "force" : "graceful");
    const gone = await (await begin("kill_session", { session_id })).result;
    assert.match(gone.text, new RegExp(`^\\w+ failed: Unknown process id ${session_id}$`));
  }
  await unified.close();
});

test("progress is reported after a second, and then every 5 s, while a call waits", async () => {
  const { backend, unified, begin, clock } = setUp();
  const messages: string[] = [];
  const { result } = await begin(
    "exec_command",
    { cmd: "x", yield_time_ms: 12_000 },
    { onProgress: (message: string) => messages.push(message) },
  );
  backend.last.print("12345");
  await clock.advance(12_000);
  await result;
  assert.deepEqual(messages, [
    "session 1: running for 1 s, 5 bytes of output",
    "session 1: running for 6 s, 5 bytes of output",
    "session 1: running for 11 s, 5 bytes of output",
  ]);
  await unified.close();
  assert.equal(clock.pendingTimers, 0, "nothing is left behind");
});

test("two calls may wait for one session, and both report its end", async () => {
  const { backend, unified, begin, session, clock } = setUp();
  const session_id = await session();
  const one = await begin("write_stdin", { session_id });
  const two = await begin("write_stdin", { session_id });
  backend.last.print("once\n");
  backend.last.end(0);
  await clock.advance(0);
  const outputs = [await one.result, await two.result];
  assert.deepEqual(
    outputs.map((output) => fact(output, "exit_code")),
    [0, 0],
  );
  assert.equal(outputs.map(textOf).join(""), "once\n");
  await unified.close();
});

test("the start request has resolved paths and an environment without colors, pagers and secrets", async () => {
  const { backend, unified, session } = setUp({ env: { EXTRA: "1", PAGER: "less" }, shell: "/bin/sh" });
  await session({ cmd: "ls", workdir: "sub/dir", login: false });
  const { params } = backend.last;
  assert.deepEqual(params.argv, ["/bin/sh", "-c", "ls"]);
  assert.equal(params.cwd, "/w/sub/dir");
  assert.equal(params.mode, "prepared");
  assert.equal(params.pipeStdin, false);
  assert.equal(params.envPolicy?.ignoreDefaultExcludes, false);
  assert.deepEqual(params.env, {
    ...{ NO_COLOR: "1", TERM: "dumb", LANG: "C.UTF-8", LC_CTYPE: "C.UTF-8", LC_ALL: "C.UTF-8" },
    ...{ COLORTERM: "", PAGER: "less", GIT_PAGER: "cat", GH_PAGER: "cat", EXTRA: "1" },
  });
  await session({ cmd: "ls", tty: true });
  assert.deepEqual(backend.last.params.argv, ["/bin/sh", "-c", "ls"]);
  assert.deepEqual(backend.last.params.size, { rows: 24, cols: 80 });
  await unified.close();
});

test("a terminal without echo asks for a secret, which no event contains", async () => {
  const { backend, unified, begin, session, clock } = setUp();
  const events = collectEvents(unified);
  const session_id = await session({ tty: true });
  backend.last.tty = { rows: 24, cols: 80, echo: false, canonical: true };
  const poll = await begin("write_stdin", { session_id });
  await clock.advance(5_000);
  const output = await poll.result;
  assert.deepEqual(fact(output, "awaiting_input"), { secret: true });
  const typed = await begin("write_stdin", { session_id, chars: "hunter2\n" });
  backend.last.tty = { rows: 24, cols: 80, echo: true, canonical: true };
  await clock.advance(250);
  assert.equal(fact(await typed.result, "awaiting_input"), undefined);
  assert.deepEqual(backend.last.input, ["hunter2\n"]);
  await begin("write_stdin", { session_id, chars: "visible\n" });
  await unified.close();
  const typedEvents = events.filter((event) => event.type === "TerminalInteraction");
  assert.deepEqual(
    typedEvents.map((event) => event.stdin),
    [null, "visible\n"],
  );
});

test("a program in raw mode waits for input that is not a secret", async () => {
  const { backend, unified, begin, session, clock } = setUp();
  const session_id = await session({ tty: true });
  backend.last.tty = { rows: 24, cols: 80, echo: false, canonical: false };
  const { result } = await begin("write_stdin", { session_id });
  await clock.advance(5_000);
  assert.deepEqual(fact(await result, "awaiting_input"), { secret: false });
  await unified.close();
});

test("after close, no command starts", async () => {
  const { backend, unified } = setUp();
  await unified.close();
  const output = await call(unified, "exec_command", { cmd: "ls" });
  assert.deepEqual(output, { ok: false, text: "exec_command: unified exec is closed" });
  assert.equal(backend.started.length, 0);
});
