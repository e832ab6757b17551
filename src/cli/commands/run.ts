import { existsSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { messageOf } from "../../base/error-message.ts";
import { visibleText } from "../../base/printable-text.ts";
import type { ConnectionState } from "../../client/exec-server-client.ts";
import { guardSecrets, HOST_ENVIRONMENT } from "../../exec/backend/secret-filter.ts";
import type { ExecBackend, ExecProcess, StartParams } from "../../exec/exec-process.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, UsageError } from "../command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  type ConnectValues,
  connectTo,
  serverUrl,
} from "../options/connect-options.ts";
import {
  ENVIRONMENT_OPTIONS,
  type EnvironmentValues,
  guardFromFlags,
} from "../options/environment-options.ts";
import { DEFAULT_ESCAPE_KEY, parseEscapeKey } from "../options/escape-key.ts";
import { parseOptions } from "../options/parse-options.ts";
import { splitAtCommand } from "../options/split-command.ts";
import { automaticForwards } from "../support/auto-forward.ts";
import { type ForegroundEnd, type ForegroundOptions, runInForeground } from "../terminal/foreground.ts";
import { terminalSize } from "../terminal/raw-terminal.ts";

const HELP = `Usage: procwire run [options] [--] COMMAND [ARGUMENT...]

Runs a command here or on a server, as if it ran here: stdin, stdout, stderr, signals and the window size are passed
on, and its exit code is this program's.

  -t, --tty          give the command a terminal; there, ~. at the beginning of a line leaves and ends the command
  --escape-key CHAR  another key than ~ for that, or none
  -i, --interactive  accepted: stdin is passed on in any case
  --timeout SECONDS  end it after so long (exit code 124)
  -w, --cwd, --workdir DIR  where it runs; default: here, or where the server runs. A relative one begins there
  -e, --env NAME=VALUE  set a variable; may be repeated. NAME alone: as it is set here
  -u, --user NAME    run it as this user; needs root where it runs
  --inherit-env NAME pass a variable on although it looks like a secret; may be repeated
  -d, --detach       print its handle and leave; it lives as long as the server does, stdin is empty. For \`procwire attach\`,
                     \`logs\` and \`kill\`. Needs --connect
  --record-input     the server keeps what is typed into it for \`export --input\`, but for what is not echoed
  --lifetime WHICH   with --detach: server (default), or kept: it outlives a crash, a reload and an upgrade of a server
                     that runs with --keep
  --forward auto     offer here each port that the command begins to listen on there; the server needs --allow-forward
  --verbose          say which variables were left out as secrets
${CONNECT_HELP}
The environment is this program's, on a server the server's (and TERM with --tty), without what looks like a secret: names
with a word such as KEY, TOKEN, SECRET or PASSWORD, and URLs with a password. --verbose says which, --inherit-env brings one
back, and --env passes one of yours on. Without a server the command runs on this machine.
Exit codes of its own: 124 time is up, 125 no server, lost, or no such directory or user, 126 cannot be run, 127 not found,
129 left by ~.
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
    const { own, words } = splitAtCommand(argv, OPTIONS);
    const { values } = parseOptions({ args: own, options: OPTIONS });
    if (values.help) {
      process.stdout.write(HELP);
      return 0;
    }
    if (words.length === 0) throw new UsageError("no command given");
    return runCommand(words, values);
  },
};

export interface RunOptions {
  /** Sees the command from its start to its end. */
  observe?: (child: ExecProcess) => Promise<void>;
  onTyped?: ForegroundOptions["onTyped"];
}

/** Runs a command in front of the user, or leaves it alone. */
export async function runCommand(
  argv: string[],
  values: RunValues,
  { observe = async () => undefined, onTyped }: RunOptions = {},
): Promise<number> {
  const url = serverUrl(values.connect);
  if (values.detach && url === undefined)
    throw new UsageError("--detach needs a server that the command runs on: --connect URL");
  if (values.lifetime !== undefined && !values.detach)
    throw new UsageError("--lifetime is for a command that is left alone: add --detach");
  if (values.forward !== undefined && serverUrl(values.connect) === undefined)
    throw new UsageError("--forward needs a server that the command runs on: --connect URL");
  const timeoutMs = seconds(values.timeout);
  const extraEnv = variables(values.env ?? []);
  const escapeKey = parseEscapeKey(values["escape-key"] ?? DEFAULT_ESCAPE_KEY);
  return withBackend(url, values, async (backend, { isUnreachable, isMissing }) => {
    const words = values.user === undefined ? argv : asUser(values.user, argv);
    const params = startParams(words, url === undefined, values, extraEnv, timeoutMs, backend);
    let child: ExecProcess;
    try {
      child = await backend.start(params);
    } catch (error) {
      return (await isMissing(pathOf(params.cwd)))
        ? noDirectory(pathOf(params.cwd))
        : refused(argv[0] ?? "", error);
    }
    if (values.detach) return leftAlone(child);
    try {
      const observed = observe(child);
      // It is awaited when the command has ended; until then nobody else is told of its failure.
      observed.catch(() => undefined);
      const end = await runInForeground(child, {
        tty: params.tty,
        isUnreachable,
        onTyped,
        escapeKey,
        isAnswered: params.terminalQueries === "server",
      });
      if (end.type === "exited") await observed;
      return await exitCodeOf(end, child);
    } catch (error) {
      standardStream(2).write(`procwire run: ${visibleText(messageOf(error))}\n`);
      return ExitCode.noServer;
    }
  });
}

/** It goes on by itself, and nothing of it waits for this program: says how to find it again. */
async function leftAlone(child: ExecProcess): Promise<number> {
  const { RemoteProcess } = await import("../../client/process/remote-process.ts");
  if (!(child instanceof RemoteProcess) || child.handle === null)
    throw new Error("this server gives no handle by which the command could be found again");
  const { handle } = child;
  await child.detach();
  process.stdout.write(`${handle}\n`);
  return 0;
}

/** What else is known about where a command runs. */
interface About {
  isUnreachable: () => boolean;
  /** Whether a directory is not there; false where that cannot be told. */
  isMissing: (path: string) => Promise<boolean>;
}

/** Opens the backend the command runs on, and is rid of it afterwards. */
async function withBackend(
  url: string | undefined,
  values: RunValues,
  use: (backend: ExecBackend, about: About) => Promise<number>,
): Promise<number> {
  const guard = guardFromFlags("run", values);
  if (url === undefined) {
    const { createLocalBackend } = await import("../../host/this-machine.ts");
    await using backend = createLocalBackend();
    const isMissing = async (path: string) => !existsSync(path);
    return await use(guardSecrets(backend, guard), { isUnreachable: () => false, isMissing });
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
    standardStream(2).write(`procwire run: ${visibleText(messageOf(error))}\n`);
    return ExitCode.noServer;
  }
  await using _ = client;
  await using _forwards = await automaticForwards(client, values.forward, "run");
  return await use(guardSecrets(client.backend, guard), {
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
    envPolicy: HOST_ENVIRONMENT,
    tty,
    size: tty ? (terminalSize() ?? undefined) : undefined,
    // Nobody writes to one that is left alone, and nobody would end its input.
    pipeStdin: !values.detach,
    lifetime: values.detach ? lifetimeOf(values.lifetime) : undefined,
    timeoutMs,
    terminalQueries: answererOf(values),
    recordInput: values["record-input"],
  };
}

/** A terminal in front of this program that shows output and types answers; nobody looks at one that is left alone. */
function answererOf({ tty = false, detach = false }: RunValues): StartParams["terminalQueries"] {
  if (detach) return "server";
  if (!tty) return "client";
  return process.stdin.isTTY && process.stdout.isTTY ? "claimed" : "server";
}

function lifetimeOf(text = "server"): "server" | "kept" {
  if (text === "server" || text === "kept") return text;
  throw new UsageError(`unsupported --lifetime \`${text}\`; expected server or kept`);
}

async function exitCodeOf(end: ForegroundEnd, child: ExecProcess): Promise<number> {
  switch (end.type) {
    case "exited": {
      const { exitCode, signal, reason } = end.status;
      if (reason === "timeout") return ExitCode.timedOut;
      return signal === null ? exitCode : dieLike(signal, exitCode);
    }
    case "left":
      // One that cannot be reached is ended with its session.
      await Promise.race([child.terminate().catch(() => undefined), delay(LEAVE_WITHIN_MS)]);
      standardStream(2).write("\r\nprocwire run: left\r\n");
      return ExitCode.left;
    case "unread":
      await child.terminate().catch(() => undefined);
      return 128 + constants.signals.SIGPIPE;
    case "abandoned":
      return dieLike(end.signal, 128 + constants.signals[end.signal]);
  }
}

/** The parent of this program sees the same exit as if it had run the command itself. */
async function dieLike(signal: string, exitCode: number): Promise<number> {
  if (!isSignal(signal) || !REPEATABLE.has(signal)) return exitCode;
  process.kill(process.pid, signal);
  // The signal is on its way; the exit code is for where it does not end a program.
  await new Promise((resolve) => setTimeout(resolve, 100));
  return exitCode;
}

function isSignal(name: string): name is NodeJS.Signals {
  return Object.hasOwn(constants.signals, name);
}

/** How long the end of a command that was left is waited for. */
const LEAVE_WITHIN_MS = 500;

/**
 * The command below a program that becomes another user, as root may; anybody else is told. It has that user's groups and
 * home.
 */
function asUser(user: string, argv: string[]): string[] {
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

/** A server tells its directory as a URI. */
function pathOf(place: string): string {
  return place.startsWith("file:") ? pathFromUri(place) : place;
}

function noDirectory(cwd: string): number {
  standardStream(2).write(`procwire run: --cwd: no such directory: ${visibleText(cwd)}\n`);
  return ExitCode.noServer;
}

function refused(program: string, error: unknown): number {
  const message = messageOf(error);
  standardStream(2).write(`procwire run: ${visibleText(`${program}: ${message}`)}\n`);
  if (/No such file or directory|does not exist|No viable candidates/.test(message)) return ExitCode.notFound;
  if (/Permission denied|Exec format error|not executable/.test(message)) return ExitCode.notRunnable;
  return ExitCode.noServer;
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
