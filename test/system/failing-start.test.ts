import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { whyNoStrace } from "../support/faults/injected-faults.ts";
import { PROCWIRE, ServeChild } from "../support/servers/serve.ts";
import { until } from "../support/system/until.ts";

/** System calls that a server needs to start, and the error message of the server when one fails. */
const FAULTS: readonly { syscall: string; error: string; says: RegExp }[] = [
  { syscall: "socket", error: "EMFILE", says: /too many open files/i },
  { syscall: "bind", error: "EACCES", says: /permission denied/i },
  { syscall: "bind", error: "EADDRINUSE", says: /the address is already in use \(EADDRINUSE\)/ },
  { syscall: "listen", error: "EADDRINUSE", says: /the address is already in use \(EADDRINUSE\)/ },
];

const missing = whyNoStrace();
if (missing !== null && process.env.CI) throw new Error(`${missing}; the tests of test/system need it`);

describe("a start that cannot succeed", { skip: missing ?? false }, () => {
  for (const { syscall, error, says } of FAULTS) {
    test(`${syscall} fails with ${error}: the server reports it and exits`, async () => {
      const strace = [
        "-f",
        "-o",
        "/dev/null",
        "-e",
        `trace=${syscall}`,
        "-e",
        `inject=${syscall}:error=${error}:when=1+`,
      ];
      await using server = new ServeChild(["--listen", "ws://127.0.0.1:0"], {
        command: ["strace", ...strace, PROCWIRE, "serve"],
      });
      await until(`an end (${server.stderr})`, () => server.child.exitCode !== null);
      const { code } = await server.exited;
      assert.equal(code, 1, server.stderr);
      assert.match(server.stderr, says);
      assert.ok(!/at .*\.(ts|js|cjs):\d+/.test(server.stderr), `a stack was shown: ${server.stderr}`);
    });
  }
});
