import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, constants, openSync, readFileSync, renameSync, statSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { sleep, systemClock } from "../async/clock.ts";
import { hasErrorCode } from "../base/error-code.ts";
import { ANY_RULE } from "../forward/forward-rules.ts";
import { loadAddon } from "../native/load-addon.ts";
import { nativeFileCandidates, packageRoot } from "../native/native-files.ts";
import { ensureRuntimeDirectory, openRuntimeDirectory } from "./runtime-directory.ts";

/** An unused server exits; starting the next one takes a fraction of a second. */
export const DEFAULT_IDLE_EXIT_SECONDS = 600;
/** A busy host may take seconds to start a server. */
const START_TIMEOUT_MS = 30_000;
const RETRY_INTERVAL_MS = 20;
/** A larger log is renamed to `.old` at the next server start. */
const MAX_LOG_BYTES = 1024 * 1024;
const SHOWN_LOG_CHARS = 600;

export interface UserServerOptions {
  /** Default: the user's runtime directory. */
  directory?: string | undefined;
  idleExitSeconds?: number | undefined;
}

/** Connects to the per-user server and starts it if it is not running. */
export async function connectUserServer(options: UserServerOptions = {}): Promise<Socket> {
  const directory = options.directory ?? openRuntimeDirectory((message) => process.stderr.write(`${message}\n`));
  ensureRuntimeDirectory(directory);
  const path = join(directory, "server.sock");
  const running = await tryConnectUnix(path);
  if (running) return running;
  using _ = await acquireFileLock(join(directory, "lock"));
  // Another process may have started it while this one waited for the lock.
  const started = await tryConnectUnix(path);
  if (started) return started;
  await startServer(directory, path, options.idleExitSeconds ?? DEFAULT_IDLE_EXIT_SECONDS);
  return connectUnix(path);
}

/** Rejects if no server listens. */
export function connectUnix(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path, allowHalfOpen: true });
    socket.once("error", reject);
    socket.once("connect", () => {
      socket.off("error", reject);
      resolve(socket);
    });
  });
}

async function tryConnectUnix(path: string): Promise<Socket | null> {
  for (;;) {
    try {
      return await connectUnix(path);
    } catch (error) {
      if (hasErrorCode(error, "ENOENT", "ECONNREFUSED")) return null;
      // The accept queue is full.
      if (!hasErrorCode(error, "EAGAIN")) throw error;
      await sleep(systemClock, RETRY_INTERVAL_MS);
    }
  }
}

/** Waits until no other process holds the lock. The lock ends with this process. */
async function acquireFileLock(path: string): Promise<Disposable> {
  const native = loadAddon();
  if (native.type === "missing")
    throw new Error(
      `a server cannot be started on demand without the native addon (${native.why}); start one: procwire serve --listen unix://PATH, and connect to that path`,
    );
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
  const fd = openSync(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600);
  const close = { [Symbol.dispose]: () => closeSync(fd) };
  try {
    const deadline = performance.now() + 2 * START_TIMEOUT_MS;
    while (native.addon.lockFile(fd) !== null) {
      if (performance.now() > deadline)
        throw new Error(`another program holds the lock ${path} and has not started a server`);
      await sleep(systemClock, RETRY_INTERVAL_MS);
    }
    return close;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Starts a server without a terminal, in its own POSIX session and without inherited descriptors; resolves when it listens. */
async function startServer(directory: string, socket: string, idleExitSeconds: number): Promise<void> {
  const root = packageRoot();
  if (root === null) throw new Error("start server: the installation directory of procwire is unknown");
  const native = loadAddon();
  if (native.type === "loaded") native.addon.closeOnExec();
  const logPath = join(directory, "server.log");
  const log = openLog(logPath);
  const args = ["serve", "--listen", `unix://${socket}`, "--idle-exit", String(idleExitSeconds), "--web"];
  // The socket admits only this user, who could forward any port with ssh itself.
  args.push("--allow-forward", ANY_RULE);
  // With a supervisor, a crash is only a lost connection. Without its binary the server runs unsupervised.
  if (!nativeFileCandidates("supervisor").next().done) args.push("--supervised");
  const server = spawn(join(root, "bin", "procwire"), args, {
    cwd: homedir(),
    detached: true,
    stdio: ["ignore", "pipe", log],
  });
  closeSync(log);
  try {
    await whenListening(server, logPath);
  } finally {
    server.stdout?.destroy();
    server.unref();
  }
}

/** A server prints its URL on stdout when it listens. */
async function whenListening(server: ChildProcess, logPath: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.stdout?.once("data", () => resolve());
  server.once("error", reject);
  const onExit = (code: number | null, signal: string | null) => {
    const logTail = readFileSync(logPath, "utf8").slice(-SHOWN_LOG_CHARS).trim();
    reject(new Error(`a server was started and ended with ${code ?? signal}: ${logTail}`));
  };
  server.once("exit", onExit);
  const timer = setTimeout(() => {
    server.kill("SIGKILL");
    reject(new Error(`a server was started and did not listen within ${START_TIMEOUT_MS / 1000} s; see ${logPath}`));
  }, START_TIMEOUT_MS);
  try {
    await promise;
  } finally {
    clearTimeout(timer);
    server.off("exit", onExit);
  }
}

function openLog(path: string): number {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size > MAX_LOG_BYTES) renameSync(path, `${path}.old`);
  return openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
}
