import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, constants, openSync, readSync, writeSync } from "node:fs";
import { constants as system } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { ServeChild, scratchDirectory } from "../support/servers/serve.ts";
import { isIdle, useEverything } from "../support/system/exercise-all-features.ts";
import { descendantsOf, openDescriptors } from "../support/system/process-stats.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";

const SOURCE = join(import.meta.dirname, "..", "fixtures", "native", "failing-io.c");
const FAULTY_TIMEOUT_MS = 2500;
const CALLS = [1, 2, 4];

const { S_IFIFO, S_IFSOCK, S_IFCHR, S_IFREG } = constants;
const { EIO, EAGAIN, EINTR, ENOSPC, EPIPE, ECONNRESET, ENOMEM } = system.errno;

/** Errors that a read or a write of a pipe, a socket, a terminal or a file may return. */
const FAULTS: readonly [what: string, isWrite: boolean, kind: number, errors: Record<string, number>][] = [
  ["read of a pipe", false, S_IFIFO, { EIO, EAGAIN, EINTR, ENOMEM }],
  ["read of a terminal", false, S_IFCHR, { EIO, EAGAIN, EINTR }],
  ["read of a socket", false, S_IFSOCK, { ECONNRESET, EAGAIN, EINTR, ENOMEM }],
  ["read of a file", false, S_IFREG, { EIO, EINTR, ENOMEM }],
  ["write to a pipe", true, S_IFIFO, { EPIPE, EIO, EAGAIN, ENOMEM }],
  ["write to a terminal", true, S_IFCHR, { EIO, EAGAIN }],
  ["write to a file", true, S_IFREG, { ENOSPC, EIO }],
];

const compiler = spawnSync("cc", ["--version"]).status === 0;
const skip = skipUnless(compiler, "no C compiler: nothing can be made to fail by kind of descriptor");

describe("every read and write fails once", { skip }, () => {
  for (const [what, isWrite, kind, errors] of FAULTS) {
    for (const [name, error] of Object.entries(errors)) {
      test(`a ${what} fails with ${name}: the server keeps serving and leaves nothing open`, async (t) => {
        using scratch = scratchDirectory();
        const [library, order] = [join(scratch.path, "failing-io.so"), join(scratch.path, "order")];
        const built = spawnSync("cc", ["-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], {
          encoding: "utf8",
        });
        assert.equal(built.status, 0, built.stderr);
        give(order, [0, 0, 0, 0, 0, 0]);
        await using server = await new ServeChild(["--listen", "ws://127.0.0.1:0", "--detached-session-ttl", "0"], {
          env: { LD_PRELOAD: library, FAILING_IO: order },
        }).listening();
        const pid = server.serverPid();
        // Files that are loaded or opened once stay open; that is not a leak caused by a fault.
        for (let n = 0; n < 3; n++) await useEverything(server, undefined, scratch.path);
        const before = openDescriptors(pid).length;
        let failed = 0;
        for (const call of CALLS) {
          give(order, [pid, Number(isWrite), kind, call, error, 0]);
          const leave = new AbortController();
          const timeout = setTimeout(() => leave.abort(), FAULTY_TIMEOUT_MS);
          const outcome = await useEverything(server, leave.signal, scratch.path).then(
            () => "done",
            (problem: unknown) => String(problem),
          );
          clearTimeout(timeout);
          t.diagnostic(`call ${call}: ${outcome.slice(0, 120)}`);
          assert.doesNotMatch(outcome, /internal error/, "an error says what failed");
          failed += failures(order);
          give(order, [0, 0, 0, 0, 0, 0]);
          assert.equal(server.child.exitCode, null, `the server ended: ${server.stderr}`);
          await useEverything(server, undefined, scratch.path);
          await until(
            `${before} descriptors and no process (call ${call})`,
            () => openDescriptors(pid).length <= before && descendantsOf(pid).length === 0,
          );
          await isIdle(pid);
        }
        assert.ok(failed > 0, `there was no ${what}`);
      });
    }
  }
});

/** The layout that the fault library reads: pid, whether it is a write, kind, countdown, error, failures. */
function give(path: string, numbers: number[]): void {
  const file = openSync(path, constants.O_RDWR | constants.O_CREAT);
  writeSync(file, new Uint8Array(Int32Array.from(numbers).buffer), 0, 24, 0);
  closeSync(file);
}

function failures(path: string): number {
  const file = openSync(path, "r");
  const numbers = new Int32Array(6);
  readSync(file, new Uint8Array(numbers.buffer), 0, 24, 0);
  closeSync(file);
  return numbers[5] ?? 0;
}
