/** A person at the terminal of a session: what the model is told, and how it asks for one. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
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
  const begin = async (name: string, args: Record<string, unknown>) => {
    const result = call(unified, name, args);
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
  test("says so, with the line a person types, and one event a prompt", async () => {
    const { backend, look, events, unified } = await setUp();
    assert.equal(fact(await look(), "waiting_for"), undefined);
    backend.last.tty = SECRET;
    for (let i = 0; i < 3; i++) {
      const output = await look();
      assert.equal(fact(output, "waiting_for"), "secret");
      const command = "procwire attach --connect 'exec:ssh me@there' k3v7q2mfa5zt";
      assert.deepEqual(fact(output, "attach"), { handle: "k3v7q2mfa5zt", command });
      assert.ok(output.text.includes(`Waiting for: secret; a person can type it with \`${command}\``));
    }
    backend.last.print("again: ");
    await look();
    await unified.close();
    const waits = events.filter(({ type }) => type === "TerminalWaiting");
    assert.equal(waits.length, 2);
    // What a model types at such a prompt is in no event either.
    const typed = events.flatMap((event) => (event.type === "TerminalInteraction" ? [event.stdin] : []));
    assert.deepEqual(typed, ["\n", null, null, null, null]);
  });

  test("names no attach command where attaching is impossible", async () => {
    const { backend, look } = await setUp({ attachUrl: null });
    backend.last.tty = SECRET;
    const output = await look();
    assert.deepEqual([fact(output, "waiting_for"), fact(output, "attach")], ["secret", undefined]);
  });
});

describe("a person who drives", () => {
  test("is reported while attached, and once after leaving", async () => {
    const { backend, look } = await setUp();
    backend.last.onDriverChanged("attached");
    assert.equal(fact(await look(), "person"), "drives");
    assert.equal(fact(await look(), "person"), "drives");
    backend.last.onDriverChanged("none");
    assert.equal(fact(await look(), "person"), "handed_back");
    assert.equal(fact(await look(), "person"), undefined);
    // Also a person who attached and left between two calls.
    backend.last.onDriverChanged("attached");
    backend.last.onDriverChanged("none");
    assert.equal(fact(await look(), "person"), "handed_back");
  });
});

describe("hand_over", () => {
  test("waits until a person has driven the terminal and handed it back", async () => {
    const { backend, clock, begin, session_id, events, unified } = await setUp();
    const { result } = await begin("hand_over", { session_id, reason: "type the password" });
    await clock.advance(60_000);
    backend.last.onDriverChanged("attached");
    await clock.advance(60_000);
    assert.equal(await isSettled(result), false);
    backend.last.print("welcome\n");
    backend.last.onDriverChanged("none");
    await clock.advance(0);
    const output = await result;
    assert.equal(fact(output, "wait"), "a person has driven the terminal and handed it back");
    assert.equal(fact(output, "person"), "handed_back");
    assert.match(output.text, /welcome/);
    await unified.close();
    const told = events.flatMap((event) =>
      event.type === "TerminalWaiting"
        ? [event.reason]
        : event.type === "TerminalDriver"
          ? [event.driver]
          : [],
    );
    assert.deepEqual(told, ["type the password", "person", "model"]);
  });

  test("ends with its time, with the command, and with the call", async () => {
    const { backend, clock, begin, session_id } = await setUp();
    const late = await begin("hand_over", { session_id, reason: "x", timeout_ms: 1000 });
    await clock.advance(1000);
    assert.equal(fact(await late.result, "wait"), "timeout: nobody has come");
    const driven = await begin("hand_over", { session_id, reason: "x", timeout_ms: 1000 });
    backend.last.onDriverChanged("attached");
    await clock.advance(1000);
    assert.equal(fact(await driven.result, "wait"), "timeout: a person still drives the terminal");
    const over = await begin("hand_over", { session_id, reason: "x" });
    backend.last.end(0);
    await clock.advance(0);
    assert.equal(fact(await over.result, "wait"), "the command has ended");
  });

  test("refuses a session without a terminal, one nobody can attach to, and one nobody knows", async () => {
    const piped = await setUp({}, false);
    assert.match(
      (await (await piped.begin("hand_over", { session_id: piped.session_id, reason: "x" })).result).text,
      /has no terminal/,
    );
    const { backend, begin, session_id } = await setUp();
    assert.match(
      (await (await begin("hand_over", { session_id: 99, reason: "x" })).result).text,
      /Unknown process id 99/,
    );
    backend.last.handle = null;
    assert.match(
      (await (await begin("hand_over", { session_id, reason: "x" })).result).text,
      /nobody can attach here/,
    );
    const { unified } = await setUp({ attachUrl: null });
    assert.ok(!unified.tools.some(({ definition }) => definition.name === "hand_over"));
  });
});
