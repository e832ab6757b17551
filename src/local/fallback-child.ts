import type { ChildProcess } from "node:child_process";
import { statSync } from "node:fs";
import { constants } from "node:os";
import type { Readable } from "node:stream";
import type { OutputStream } from "../exec/exec-process.ts";
import type { Child, ChildEvents, ChildSpec, RawExit } from "./child.ts";
import { NO_ENDS } from "./child.ts";
import { unreadableOutput } from "./errno-text.ts";
import { SpawnError, spawnErrorFromErrno } from "./spawn-error.ts";
import { procFsTable } from "./tree/process-table.ts";
import { WriteIds } from "./write-id-cache.ts";

/**
 * How long the streams must have been silent after the leader's end before the exit is emitted while another process
 * still holds them: Node emits an exit before it has read what the leader wrote.
 */
const QUIET_AFTER_EXIT_MS = 100;

/** The error of a start in a terminal where the native spawner is missing. */
export const TERMINAL_NEEDS_ADDON =
  "a terminal needs the native spawner, which is not available here; install the package of this platform (`npm install` without --omit=optional), or install a C++ compiler and start again";

/**
 * Starts a program through node:child_process, where the native spawner cannot be loaded. Pipes only, and they are
 * sockets; a script without `#!` is run by /bin/sh; the event loop is blocked while a large process forks.
 */
export function spawnFallbackChild(spec: ChildSpec, events: ChildEvents): Promise<Child> {
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
  const fail = (error: unknown) => reject(toSpawnError(error, spec));
  try {
    // Imported here, because a server with the native spawner never needs it and would load it at every start.
    const { spawn } = process.getBuiltinModule("node:child_process");
    const child = spawn(spec.file, spec.argv.slice(1), {
      argv0: spec.argv[0] ?? spec.file,
      // The child of a fork has our descriptors until its exec, and finds this one under our pid.
      cwd: spec.directory === undefined ? spec.cwd : `/proc/${process.pid}/fd/${spec.directory}`,
      env: spec.env,
      detached: true,
      stdio: [spec.pipeStdin ? "pipe" : "ignore", "pipe", "pipe", ...spec.descriptors],
    });
    child.once("error", fail);
    child.once("spawn", () => {
      child.off("error", fail);
      // A later error is a failed kill, which its caller has seen already.
      child.on("error", () => undefined);
      const { pid, stdout, stderr } = child;
      if (pid === undefined || !stdout || !stderr) {
        reject(spawnErrorFromErrno(constants.errno.EMFILE, "socketpair", spec.file));
        return;
      }
      resolve(followChild({ pid, child, stdout, stderr }, events));
    });
  } catch (error) {
    fail(error);
  }
  return promise;
}

interface StartedChild {
  pid: number;
  child: ChildProcess;
  stdout: Readable;
  stderr: Readable;
}

function followChild({ pid, child, stdout, stderr }: StartedChild, events: ChildEvents): Child {
  let reaped = false;
  let exit: RawExit | null = null;
  let told = false;
  let quiet: NodeJS.Timeout | null = null;
  const writeIds = new WriteIds();
  let givenBytes = 0;

  const tellExit = () => {
    if (told || !exit) return;
    told = true;
    if (quiet) clearTimeout(quiet);
    events.exit(exit);
  };
  const restartQuiet = () => {
    if (quiet) clearTimeout(quiet);
    // The turn after the timer lets a read that was already due come first.
    quiet = setTimeout(() => setImmediate(tellExit), QUIET_AFTER_EXIT_MS);
  };
  const follow = (stream: Readable, name: OutputStream) => {
    stream.on("data", (chunk: Buffer) => {
      events.output(name, chunk);
      if (reaped && !told) restartQuiet();
    });
    stream.on("error", (error: NodeJS.ErrnoException) => {
      // A reset while the other side dies is an ordinary end.
      if (error.code !== "ECONNRESET") events.broken(unreadableOutput(-(error.errno ?? 0)));
    });
  };
  follow(stdout, "stdout");
  follow(stderr, "stderr");
  child.stdin?.on("drain", () => events.drain());
  child.stdin?.on("close", () => events.drain());
  child.stdin?.on("error", () => events.drain());
  child.once("exit", (code, signal) => {
    reaped = true;
    exit =
      signal !== null
        ? { type: "signal", signal: constants.signals[signal] }
        : { type: "code", code: code ?? -1 };
    restartQuiet();
  });
  child.once("close", () => {
    tellExit();
    events.close();
  });

  return {
    pid,
    startTime: procFsTable.entry(pid)?.startTime ?? 0,
    mark: 0,
    ends: NO_ENDS,
    input: {
      write(bytes, writeId) {
        if (writeId !== undefined) writeIds.add(writeId);
        const { stdin } = child;
        // A stream keeps what it is given; the caller may reuse its buffer.
        if (!stdin || stdin.destroyed || stdin.writableEnded) return;
        givenBytes += bytes.length;
        stdin.write(Uint8Array.from(bytes));
      },
      knows: (writeId) => writeIds.has(writeId),
      get queuedBytes() {
        return child.stdin && !child.stdin.destroyed ? child.stdin.writableLength : 0;
      },
      get writtenBytes() {
        return givenBytes - (child.stdin?.writableLength ?? 0);
      },
      close: () => void child.stdin?.end(),
      straight: null,
      refuse: () => undefined,
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
      if (reaped) return false;
      try {
        process.kill(-pid, signal);
        return true;
      } catch {
        return false;
      }
    },
    cut() {
      stdout.destroy();
      stderr.destroy();
      child.stdin?.destroy();
    },
  };
}

/** Node blames a missing directory on the program; look which of the two it was. */
function toSpawnError(error: unknown, spec: ChildSpec): SpawnError {
  const errno =
    error instanceof Error && "errno" in error && typeof error.errno === "number" ? -error.errno : 0;
  if (errno === constants.errno.ENOENT || errno === constants.errno.ENOTDIR) {
    const cwd = statSync(spec.cwd, { throwIfNoEntry: false });
    if (!cwd) return spawnErrorFromErrno(constants.errno.ENOENT, "chdir", spec.cwd);
    if (!cwd.isDirectory()) return spawnErrorFromErrno(constants.errno.ENOTDIR, "chdir", spec.cwd);
  }
  if (errno > 0) return spawnErrorFromErrno(errno, "execve", spec.file);
  return new SpawnError(
    "the program could not be started",
    { code: "EINVAL", errno: constants.errno.EINVAL, syscall: "spawn", path: spec.file, target: "arguments" },
    { cause: error },
  );
}
