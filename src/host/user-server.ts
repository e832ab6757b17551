import { type ChildProcess, spawn } from "node:child_process";
import { closeSync, constants, openSync, readFileSync, renameSync, statSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { loadAddon } from "../native/addon.ts";
import { nativeFiles, packageRoot } from "../native/native-files.ts";
import { openRuntimeDirectory, runtimeDirectoryPath } from "./runtime-directory.ts";

/** A server that nobody uses ends by itself; the next one takes a fraction of a second to start. */
export const DEFAULT_IDLE_EXIT_SECONDS = 600;
/** A loaded machine takes seconds; a server that has said nothing by then never will. */
const LISTENS_WITHIN_MS = 30_000;
const LOOK_AGAIN_MS = 20;
/** A log beyond this is put aside when a server is started, in place of the one before it. */
const MAX_LOG_BYTES = 1024 * 1024;
const SHOWN_LOG_CHARS = 600;

export interface OwnServerOptions {
  /** Default: the user's runtime directory. */
  directory?: string | undefined;
  idleExitSeconds?: number | undefined;
}

/** A connection to the user's own server, which is started where it does not run. */
export async function connectOwnServer(options: OwnServerOptions = {}): Promise<Socket> {
  const directory = options.directory ?? runtimeDirectoryPath();
  openRuntimeDirectory(directory);
  const path = join(directory, "server.sock");
  const running = await connectUnlessMissing(path);
  if (running) return running;
  using _ = await lockedFile(join(directory, "lock"));
  // Somebody else may have started it while this program waited for the lock.
  const started = await connectUnlessMissing(path);
  if (started) return started;
  await startServer(directory, path, options.idleExitSeconds ?? DEFAULT_IDLE_EXIT_SECONDS);
  return connectUnix(path);
}

/** Rejects where no server listens. */
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

async function connectUnlessMissing(path: string): Promise<Socket | null> {
  for (;;) {
    try {
      return await connectUnix(path);
    } catch (error) {
      const code = error instanceof Error && "code" in error ? error.code : undefined;
      if (code === "ENOENT" || code === "ECONNREFUSED") return null;
      // So many wait to be taken that one more cannot.
      if (code !== "EAGAIN") throw error;
      await delay(LOOK_AGAIN_MS);
    }
  }
}

/** Waits until no other program has the file locked. The lock ends with the program, however that ends. */
async function lockedFile(path: string): Promise<Disposable> {
  const native = loadAddon();
  if (native.type === "missing")
    throw new Error(
      `a server cannot be started on demand without the native addon (${native.why}); start one: procwire serve --listen unix://PATH, and connect to that path`,
    );
  const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
  const fd = openSync(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600);
  const close = { [Symbol.dispose]: () => closeSync(fd) };
  try {
    const until = performance.now() + 2 * LISTENS_WITHIN_MS;
    while (native.addon.lockFile(fd) !== 0) {
      if (performance.now() > until)
        throw new Error(`another program holds the lock ${path} and has not started a server`);
      await delay(LOOK_AGAIN_MS);
    }
    return close;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Has no terminal, no session and no descriptor of this program; resolves when it listens. */
async function startServer(directory: string, socket: string, idleExitSeconds: number): Promise<void> {
  const root = packageRoot();
  if (root === null) throw new Error("this program does not know where procwire is installed");
  const native = loadAddon();
  if (native.type === "loaded") native.addon.closeOnExec();
  const logPath = join(directory, "server.log");
  const log = openLog(logPath);
  const args = ["serve", "--listen", `unix://${socket}`, "--idle-exit", String(idleExitSeconds)];
  // A crash is then one more lost connection. Where no keeper was built, a server without one is better than none.
  if (!nativeFiles("keeper").next().done) args.push("--keep");
  const server = spawn(join(root, "bin", "procwire"), args, {
    cwd: homedir(),
    detached: true,
    stdio: ["ignore", "pipe", log],
  });
  closeSync(log);
  try {
    await listens(server, logPath);
  } finally {
    server.stdout?.destroy();
    server.unref();
  }
}

/** A server says its URL on stdout once it listens. */
async function listens(server: ChildProcess, logPath: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.stdout?.once("data", () => resolve());
  server.once("error", reject);
  const onExit = (code: number | null, signal: string | null) =>
    reject(new Error(`a server was started and ended with ${code ?? signal}: ${endOf(logPath)}`));
  server.once("exit", onExit);
  const late = setTimeout(() => {
    server.kill("SIGKILL");
    reject(
      new Error(
        `a server was started and did not listen within ${LISTENS_WITHIN_MS / 1000} s; see ${logPath}`,
      ),
    );
  }, LISTENS_WITHIN_MS);
  try {
    await promise;
  } finally {
    clearTimeout(late);
    server.off("exit", onExit);
  }
}

function openLog(path: string): number {
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  if (size > MAX_LOG_BYTES) renameSync(path, `${path}.old`);
  return openSync(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
}

function endOf(path: string): string {
  return readFileSync(path, "utf8").slice(-SHOWN_LOG_CHARS).trim();
}
