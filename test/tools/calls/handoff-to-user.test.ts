/** Users at the terminal of an exec session: results for the model, and handoff_to_user. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ToolCallContext } from "../../../src/tools/tool.ts";
import { createUnifiedExec, type UnifiedExecOptions } from "../../../src/tools/unified-exec.ts";
import { call, collectEvents, fact, isSettled, sessionOf } from "../calls.ts";
import { ScriptedBackend } from "../scripted-backend.ts";

const SECRET = { rows: 24, cols: 80, echo: false, canonical: true };

async function setUp(options: Partial<UnifiedExecOptions> = {}, tty = true) {
  const backend = new ScriptedBackend();
  const { clock } = backend;
  const attachUrl = "exec:ssh me@there";
  const unified = createUnifiedExec({ backend, clock, cwd: "/w", attachUrl, ...options });
  const events = collectEvents(unified);
  const begin = async (name: string, args: Record<string, unknown>, context: ToolCallContext = {}) => {
    const result = call(unified, name, args, context);
    await clock.advance(0);
    return { result };
  };
  const { result } = await begin("exec_command", { cmd: "sudo", tty, yield_time_ms: 250 });
  await clock.advance(250);
  const session_id = sessionOf(await result);
  backend.last.handle = "k3v7q2mfa5zt";
  const look = async () => {
    const looking = await begin("write_stdin", { session_id, chars: "\n" });
    await clock.advance(250);
    return looking.result;
  };
  return { backend, clock, unified, events, begin, look, session_id };
}

describe("a session that waits for a secret", () => {
  test("returns waiting_for: secret with the attach command, and emits one event per prompt", async () => {
    const { backend, look, events, unified } = await setUp();
    assert.equal(fact(await look(), "waiting_for"), undefined);
    backend.last.tty = SECRET;
    for (let i = 0; i < 3; i++) {
      const output = await look();
      assert.equal(fact(output, "waiting_for"), "secret");
      const command = "procwire attach --connect 'exec:ssh me@there' k3v7q2mfa5zt";
      assert.deepEqual(fact(output, "attach"), { handle: "k3v7q2mfa5zt", command });
      assert.ok(output.text.includes(`Waiting for: secret; a user can type it with \`${command}\``));
    }
    backend.last.print("again: ");
    await look();
    await unified.close();
    const waits = events.filter(({ type }) => type === "TerminalWaiting");
    assert.equal(waits.length, 2);
    // Events do not contain the model's input at such a prompt either.
    const typed = events.flatMap((event) => (event.type === "TerminalInteraction" ? [event.stdin] : []));
    assert.deepEqual(typed, ["\n", null, null, null, null]);
  });

  test("has no attach command if users cannot attach", async () => {
    const { backend, look } = await setUp({ attachUrl: null });
    backend.last.tty = SECRET;
    const output = await look();
    assert.deepEqual([fact(output, "waiting_for"), fact(output, "attach")], ["secret", undefined]);
  });
});

describe("a user who drives", () => {
  test("is reported while attached, and once after leaving", async () => {
    const { backend, look } = await setUp();
    backend.last.onDriverChanged("attached");
    assert.equal(fact(await look(), "user"), "driving");
    assert.equal(fact(await look(), "user"), "driving");
    backend.last.onDriverChanged("none");
    assert.equal(fact(await look(), "user"), "returned");
    assert.equal(fact(await look(), "user"), undefined);
    // Also for a user who attached and detached between two calls.
    backend.last.onDriverChanged("attached");
    backend.last.onDriverChanged("none");
    assert.equal(fact(await look(), "user"), "returned");
  });
});

describe("handoff_to_user", () => {
  test("waits until a user drove the terminal and returned it", async () => {
    const { backend, clock, begin, session_id, events, unified } = await setUp();
    const { result } = await begin("handoff_to_user", { session_id, reason: "type the password" });
    await clock.advance(60_000);
    backend.last.onDriverChanged("attached");
    await clock.advance(60_000);
    assert.equal(await isSettled(result), false);
    backend.last.print("welcome\n");
    backend.last.onDriverChanged("none");
    await clock.advance(0);
    const output = await result;
    assert.equal(fact(output, "wait"), "a user drove the terminal and returned it");
    assert.equal(fact(output, "user"), "returned");
    assert.match(output.text, /welcome/);
    await unified.close();
    const reported = events.flatMap((event) =>
      event.type === "TerminalWaiting" ? [event.reason] : event.type === "TerminalDriver" ? [event.driver] : [],
    );
    assert.deepEqual(reported, ["type the password", "user", "model"]);
  });

  test("ends when the call is cancelled, and the command continues", async () => {
    const { backend, begin, session_id } = await setUp();
    const call = new AbortController();
    const { result } = await begin("handoff_to_user", { session_id, reason: "x" }, { signal: call.signal });
    assert.equal(await isSettled(result), false);
    call.abort();
    assert.equal(fact(await result, "wait"), "the call was cancelled");
    assert.equal(backend.last.terminated, false);
  });

  test("ends at its timeout, and when the command ends", async () => {
    const { backend, clock, begin, session_id } = await setUp();
    const late = await begin("handoff_to_user", { session_id, reason: "x", timeout_ms: 1000 });
    await clock.advance(1000);
    assert.equal(fact(await late.result, "wait"), "timeout: no user attached");
    const driven = await begin("handoff_to_user", { session_id, reason: "x", timeout_ms: 1000 });
    backend.last.onDriverChanged("attached");
    await clock.advance(1000);
    assert.equal(fact(await driven.result, "wait"), "timeout: a user still drives the terminal");
    const over = await begin("handoff_to_user", { session_id, reason: "x" });
    backend.last.end(0);
    await clock.advance(0);
    assert.equal(fact(await over.result, "wait"), "the command has ended");
  });

  test("rejects sessions without a terminal, without a handle, and with an unknown id", async () => {
    const piped = await setUp({}, false);
    assert.match(
      (await (await piped.begin("handoff_to_user", { session_id: piped.session_id, reason: "x" })).result).text,
      /has no terminal/,
    );
    const { backend, begin, session_id } = await setUp();
    assert.match(
      (await (await begin("handoff_to_user", { session_id: 99, reason: "x" })).result).text,
      /Unknown process id 99/,
    );
    backend.last.handle = null;
    assert.match(
      (await (await begin("handoff_to_user", { session_id, reason: "x" })).result).text,
      /users cannot attach to this terminal/,
    );
    const { unified } = await setUp({ attachUrl: null });
    assert.ok(!unified.tools.some(({ definition }) => definition.name === "handoff_to_user"));
  });
});
