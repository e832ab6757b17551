import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { DENIAL_TAIL_BYTES, isSandboxDenial } from "../../src/sandbox/denial-compat.ts";

const bytes = (text: string) => new TextEncoder().encode(text);

test("isSandboxDenial reports a denial for a failure with a permission error, in several languages", () => {
  const texts = [
    "touch: cannot touch '/x': Read-only file system\n",
    "Error: EROFS: read-only file system, open '/x'\n",
    "PermissionError: [Errno 13] Permission denied: '/x'\n",
    "bash: /x: Operation not permitted\n",
  ];
  for (const text of texts) assert.ok(isSandboxDenial({ exitCode: 1, signal: null }, bytes(text)), text);
});

test("isSandboxDenial reports no denial for exit code 0, independent of the output", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (before, after) => {
      const text = bytes(`${before}Permission denied${after}`);
      assert.equal(isSandboxDenial({ exitCode: 0, signal: null }, text), false);
      assert.equal(isSandboxDenial({ exitCode: 1, signal: null }, text), true);
    }),
  );
});

test("isSandboxDenial reports a network error as a denial only without network access", () => {
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

test("isSandboxDenial recognizes each text of a missing network, and no similar text", () => {
  const reports = (text: string) => isSandboxDenial({ exitCode: 1, signal: null }, bytes(text), { network: false });
  for (const text of [
    "nc: Connection refused",
    "curl: (6) Could not resolve host: a.test",
    "ssh: Could not resolve hostname a.test: Temporary failure in name resolution",
    "ping: a.test: Name or service not known",
    "Error: connect ENETUNREACH 1.1.1.1:80",
    "Error: getaddrinfo EAI_AGAIN a.test",
  ])
    assert.ok(reports(text), text);
  for (const text of ["connection reset by peer", "the network is reachable", "EHOSTUNREACH", "resolved a.test"])
    assert.ok(!reports(text), text);
  for (const text of ["permission granted", "a read-only file", "operation permitted", "EPERM"])
    assert.ok(!reports(text), text);
});

test("isSandboxDenial reports no denial for an ordinary failure", () => {
  assert.equal(isSandboxDenial({ exitCode: 1, signal: null }, bytes("2 tests failed\n")), false);
  assert.equal(isSandboxDenial({ exitCode: 137, signal: "SIGKILL" }, bytes("")), false);
});

test("isSandboxDenial reports a denial for SIGSYS without any output", () => {
  assert.ok(isSandboxDenial({ exitCode: 159, signal: "SIGSYS" }, bytes("")));
  assert.ok(isSandboxDenial({ exitCode: 159, signal: null }, bytes("")), "the exit code of bubblewrap");
});

test("isSandboxDenial reports no denial for a running process", () => {
  assert.equal(isSandboxDenial({ exitCode: null, signal: null }, bytes("Permission denied")), false);
});

test("isSandboxDenial searches only the tail of the output", () => {
  const long = bytes(`Permission denied${"x".repeat(DENIAL_TAIL_BYTES)}`);
  assert.equal(isSandboxDenial({ exitCode: 1, signal: null }, long), false);
});
