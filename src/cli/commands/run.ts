import { existsSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/printable-text.ts";
import type { ConnectionState } from "../../client/exec-server-client.ts";
import { DEFAULT_ENV_POLICY, filterSecrets } from "../../exec/backend/secret-filter.ts";
import { parseStartFailure } from "../../exec/compat.ts";
import type { ExecBackend, ExecProcess, StartParams } from "../../exec/exec-process.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, UsageError } from "../command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  type ConnectValues,
  connectTo,
  resolveServerUrl,
} from "../options/connect-options.ts";
import {
  ENVIRONMENT_OPTIONS,
  type EnvironmentValues,
  secretFilterFromFlags,
} from "../options/environment-options.ts";
import { DEFAULT_ESCAPE_KEY, parseEscapeKey } from "../options/escape-key.ts";
import { parseOptions } from "../options/parse-options.ts";
import { splitOptionsAndCommand } from "../options/split-command.ts";
import { startAutoForward } from "../support/auto-forward.ts";
import { type ForegroundEnd, type ForegroundOptions, runInForeground } from "../terminal/foreground.ts";
import { localTerminalSize } from "../terminal/raw-terminal.ts";

const HELP = `Usage: procwire run [options] [--] COMMAND [ARGUMENT...]

Runs a command here or on a server, as if it ran here: stdin, stdout, stderr, signals and the window size are passed
on, and its exit code is this program's.

  -t, --tty          give the command a terminal; there, ~. at the beginning of a line leaves and ends the command
  --escape-key CHAR  another key than ~ for that, or none
  -i, --interactive  accepted: stdin is passed on in any case
  --timeout SECONDS  terminate the command after SECONDS (exit code 124)
  -w, --cwd, --workdir DIR  where it runs; default: here, or where the server runs. A relative one begins there
  -e, --env NAME=VALUE  set a variable; may be repeated. NAME alone: as it is set here
  -u, --user NAME    run it as this user; needs root where it runs
  --inherit-env NAME pass a variable on although it looks like a secret; may be repeated
  -d, --detach       print its handle and leave; it lives as long as the server does, stdin is empty. For \`procwire attach\`,
                     \`logs\` and \`kill\`. Needs --connect
  --record-input     record echoed input on the server, for \`export --input\`
  --lifetime WHICH   with --detach: server (default), or persistent: survive a crash, reload or upgrade of a server
                     that runs with --supervised
  --forward auto     offer here each port that the command begins to listen on there; the server needs --allow-forward
  --verbose          say which variables were left out as secrets
${CONNECT_HELP}
The environment is this program's, on a server the server's (and TERM with --tty), without what looks like a secret: names
with a word such as KEY, TOKEN, SECRET or PASSWORD, and URLs with a password. --verbose says which, --inherit-env brings one
back, and --env passes one of yours on. Without a server the command runs on this machine.
Exit codes: the command's own; 124 timeout, 125 connection failed, or no such directory or user, 126 not executable,
127 not found, 129 detached by ~.
`;

/** The words of other programs that run programs. */
const ExitCode = { timedOut: 124, noServer: 125, notRunnable: 126, notFound: 127, left: 129 } as const;
/** Signals that `run` ends itself by when the command died of one; other signals would dump core, or mean something to Node. */
const REPEATABLE: ReadonlySet<string> = new Set(["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"]);

const OPTIONS = {
  ...CONNECT_OPTIONS,
  ...ENVIRONMENT_OPTIONS,
  tty: { type: "boolean", short: "t" },
  interactive: { type: "boolean", short: "i" },
  "escape-key": { type: "string" },
  detach: { type: "boolean", short: "d" },
  "record-input": { type: "boolean" },
  lifetime: { type: "string" },
  forward: { type: "string" },
  timeout: { type: "string" },
  cwd: { type: "string", short: "w" },
  workdir: { type: "string" },
  user: { type: "string", short: "u" },
  env: { type: "string", short: "e", multiple: true },
  help: { type: "boolean", short: "h" },
} as const;

interface RunValues extends ConnectValues, EnvironmentValues {
  connect?: string | undefined;
  tty?: boolean | undefined;
  "escape-key"?: string | undefined;
  workdir?: string | undefined;
  user?: string | undefined;
  detach?: boolean | undefined;
  "record-input"?: boolean | undefined;
  lifetime?: string | undefined;
  forward?: string | undefined;
  timeout?: string | undefined;
  cwd?: string | undefined;
  env?: string[] | undefined;
}

export const command: Command = {
  name: "run",
  summary: "run a command here or on a server, as if it ran here",

  async run(argv) {
    const { own, words } = splitOptionsAndCommand(argv, OPTIONS);
    const { values } = parseOptions({ args: own, options: OPTIONS });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    if (words.length === 0) throw new UsageError("no command given");
    return runOnBackend(words, values);
  },
};

export interface RunCommandOptions {
  /** Sees the command from its start to its end. */
  observe?: (child: ExecProcess) => Promise<void>;
  onTyped?: ForegroundOptions["onTyped"];
}

/** Runs a command in front of the user, or leaves it alone. */
export async function runOnBackend(
  argv: string[],
  values: RunValues,
  { observe = async () => undefined, onTyped }: RunCommandOptions = {},
): Promise<number> {
  const url = resolveServerUrl(values.connect);
  if (values.detach && url === undefined)
    throw new UsageError("--detach needs a server that the command runs on: --connect URL");
  if (values.lifetime !== undefined && !values.detach)
    throw new UsageError("--lifetime is for a command that is left alone: add --detach");
  if (values.forward !== undefined && resolveServerUrl(values.connect) === undefined)
    throw new UsageError("--forward needs a server that the command runs on: --connect URL");
  const timeoutMs = seconds(values.timeout);
  const extraEnv = variables(values.env ?? []);
  const escapeKey = parseEscapeKey(values["escape-key"] ?? DEFAULT_ESCAPE_KEY);
  return withRunBackend(url, values, async (backend, { isUnreachable: isDisconnected, isMissing }) => {
    const words = values.user === undefined ? argv : wrapWithUser(values.user, argv);
    const params = startParams(words, url === undefined, values, extraEnv, timeoutMs, backend);
    let child: ExecProcess;
    try {
      child = await backend.start(params);
    } catch (error) {
      return (await isMissing(pathOf(params.cwd)))
        ? noDirectory(pathOf(params.cwd))
        : startFailure(argv[0] ?? "", error);
    }
    if (values.detach) return reportDetached(child);
    try {
      const observed = observe(child);
      // Awaited after the command exits. Until then, ignore the rejection.
      observed.catch(() => undefined);
      const end = await runInForeground(child, {
        tty: params.tty,
        isDisconnected,
        onTyped,
        escapeKey,
        isAnswered: params.terminalQueries === "server",
      });
      if (end.type === "exited") await observed;
      return await exitCodeOf(end, child);
    } catch (error) {
      standardStream(2).write(`procwire run: ${printableText(errorMessage(error))}\n`);
      return ExitCode.noServer;
    }
  });
}

/** Detaches from the process and prints its handle. */
async function reportDetached(child: ExecProcess): Promise<number> {
  const { RemoteProcess } = await import("../../client/process/remote-process.ts");
  if (!(child instanceof RemoteProcess) || child.handle === null)
    throw new Error("this server gives no handle by which the command could be found again");
  const { handle } = child;
  await child.detach();
  process.stdout.write(`${handle}\n`);
  return 0;
}

/** Information about the backend that runs the command. */
interface BackendInfo {
  isUnreachable: () => boolean;
  /** Reports whether a directory is missing; false if unknown. */
  isMissing: (path: string) => Promise<boolean>;
}

/** Opens the backend, calls `use` and closes the backend. */
async function withRunBackend(
  url: string | undefined,
  values: RunValues,
  use: (backend: ExecBackend, about: BackendInfo) => Promise<number>,
): Promise<number> {
  const guard = secretFilterFromFlags("run", values);
  if (url === undefined) {
    const { createLocalBackend } = await import("../../host/create-local-backend.ts");
    await using backend = createLocalBackend();
    const isMissing = async (path: string) => !existsSync(path);
    return await use(filterSecrets(backend, guard), { isUnreachable: () => false, isMissing });
  }
  let state: ConnectionState["type"] = "connected";
  let client: Awaited<ReturnType<typeof connectTo>>;
  try {
    client = await connectTo(url, values, (next) => {
      if (next.type === "reconnecting")
        standardStream(2).write("procwire run: connection lost, reconnecting\r\n");
      else if (next.type === "connected" && state === "reconnecting")
        standardStream(2).write("procwire run: connected again\r\n");
      state = next.type;
    });
  } catch (error) {
    standardStream(2).write(`procwire run: ${printableText(errorMessage(error))}\n`);
    return ExitCode.noServer;
  }
  await using _ = client;
  await using _forwards = await startAutoForward(client, values.forward, "run");
  return await use(filterSecrets(client.backend, guard), {
    isUnreachable: () => state === "reconnecting",
    isMissing: (path) =>
      client.files
        .exists(path)
        .then((isThere) => !isThere)
        .catch(() => false),
  });
}

function startParams(
  argv: string[],
  isHere: boolean,
  values: RunValues,
  extraEnv: Record<string, string>,
  timeoutMs: number | undefined,
  backend: ExecBackend,
): StartParams {
  const from = isHere ? process.cwd() : (backend.defaultCwd ?? "/");
  const named = values.workdir ?? values.cwd;
  const tty = values.tty ?? false;
  const term = process.env.TERM;
  return {
    processId: `run-${process.pid}-${Date.now().toString(36)}`,
    argv,
    cwd: named === undefined ? from : path.posix.resolve(pathOf(from), named),
    // This program's own environment, or the server's, which does not know this terminal.
    env: !isHere && tty && term !== undefined ? { TERM: term, ...extraEnv } : extraEnv,
    envPolicy: DEFAULT_ENV_POLICY,
    tty,
    size: tty ? (localTerminalSize() ?? undefined) : undefined,
    // A detached process has no client that writes or closes its stdin.
    pipeStdin: !values.detach,
    lifetime: values.detach ? parseLifetime(values.lifetime) : undefined,
    timeoutMs,
    terminalQueries: terminalQueryMode(values),
    recordInput: values["record-input"],
  };
}

/** The local terminal replies to queries of a foreground process; the server replies for a detached one. */
function terminalQueryMode({ tty = false, detach = false }: RunValues): StartParams["terminalQueries"] {
  if (detach) return "server";
  if (!tty) return "client";
  return process.stdin.isTTY && process.stdout.isTTY ? "claimed" : "server";
}

function parseLifetime(text = "server"): "server" | "persistent" {
  if (text === "server" || text === "persistent") return text;
  throw new UsageError(`unsupported --lifetime \`${text}\`; expected server or persistent`);
}

async function exitCodeOf(end: ForegroundEnd, child: ExecProcess): Promise<number> {
  switch (end.type) {
    case "exited": {
      const { exitCode, signal, reason } = end.status;
      if (reason === "timeout") return ExitCode.timedOut;
      return signal === null ? exitCode : exitLike(signal, exitCode);
    }
    case "left":
      // An unreachable process ends with its session.
      await Promise.race([child.terminate().catch(() => undefined), delay(LEAVE_WITHIN_MS)]);
      standardStream(2).write("\r\nprocwire run: left\r\n");
      return ExitCode.left;
    case "unread":
      await child.terminate().catch(() => undefined);
      return 128 + constants.signals.SIGPIPE;
    case "abandoned":
      return exitLike(end.signal, 128 + constants.signals[end.signal]);
  }
}

/** The parent of this program sees the same exit as if it had run the command itself. */
async function exitLike(signal: string, exitCode: number): Promise<number> {
  if (!isSignal(signal) || !REPEATABLE.has(signal)) return exitCode;
  process.kill(process.pid, signal);
  // The signal is pending. The exit code applies if the signal does not end this process.
  await new Promise((resolve) => setTimeout(resolve, 100));
  return exitCode;
}

function isSignal(name: string): name is NodeJS.Signals {
  return Object.hasOwn(constants.signals, name);
}

/** Maximum time to wait for the exit after the user leaves. */
const LEAVE_WITHIN_MS = 500;

/**
 * Wraps the command so that it runs as another user, with the groups and home of that user. Requires root; other users get
 * an error.
 */
function wrapWithUser(user: string, argv: string[]): string[] {
  if (!/^[A-Za-z0-9_][\w.-]*\$?$/.test(user)) throw new UsageError(`--user \`${user}\` is not a user's name`);
  const script = [
    "u=$1; shift",
    'say() { echo "procwire run: --user $u: $1" >&2; exit 125; }',
    'id -u "$u" >/dev/null 2>&1 || say "there is no such user"',
    '[ "$(id -u)" = "$(id -u "$u")" ] && exec "$@"',
    '[ "$(id -u)" = 0 ] || say "needs root, and this is $(id -un)"',
    'command -v setpriv >/dev/null || say "needs setpriv (util-linux), which is missing"',
    'HOME=$(getent passwd "$u" | cut -d: -f6); USER=$u; LOGNAME=$u; export HOME USER LOGNAME',
    'exec setpriv --reuid="$(id -u "$u")" --regid="$(id -g "$u")" --init-groups -- "$@"',
  ].join("\n");
  return ["/bin/sh", "-c", script, "sh", user, ...argv];
}

/** Converts the directory URI of a server to a path. */
function pathOf(place: string): string {
  return place.startsWith("file:") ? pathFromUri(place) : place;
}

function noDirectory(cwd: string): number {
  standardStream(2).write(`procwire run: --cwd: no such directory: ${printableText(cwd)}\n`);
  return ExitCode.noServer;
}

function startFailure(program: string, error: unknown): number {
  const message = errorMessage(error);
  standardStream(2).write(`procwire run: ${printableText(`${program}: ${message}`)}\n`);
  switch (parseStartFailure(message)) {
    case "notFound":
      return ExitCode.notFound;
    case "notExecutable":
      return ExitCode.notRunnable;
    default:
      return ExitCode.noServer;
  }
}

function seconds(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!Number.isFinite(value) || value <= 0)
    throw new UsageError(`--timeout \`${text}\` must be a positive number of seconds`);
  return Math.ceil(value * 1000);
}

function variables(texts: string[]): Record<string, string> {
  return Object.fromEntries(
    texts.flatMap((text) => {
      const at = text.indexOf("=");
      if (at === 0 || text === "") throw new UsageError(`--env \`${text}\` must be NAME=VALUE or NAME`);
      if (at > 0) return [[text.slice(0, at), text.slice(at + 1)]];
      const value = process.env[text];
      return value === undefined ? [] : [[text, value]];
    }),
  );
}
