import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { InjectedFault, whyNoStrace } from "../support/faults/injected-faults.ts";
import { serve } from "../support/servers/serve.ts";
import { isIdle, useEverything } from "../support/system/exercise-all-features.ts";
import { descendantsOf, openDescriptors } from "../support/system/process-stats.ts";
import { until } from "../support/system/until.ts";

/** Timeout of a call that may never get a response. */
const FAULTY_TIMEOUT_MS = 2500;
/** The fault hits the first, the second and a later call of each thread, so that it hits different steps. */
const CALLS = [1, 2, 3, 5];

/** System calls that can fail between a connection and a process, and their errors. */
const FAULTS: readonly { syscall: string; errors: readonly string[] }[] = [
  { syscall: "accept4", errors: ["EMFILE", "ENFILE", "ENOMEM", "ECONNABORTED", "EAGAIN"] },
  { syscall: "epoll_ctl", errors: ["ENOMEM", "ENOSPC"] },
  // clone3 starts a program in a cgroup; clone starts it without a cgroup.
  { syscall: "clone3,clone", errors: ["EAGAIN", "ENOMEM"] },
  { syscall: "pipe2", errors: ["EMFILE", "ENFILE"] },
  { syscall: "openat", errors: ["EMFILE", "ENOMEM"] },
  { syscall: "ioctl", errors: ["ENOMEM"] },
  { syscall: "fcntl", errors: ["EINVAL"] },
  { syscall: "read", errors: ["EAGAIN", "EINTR"] },
  // Other errors of these two may hit the eventfd or the pipe that libuv uses to wake its loop. That ends every Node
  // program on purpose. failing-streams.test.ts covers these errors for all other descriptors.
  { syscall: "write", errors: ["EINTR"] },
  { syscall: "sendmsg", errors: ["EPIPE", "ECONNRESET", "ENOBUFS", "EAGAIN"] },
  { syscall: "waitid", errors: ["EINTR"] },
  { syscall: "kill", errors: ["EPERM"] },
  { syscall: "setsockopt", errors: ["ENOBUFS"] },
  { syscall: "shutdown", errors: ["ENOTCONN"] },
  { syscall: "getdents64", errors: ["ENOMEM"] },
  { syscall: "epoll_pwait", errors: ["EINTR"] },
];

const missing = whyNoStrace();
if (missing !== null && process.env.CI) throw new Error(`${missing}; the tests of test/system need it`);

describe("every system call fails once", { skip: missing ?? false }, () => {
  for (const { syscall, errors } of FAULTS) {
    for (const error of errors) {
      test(`${syscall} fails with ${error}: the server keeps serving and leaves nothing open`, async (t) => {
        await using server = await serve("--detached-session-ttl", "0");
        const pid = server.serverPid();
        // Files that are loaded or opened once stay open; that is not a leak caused by a fault.
        for (let n = 0; n < 3; n++) await useEverything(server);
        const before = openDescriptors(pid).length;
        let injected = 0;
        for (const when of CALLS) {
          const fault = await InjectedFault.into(pid, { syscall, error, when });
          const leave = new AbortController();
          const using = useEverything(server, leave.signal).then(
            () => "done",
            (problem: unknown) => String(problem),
          );
          const timeout = setTimeout(() => leave.abort(), FAULTY_TIMEOUT_MS);
          const outcome = await using;
          t.diagnostic(`call ${when}: ${outcome.slice(0, 120)}`);
          assert.doesNotMatch(outcome, /internal error/, "an error says what failed");
          clearTimeout(timeout);
          await fault[Symbol.asyncDispose]();
          injected += fault.injected;
          assert.equal(server.child.exitCode, null, `the server ended: ${server.stderr}`);
          await useEverything(server);
          await until(
            `${before} descriptors and no process (call ${when}; ${openDescriptors(pid).length} descriptors)`,
            () => openDescriptors(pid).length <= before && descendantsOf(pid).length === 0,
          );
          await isIdle(pid);
        }
        t.diagnostic(`${injected} calls failed`);
        assert.ok(injected > 0, `${syscall} was never called`);
      });
    }
  }
});
