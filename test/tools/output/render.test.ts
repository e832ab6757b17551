import assert from "node:assert/strict";
import { test } from "node:test";
import type { CallResult } from "../../../src/tools/output/render.ts";
import { renderStructured, renderText } from "../../../src/tools/output/render.ts";

const exited: CallResult = {
  chunkId: "bbee4d",
  wallTimeMs: 1234.5,
  state: { type: "exited", exitCode: 0, signal: null, sandboxDenied: false },
  output: { text: "hello\n", original: 6, retained: 6, omitted: 0, extent: null },
  archivedAs: 3,
};

test("the text of an ended command has one fact per line in the order of Codex", () => {
  assert.equal(
    renderText(exited),
    "Chunk ID: bbee4d\nWall time: 1.2345 seconds\nProcess exited with code 0\nOriginal token count: 2\nOutput:\nhello\n",
  );
});

test("the text of a running command names its session", () => {
  const text = renderText({ ...exited, state: { type: "running", sessionId: 7 } });
  assert.match(text, /\nProcess running with session ID 7\nOriginal token count/);
});

test("truncated output starts with a warning, the original count and the session id for read_output", () => {
  const text = "he…23 tokens truncated…o\n";
  const output = { text, original: 95, retained: 5, omitted: 90, extent: "Total output lines: 4" };
  assert.match(
    renderText({ ...exited, output }),
    /\nOmitted output: call read_output with session_id 3\nOutput:\nWarning: truncated output \(original token count: 24\)\nTotal output lines: 4\n\nhe…/,
  );
  assert.deepEqual(renderStructured({ ...exited, output }).truncation, {
    original: 95,
    retained: 5,
    omitted: 90,
    read_output_session_id: 3,
  });
});

test("an ended command has an exit code and no session, a running one the reverse", () => {
  assert.deepEqual(renderStructured(exited), {
    chunk_id: "bbee4d",
    wall_time_seconds: 1.2345,
    exit_code: 0,
    original_token_count: 2,
    output: "hello\n",
  });
  const running = renderStructured({ ...exited, state: { type: "running", sessionId: 7 } });
  assert.equal(running.session_id, 7);
  assert.ok(!("exit_code" in running));
});

test("a terminal without echo is reported as waiting for a secret", () => {
  const result: CallResult = {
    ...exited,
    state: { type: "running", sessionId: 7 },
    awaitingInput: { secret: true },
  };
  assert.match(renderText(result), /\nAwaiting input: secret \(echo is off\)\nOutput:\n/);
  assert.deepEqual(renderStructured(result).awaiting_input, { secret: true });
});

test("the text of a command with a sandbox denial has a separate line for it", () => {
  const state = { type: "exited", exitCode: 1, signal: null, sandboxDenied: true } as const;
  assert.match(
    renderText({ ...exited, state }),
    /\nOriginal token count: 2\nSandbox: probably denied an operation.*\nOutput:\nhello\n$/,
  );
  assert.equal(renderStructured({ ...exited, state }).sandbox_denied, true);
});
