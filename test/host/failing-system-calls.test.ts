import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { InjectedFault, whyNoStrace } from "../support/injected-faults.ts";
import { descendantsOf, openDescriptors, processorSeconds } from "../support/program-figures.ts";
import { type ServeChild, serve } from "../support/serve.ts";
import { until } from "../support/until.ts";
import { sh } from "../support/wire.ts";

/** How long a client waits for a call that may never be answered before it leaves. */
const FAULTY_PATIENCE_MS = 2500;
/** Of one processor: a server that does nothing uses less, one that spins uses all of it. */
const SPINNING_SHARE = 0.5;
/** The first, the second and a later call of each thread: one after another every step of the way meets its fault. */
const CALLS = [1, 2, 3, 5];

/** What can fail on the way from a connection to a process and back, and how. */
const FAULTS: readonly { syscall: string; errors: readonly string[] }[] = [
  { syscall: "accept4", errors: ["EMFILE", "ENFILE", "ENOMEM", "ECONNABORTED", "EAGAIN"] },
  { syscall: "epoll_ctl", errors: ["ENOMEM", "ENOSPC"] },
  { syscall: "clone", errors: ["EAGAIN", "ENOMEM"] },
  { syscall: "pipe2", errors: ["EMFILE", "ENFILE"] },
  { syscall: "openat", errors: ["EMFILE", "ENOMEM"] },
  { syscall: "ioctl", errors: ["ENOMEM"] },
  { syscall: "fcntl", errors: ["EINVAL"] },
  // Other errors of a write may hit libuv's own wake-up, which cannot fail in earnest and ends the program.
  // Not here yet: read. With EIO the program ends; with EAGAIN or EINTR one or two descriptors sometimes stay open, why is
  // not known.
  { syscall: "write", errors: ["EINTR"] },
  { syscall: "sendmsg", errors: ["EPIPE", "ECONNRESET", "ENOBUFS", "EAGAIN"] },
  { syscall: "waitid", errors: ["EINTR"] },
  { syscall: "kill", errors: ["EPERM"] },
  { syscall: "setsockopt", errors: ["ENOBUFS"] },
  { syscall: "getpeername", errors: ["ENOTCONN"] },
  { syscall: "shutdown", errors: ["ENOTCONN"] },
  { syscall: "getdents64", errors: ["ENOMEM"] },
  { syscall: "epoll_pwait", errors: ["EINTR"] },
];

const missing = whyNoStrace();
if (missing !== null && process.env.CI) throw new Error(`${missing}; the tests of test/host need it`);

describe("every system call fails once", { skip: missing ?? false }, () => {
  for (const { syscall, errors } of FAULTS) {
    for (const error of errors) {
      test(`${syscall} fails with ${error}: the server goes on and nothing is left open`, async (t) => {
        await using server = await serve("--detached-session-ttl", "0");
        const pid = server.serverPid();
        // What is loaded and opened once stays; it is not what a fault leaves behind.
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
          const patience = setTimeout(() => leave.abort(), FAULTY_PATIENCE_MS);
          t.diagnostic(`call ${when}: ${(await using).slice(0, 120)}`);
          clearTimeout(patience);
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

/** Connects, runs a program with pipes, one in a terminal and one with much output, reads a file, and leaves. */
async function useEverything(server: ServeChild, leave?: AbortSignal): Promise<void> {
  const client = await raced(server.connect(), leave);
  try {
    await raced(client.handshake(), leave);
    const rest = async () => {
      await client.start("pipes", ["cat"], { pipeStdin: true });
      await client.write("pipes", "hello");
      await client.call("process/closeStdin", { processId: "pipes" });
      await client.finished("pipes");
      assert.equal(client.output("pipes"), "hello");
      await client.start("terminal", ["cat"], { tty: true });
      await client.call("process/terminate", { processId: "terminal" });
      await client.finished("terminal");
      await client.start("flood", sh("head -c 300000 /dev/zero; exit 3"));
      await client.finished("flood");
      assert.equal(client.output("flood").length, 300_000);
      await client.call("fs/readFile", { path: "file:///etc/hostname" });
    };
    await raced(rest(), leave);
    await raced(client.close(), leave);
  } finally {
    client.cut();
  }
}

function raced<T>(promise: Promise<T>, leave: AbortSignal | undefined): Promise<T> {
  if (!leave) return promise;
  // A client that has left does not need the answer.
  promise.catch(() => undefined);
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(new Error("left without an answer"));
    if (leave.aborted) onAbort();
    leave.addEventListener("abort", onAbort, { once: true });
    promise.then(resolve, reject);
  });
}

async function isIdle(pid: number): Promise<void> {
  await until("the server rests", async () => {
    const [usedBefore, from] = [processorSeconds(pid), performance.now()];
    await new Promise((resolve) => setTimeout(resolve, 100));
    return (processorSeconds(pid) - usedBefore) / ((performance.now() - from) / 1000) < SPINNING_SHARE;
  });
}
