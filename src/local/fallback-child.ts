import type { ChildProcess } from "node:child_process";
import { statSync } from "node:fs";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import { MISSING_RUNTIME_SUPPORT } from "../base/js-runtime.ts";
import type { OutputStream } from "../exec/exec-process.ts";
import { type Child, type ChildEvents, type ChildSpec, NO_STDIO_IDENTITY, type WaitStatus } from "./child.ts";
import { outputReadError } from "./errno-text.ts";
import { SpawnError, spawnErrorFromRequest, toSpawnError } from "./spawn-error.ts";
import { procFsTable } from "./tree/process-table.ts";
import { WriteIdCache } from "./write-id-cache.ts";

/**
 * Silence on the streams after which the leader's exit is emitted although a descendant still holds them. Node
 * reports an exit before it has read all output of the leader.
 */
const QUIET_AFTER_EXIT_MS = 100;

/** The error for a start with a terminal without the native addon. */
const TERMINAL_NEEDS_ADDON = `cannot allocate a terminal: ${
  MISSING_RUNTIME_SUPPORT ??
  "native addon not available; install the package of this platform (`npm install` without --omit=optional), or install a C++ compiler and start again"
}`;

/**
 * Starts a command through `node:child_process`, for hosts on which the native addon cannot be loaded. It has no
 * terminals, its pipes are sockets, /bin/sh runs a script without `#!`, and forking a large process blocks the event loop.
 */
export function spawnNodeChild(spec: ChildSpec, events: ChildEvents): Promise<Child> {
  if (spec.terminal)
    return Promise.reject(
      new SpawnError(TERMINAL_NEEDS_ADDON, {
        code: "ENOSYS",
        errno: constants.errno.ENOSYS,
        syscall: "openpt",
        path: "/dev/ptmx",
        target: "resources",
      }),
    );
  const { promise, resolve, reject } = Promise.withResolvers<Child>();
  const fail = (error: unknown) => reject(explainStartFailure(error, spec));
  try {
    // Imported on demand: a server with the native addon never needs this module, and loading it delays every start.
    const { spawn } = process.getBuiltinModule("node:child_process");
    const child = spawn(spec.file, spec.argv.slice(1), {
      argv0: spec.argv[0] ?? spec.file,
      // Before exec the forked child shares the server's descriptors and finds this one through the server's pid.
      cwd: spec.directory === undefined ? spec.cwd : `/proc/${process.pid}/fd/${spec.directory}`,
      env: spec.env,
      detached: true,
      stdio: [spec.pipeStdin ? "pipe" : "ignore", "pipe", "pipe", ...spec.descriptors],
    });
    child.once("error", fail);
    child.once("spawn", () => {
      child.off("error", fail);
      // Later errors are failed kills, which `signalGroup` reports already.
      child.on("error", () => undefined);
      const { pid, stdout, stderr } = child;
      if (pid === undefined || !stdout || !stderr) {
        reject(toSpawnError(constants.errno.EMFILE, "socketpair", spec.file));
        return;
      }
      resolve(watchChild({ pid, child, stdout, stderr }, events));
    });
  } catch (error) {
    fail(error);
  }
  return promise;
}

interface NodeChild {
  pid: number;
  child: ChildProcess;
  stdout: Readable;
  stderr: Readable;
}

function watchChild({ pid, child, stdout, stderr }: NodeChild, events: ChildEvents): Child {
  let isReaped = false;
  let exit: WaitStatus | null = null;
  let isExitReported = false;
  let quiet: NodeJS.Timeout | null = null;
  const writeIds = new WriteIdCache();
  let acceptedBytes = 0;

  const reportExit = () => {
    if (isExitReported || !exit) return;
    isExitReported = true;
    if (quiet) clearTimeout(quiet);
    events.exit(exit);
  };
  const restartQuiet = () => {
    if (quiet) clearTimeout(quiet);
    // The extra tick lets a read that is already due run first.
    quiet = setTimeout(() => setImmediate(reportExit), QUIET_AFTER_EXIT_MS);
  };
  const follow = (stream: Readable, name: OutputStream) => {
    stream.on("data", (chunk: Buffer) => {
      events.output(name, chunk);
      if (isReaped && !isExitReported) restartQuiet();
    });
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // A reset while the peer exits is a normal end of the stream.
      if (error.code !== "ECONNRESET") events.failed(outputReadError(-(error.errno ?? 0)));
    });
  };
  follow(stdout, "stdout");
  follow(stderr, "stderr");
  child.stdin?.on("drain", () => events.drain());
  child.stdin?.on("close", () => events.drain());
  child.stdin?.on("error", () => events.drain());
  child.once("exit", (code, signal) => {
    isReaped = true;
    exit = signal !== null ? { type: "signal", signal: constants.signals[signal] } : { type: "code", code: code ?? -1 };
    restartQuiet();
  });
  child.once("close", () => {
    reportExit();
    events.close();
  });

  return {
    pid,
    startTime: procFsTable.entry(pid)?.startTime ?? null,
    treeTag: null,
    stdioIdentity: NO_STDIO_IDENTITY,
    input: {
      write(bytes, writeId) {
        if (writeId !== undefined) writeIds.add(writeId);
        const { stdin } = child;
        // The stream retains the bytes after `write` returns, and the caller may reuse its buffer.
        if (!stdin || stdin.destroyed || stdin.writableEnded) return;
        acceptedBytes += bytes.length;
        stdin.write(Uint8Array.from(bytes));
      },
      hasWriteId: (writeId) => writeIds.has(writeId),
      get queuedBytes() {
        return child.stdin && !child.stdin.destroyed ? child.stdin.writableLength : 0;
      },
      get writtenBytes() {
        return acceptedBytes - (child.stdin?.writableLength ?? 0);
      },
      close: () => void child.stdin?.end(),
      direct: null,
      closeDirect: () => undefined,
    },
    pause() {
      stdout.pause();
      stderr.pause();
    },
    resume() {
      stdout.resume();
      stderr.resume();
    },
    resize: () => undefined,
    ttyState: () => null,
    signalGroup(signal) {
      if (isReaped) return false;
      try {
        process.kill(-pid, signal);
        return true;
      } catch {
        return false;
      }
    },
    closeStreams() {
      stdout.destroy();
      stderr.destroy();
      child.stdin?.destroy();
    },
  };
}

/** Node reports a missing working directory as a missing executable; this checks which of the two is missing. */
function explainStartFailure(error: unknown, spec: ChildSpec): SpawnError {
  const errno = error instanceof Error && "errno" in error && typeof error.errno === "number" ? -error.errno : null;
  if (errno === constants.errno.ENOENT || errno === constants.errno.ENOTDIR) {
    const cwd = statSync(spec.cwd, { throwIfNoEntry: false });
    if (!cwd) return toSpawnError(constants.errno.ENOENT, "chdir", spec.cwd);
    if (!cwd.isDirectory()) return toSpawnError(constants.errno.ENOTDIR, "chdir", spec.cwd);
  }
  if (errno !== null) return toSpawnError(errno, "execve", spec.file);
  return spawnErrorFromRequest("spawn failed: the system rejected the request", spec.file, { cause: error });
}
