import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DENIAL_TAIL_BYTES, isSandboxDenial } from "../../src/sandbox/sandbox-denial.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

test("a failure whose output mentions a refusal is a denial, in whatever language", () => {
  const texts = [
    "touch: cannot touch '/x': Read-only file system\n",
    "Error: EROFS: read-only file system, open '/x'\n",
    "PermissionError: [Errno 13] Permission denied: '/x'\n",
    "bash: /x: Operation not permitted\n",
  ];
  for (const text of texts) assert.ok(isSandboxDenial({ exitCode: 1, signal: null }, bytes(text)), text);
});

test("a process that ended well was not denied, whatever it printed", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (before, after) => {
      const text = bytes(`${before}Permission denied${after}`);
      assert.equal(isSandboxDenial({ exitCode: 0, signal: null }, text), false);
      assert.equal(isSandboxDenial({ exitCode: 1, signal: null }, text), true);
    }),
  );
});

test("a network that is not there is a denial where the walls took it away, and nowhere else", () => {
  for (const text of [
    "curl: (7) Failed to connect to 127.0.0.1 port 80 after 0 ms: Couldn't connect to server\n",
    "connect ECONNREFUSED 127.0.0.1:5432\n",
    "ping: connect: Network is unreachable\n",
  ]) {
    const end = { exitCode: 1, signal: null };
    assert.ok(isSandboxDenial(end, bytes(text), { network: false }), text);
    assert.ok(!isSandboxDenial(end, bytes(text), { network: true }), text);
  }
});

test("an ordinary failure is no denial", () => {
  assert.equal(isSandboxDenial({ exitCode: 1, signal: null }, bytes("2 tests failed\n")), false);
  assert.equal(isSandboxDenial({ exitCode: 137, signal: "SIGKILL" }, bytes("")), false);
});

test("a kill by the system call filter is a denial without any output", () => {
  assert.ok(isSandboxDenial({ exitCode: 159, signal: "SIGSYS" }, bytes("")));
  assert.ok(isSandboxDenial({ exitCode: 159, signal: null }, bytes("")), "as passed on by bubblewrap");
});

test("a process that has not ended was not denied", () => {
  assert.equal(isSandboxDenial({ exitCode: null, signal: null }, bytes("Permission denied")), false);
});

test("only the end of the output is searched", () => {
  const long = bytes(`Permission denied${"x".repeat(DENIAL_TAIL_BYTES)}`);
  assert.equal(isSandboxDenial({ exitCode: 1, signal: null }, long), false);
});
