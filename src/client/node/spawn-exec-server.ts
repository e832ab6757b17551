import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import { type Clock, systemClock, type Timer } from "../../async/clock.ts";
import { checkArgument, checkOptions } from "../../exec/options/option-schema.ts";
import { clientOptions } from "../client-options.ts";
import type { ExecServerClientOptions, ExecServerClient as UniversalClient } from "../exec-server-client.ts";
import { withConnectErrors } from "../session/connect-error.ts";
import { NodeExecServerClient } from "./node-client.ts";
import { launchCommand } from "./node-options.ts";

/** Command that starts a server on stdio. */
export interface ExecServerLaunchCommand {
  program: string;
  args?: string[] | undefined;
  cwd?: string | undefined;
  /** Default: this process's environment. */
  env?: Record<string, string> | undefined;
}

/** Time between closing stdin, SIGTERM and SIGKILL. The server terminates its processes in that time. */
const GRACE_MS = 3000;

/**
 * A server as a child process, and its client. Disposal terminates the child.
 *
 * @example
 * await using server = await spawnLocalExecServer({ program: "procwire", args: ["serve"] });
 * const process = await server.client.start({ processId: "1", argv: ["date"], cwd: "/", env: {}, tty: false });
 */
export interface SpawnedExecServer extends AsyncDisposable {
  readonly client: UniversalClient;
  readonly pid: number;
  /** Closes the client and ends the child: end of input, then SIGTERM, then SIGKILL. Idempotent. */
  close(): Promise<void>;
}

/** Starts a server on stdio and connects to it. Its stderr is inherited. */
export async function spawnLocalExecServer(
  command: ExecServerLaunchCommand,
  options: ExecServerClientOptions = {},
): Promise<SpawnedExecServer> {
  checkArgument("spawnLocalExecServer", "command", command, launchCommand);
  checkOptions("spawnLocalExecServer", options, clientOptions);
  const child = spawn(command.program, command.args ?? [], {
    stdio: ["pipe", "pipe", "inherit"],
    cwd: command.cwd,
    env: command.env,
  });
  const exited = Promise.withResolvers<void>();
  child.once("exit", () => exited.resolve());
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => undefined);
  child.once("error", (cause) => {
    exited.resolve();
    failed.reject(new Error(`cannot start exec-server \`${command.program}\`: ${cause.message}`, { cause }));
  });
  const clock = options.clock ?? systemClock;
  try {
    await withConnectErrors(() => Promise.race([once(child, "spawn"), failed.promise]), options.signal);
    const client = await NodeExecServerClient.connectStdio(child.stdout, child.stdin, options);
    let ending: Promise<void> | null = null;
    const close = () => {
      ending ??= client.close().then(() => terminateChild(child, exited.promise, clock));
      return ending;
    };
    return { client, pid: child.pid ?? 0, close, [Symbol.asyncDispose]: close };
  } catch (error) {
    await terminateChild(child, exited.promise, clock);
    throw error;
  }
}

async function terminateChild(
  child: ChildProcessByStdio<Writable, Readable, null>,
  exited: Promise<void>,
  clock: Clock,
): Promise<void> {
  child.stdin.end();
  let timer: Timer = clock.after(GRACE_MS, () => {
    child.kill("SIGTERM");
    timer = clock.after(GRACE_MS, () => child.kill("SIGKILL"));
  });
  await exited;
  timer.cancel();
}
