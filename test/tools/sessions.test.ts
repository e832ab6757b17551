import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DisconnectedError } from "../../src/protocol/errors.ts";
import type { UnifiedExecOptions } from "../../src/tools/unified-exec.ts";
import { createUnifiedExec } from "../../src/tools/unified-exec.ts";
import { call, collectEvents, fact, sessionOf, typesOf } from "./calls.ts";
import { ScriptedBackend } from "./scripted-backend.ts";

function setUp(options: Partial<UnifiedExecOptions> = {}) {
  const backend = new ScriptedBackend();
  const { clock } = backend;
  const unified = createUnifiedExec({ backend, clock, cwd: "/w", ...options });
  const run = async (name: string, args: Record<string, unknown>, ms = 5_000) => {
    // Without a login environment, a command starts immediately, and the test only advances the clock.
    const given = name === "exec_command" ? { login: false, ...args } : args;
    const result = call(unified, name, given);
    await clock.advance(ms);
    return result;
  };
  const open = async () => sessionOf(await run("exec_command", { cmd: "server", yield_time_ms: 250 }, 250));
  const known = async () => {
    const sessions = fact(await call(unified, "list_sessions"), "sessions");
    assert.ok(Array.isArray(sessions));
    return sessions.map((session) => Number(session.session_id));
  };
  return { backend, clock, unified, run, open, known };
}

test("session ids are small, ascending, and never reused", async () => {
  const { backend, unified, run, open } = setUp();
  const first = await open();
  backend.last.end(0);
  await run("write_stdin", { session_id: first });
  assert.deepEqual([first, await open(), await open()], [1, 2, 3]);
  await unified.close();
});

test("the 65th session evicts the least recently used", async () => {
  const { backend, unified, run, open, known } = setUp();
  const ids: number[] = [];
  for (let count = 0; count < 64; count++) ids.push(await open());
  await run("write_stdin", { session_id: ids[0] });
  assert.equal((await known()).length, 64);
  await open();
  const left = await known();
  assert.equal(left.length, 64);
  assert.ok(left.includes(1) && !left.includes(2), "the first was used since");
  assert.ok(backend.started[1]?.terminated);
  assert.deepEqual(await run("write_stdin", { session_id: 2 }), {
    ok: false,
    text: "write_stdin failed: Unknown process id 2",
  });
  await unified.close();
});

test("a session that has exited is evicted before a running session", async () => {
  const { backend, unified, open, known } = setUp({ limits: { maxSessions: 12 } });
  for (let count = 0; count < 12; count++) await open();
  backend.started[3]?.end(0);
  await open();
  const left = await known();
  assert.ok(left.includes(1) && !left.includes(4));
  await unified.close();
});

test("the 8 most recently used are never evicted, not even when they have exited", async () => {
  const { backend, unified, open, known } = setUp({ limits: { maxSessions: 12 } });
  for (let count = 0; count < 12; count++) await open();
  // The new session is one of the 8, with 6 to 12.
  for (const process of backend.started.slice(5)) process.end(0);
  await open();
  const left = await known();
  assert.ok(!left.includes(1) && left.includes(6));
  await unified.close();
});

test("a session that a call waits for is evicted last", async () => {
  const { clock, unified, open, known } = setUp({ limits: { maxSessions: 3, protectedSessions: 1 } });
  await open();
  const waiting = call(unified, "write_stdin", { session_id: 1, yield_time_ms: 300_000 });
  await clock.advance(0);
  await open();
  await open();
  await open();
  assert.deepEqual((await known()).sort(), [1, 3, 4]);
  await clock.advance(300_000);
  await waiting;
  await unified.close();
});

test("a call that waits for an evicted session reports its eviction", async () => {
  const { clock, unified, open } = setUp({ limits: { maxSessions: 1 } });
  await open();
  const waiting = call(unified, "write_stdin", { session_id: 1 });
  await clock.advance(0);
  await open();
  const output = await waiting;
  assert.equal(output.ok, false);
  assert.match(output.text, /\nProcess of session ID 1 failed: evicted, because the session limit was reached\n/);
  await unified.close();
});

test("for every sequence of open, use and end, the limit holds and the protected sessions stay", async () => {
  const action = fc.oneof(
    fc.constant({ type: "open" } as const),
    fc.record({ type: fc.constant("use" as const), pick: fc.nat() }),
    fc.record({ type: fc.constant("end" as const), pick: fc.nat() }),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 40 }), async (actions) => {
      const { backend, unified, run, open, known } = setUp({
        limits: { maxSessions: 6, protectedSessions: 3 },
      });
      for (const { type, ...rest } of actions) {
        const before = await known();
        const picked = "pick" in rest ? before[rest.pick % Math.max(1, before.length)] : undefined;
        if (type === "open") {
          const opened = await open();
          const after = await known();
          assert.ok(after.length <= 6);
          for (const id of [opened, ...before.slice(0, 2)]) assert.ok(after.includes(id));
        } else if (picked !== undefined && type === "use") await run("write_stdin", { session_id: picked });
        else if (picked !== undefined) backend.started[picked - 1]?.end(0);
      }
      await unified.close();
    }),
    { numRuns: 30 },
  );
});

test("list_sessions shows command and state of each session", async () => {
  const { backend, clock, unified, open } = setUp();
  await open();
  backend.last.print("12345");
  await clock.advance(2_000);
  const output = await call(unified, "list_sessions");
  assert.deepEqual(fact(output, "sessions"), [
    {
      session_id: 1,
      state: "running",
      cmd: "server",
      workdir: "/w",
      tty: false,
      sandbox: "none",
      age_seconds: 2,
      quiet_seconds: 2,
      output_bytes: 5,
    },
  ]);
  assert.equal(output.text, "1: running, 2 s old, 5 bytes of output, in /w: server");
  backend.last.end(4);
  await clock.advance(0);
  assert.match((await call(unified, "list_sessions")).text, /^1: exited with code 4,/);
  await unified.close();
  assert.equal((await call(setUp().unified, "list_sessions")).text, "No sessions");
});

test("durations of a session do not change if the time of day is set back", async () => {
  const { backend, clock, unified, run, open } = setUp();
  const events = collectEvents(unified);
  await open();
  await clock.advance(1_750);
  clock.setForward(-3_600_000);
  const [session] = Object.values(fact(await call(unified, "list_sessions"), "sessions") ?? []);
  assert.deepEqual([session.age_seconds, session.quiet_seconds], [2, 2]);
  const written = run("write_stdin", { session_id: 1 });
  clock.setForward(-3_600_000);
  assert.equal(fact(await written, "wall_time_seconds"), 5);
  backend.last.end(0);
  await clock.advance(0);
  const end = events.at(-1);
  assert.ok(end?.type === "ExecCommandEnd");
  assert.equal(end.durationMs, 7_000);
  await unified.close();
});

test("events come in order: begin, output, input, end, and the end has the transcript", async () => {
  const { backend, clock, unified, run, open } = setUp();
  const events = collectEvents(unified);
  await open();
  backend.last.print("out\n");
  backend.last.print("err\n", "stderr");
  await clock.advance(0);
  await run("write_stdin", { session_id: 1, chars: "in" }, 250);
  backend.last.print("more\n");
  backend.last.end(5);
  await clock.advance(0);
  assert.deepEqual(typesOf(events), [
    "ExecCommandBegin",
    "ExecCommandOutputDelta",
    "ExecCommandOutputDelta",
    "TerminalInteraction",
    "ExecCommandOutputDelta",
    "ExecCommandEnd",
  ]);
  const [begin] = events;
  const end = events.at(-1);
  assert.ok(begin?.type === "ExecCommandBegin" && end?.type === "ExecCommandEnd");
  assert.deepEqual(
    [begin.cmd, begin.argv, begin.cwd, begin.attempt],
    ["server", ["/bin/bash", "-c", "server"], "/w", 1],
  );
  assert.ok(end.end.type === "exited" && end.end.exitCode === 5);
  assert.equal(new TextDecoder().decode(end.head), "out\nerr\nmore\n");
  assert.deepEqual([end.omittedBytes, end.totalBytes, end.durationMs], [0, 13, 500]);
  await unified.close();
});

const endings: Record<string, (setup: ReturnType<typeof setUp>) => unknown> = {
  "exit between calls": ({ backend }) => backend.last.end(0),
  "exit with streams held open": async ({ backend, clock }) => {
    backend.last.exit(0);
    await clock.advance(50);
    backend.last.print("late");
    backend.last.close();
  },
  "termination from outside": ({ backend }) => backend.last.exit(137, { signal: "SIGKILL", reason: "terminated" }),
  "lost server": ({ backend }) => backend.last.log.fail(new DisconnectedError()),
  eviction: ({ open }) => open(),
  close: ({ unified }) => void unified.close(),
  "close of a process that does not end": ({ backend, unified }) => {
    backend.last.diesWhenTerminated = false;
    void unified.close();
  },
};
for (const [name, end] of Object.entries(endings)) {
  test(`the end is emitted exactly once, and last: ${name}`, async () => {
    const setup = setUp({ limits: { maxSessions: 1 } });
    const { clock, unified, open } = setup;
    const events = collectEvents(unified);
    await open();
    await end(setup);
    await clock.advance(10_000);
    const closed = unified.close();
    await clock.advance(10_000);
    await closed;
    const first = events.find((event) => event.type === "ExecCommandBegin");
    const types = typesOf(events.filter((event) => event.processId === first?.processId));
    assert.equal(types.filter((type) => type === "ExecCommandEnd").length, 1);
    assert.deepEqual([types[0], types.at(-1)], ["ExecCommandBegin", "ExecCommandEnd"]);
    assert.equal(clock.pendingTimers, 0);
  });
}

test("a slow subscriber loses the oldest output, and receives the number of lost bytes per process", async () => {
  const { backend, clock, unified, open } = setUp();
  const events = unified.events();
  await open();
  const chunk = "x".repeat(1024 * 1024);
  for (let count = 0; count < 10; count++) {
    backend.last.print(chunk);
    await clock.advance(0);
  }
  backend.last.end(0);
  // Long output is written to a file, which takes real time.
  await new Promise<void>((resolve) => {
    const other = unified.events();
    void (async () => {
      for await (const event of other) if (event.type === "ExecCommandEnd") resolve();
    })();
    void clock.advance(0);
  });
  await unified.close();
  let received = 0;
  let lost = 0;
  const types: string[] = [];
  for await (const event of events) {
    types.push(event.type);
    if (event.type !== "ExecCommandOutputDelta") continue;
    received += event.chunk.length;
    lost += event.omittedBytes;
  }
  assert.equal(received + lost, 10 * chunk.length);
  assert.ok(received <= 4 * chunk.length && received > 0 && lost > 0);
  assert.deepEqual([types[0], types.at(-1)], ["ExecCommandBegin", "ExecCommandEnd"]);
});
