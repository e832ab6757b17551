import { existsSync } from "node:fs";
import { constants } from "node:os";
import path from "node:path";
import { sleep, systemClock } from "../../async/clock.ts";
import { errorMessage, userMessage } from "../../base/error-message.ts";
import { printableLine, printableText } from "../../base/text/printable-text.ts";
import type { ConnectionState } from "../../client/exec-server-client.ts";
import { DEFAULT_ENV_POLICY, filterSecrets } from "../../exec/backend/secret-filter.ts";
import { parseStartFailure } from "../../exec/compat.ts";
import type { ExecBackend, ExecProcess, StartParams } from "../../exec/exec-process.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import type { CredentialDefinition } from "../../protocol/network/credential-definition.ts";
import { pathFromUri } from "../../protocol/path-uri.ts";
import { standardStream } from "../../server/lifecycle/stdio-stream.ts";
import { type Command, defineParsedCommand, type PartialValues, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { CONNECT_OPTIONS, connectTo, requireServerUrl, resolveServerUrl } from "../options/connect-options.ts";
import { ENVIRONMENT_OPTIONS, ENVIRONMENT_ROWS, secretFilterFromFlags } from "../options/environment-options.ts";
import { DEFAULT_ESCAPE_KEY, parseEscapeKey } from "../options/escape-key.ts";
import { NAME_OPTIONS, NAME_ROWS, parseNameOptions } from "../options/name-options.ts";
import { NETWORK_ROWS, SANDBOX_OPTIONS } from "../options/network-options.ts";
import { parsePositive } from "../options/parse-number.ts";
import { parseOptions } from "../options/parse-options.ts";
import { splitOptionsAndCommand } from "../options/split-command.ts";
import { startAutoForward } from "../support/auto-forward.ts";
import { type ForegroundEnd, type ForegroundOptions, runInForeground } from "../terminal/foreground.ts";
import { localTerminalSize } from "../terminal/raw-terminal.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] [--] COMMAND [ARGUMENT...]"],
  details: "Stdio, signals, terminal size and exit code pass through. Without a server the command runs on this host.",
  options: {
    Process: [
      ["-t, --tty", "allocate a terminal; ~. at the start of a line terminates the command and exits"],
      ["--escape-key CHAR", "character to use instead of ~, or none (default: ~)"],
      ["-i, --interactive", "accepted for compatibility; stdin is always forwarded"],
      ["--timeout SECONDS", "terminate the command after SECONDS (exit code 124)"],
      ["-w, --cwd, --workdir DIR", "working directory (default: current directory, or that of the server)"],
      ["-u, --user NAME", "run as this user; requires root on the host of the command"],
    ],
    Background: [
      ["-d, --detach", "start in the background of a server and print the handle"],
      ["--lifetime KIND", "server or persistent; requires --detach (default: server)"],
      ...NAME_ROWS,
      ["--record-input", "record echoed input on the server, for `export --input`"],
    ],
    Ports: [["--forward auto", "forward each port that the command listens on; requires serve --allow-forward"]],
    Sandbox: [
      [
        "--sandbox MODE",
        "none, read-only, or workspace-write: only --cwd, --writable and /tmp are writable (default: none)",
      ],
      ["--writable DIR", "additional writable directory; requires --sandbox workspace-write; repeatable"],
      ...NETWORK_ROWS,
      ["--rules FILE", "add [network] and [[credential]] of a rules file; requires --sandbox"],
    ],
    Environment: [["-e, --env NAME[=VALUE]", "set or pass through a variable; repeatable"], ...ENVIRONMENT_ROWS],
  },
  connection: true,
  notes: `The command inherits the environment of procwire, or that of the server (and TERM with --tty), without secrets:
    names with a word such as KEY, TOKEN, SECRET or PASSWORD, and URLs with a password.`,
  examples: [
    ["procwire run --connect ssh://build-host -- make test", "run a command on another host"],
    ["procwire run --connect docker://app --tty -- bash", "a shell in a container"],
    ["procwire run --detach --name api -- npm start", "in the background of the server that `procwire start` runs"],
  ],
  exitCodes: `the command's own; 124 timeout, 125 connection failed, or no such directory or user, 126 not executable, 127 not
    found, 129 terminated by ~.`,
};

/** Exit codes, as of `timeout`, `docker run` and shells. */
const ExitCode = { timedOut: 124, noServer: 125, notRunnable: 126, notFound: 127, left: 129 } as const;
/** Signals by which `run` ends itself after the command did. Other signals dump core or have a meaning for Node. */
const REPEATED_SIGNALS: ReadonlySet<string> = new Set(["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"]);

const OPTIONS = {
  ...CONNECT_OPTIONS,
  ...ENVIRONMENT_OPTIONS,
  ...NAME_OPTIONS,
  ...SANDBOX_OPTIONS,
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
} as const;

type RunValues = PartialValues<typeof OPTIONS>;

export const command: Command = defineParsedCommand("run", HELP, {
  options: OPTIONS,
  parse(args) {
    const options = { ...OPTIONS, help: { type: "boolean", short: "h" } } as const;
    const { ownArgs, command } = splitOptionsAndCommand(args, options);
    const { values } = parseOptions({ args: ownArgs, options });
    if (values.help) return null;
    if (command.length === 0) throw new UsageError("no command given");
    return { command, values };
  },
  run: ({ command, values }) => runOnBackend(command, values),
});

/** Parses the sandbox options. Loads their module only if one is given. */
async function parseSandbox(values: RunValues, host: { isLocal: boolean }) {
  const { sandbox: mode, writable, network, credential, rules } = values;
  if ([mode, writable, network, credential, rules].every((value) => value === undefined)) return null;
  const { openRunSandbox, parseRunSandbox } = await import("../support/run-sandbox.ts");
  const sandbox = await parseRunSandbox(values, host);
  return sandbox && { open: openRunSandbox.bind(null, sandbox), credentials: sandbox.credentials };
}

export interface RunCommandOptions {
  /** Called after the start. No input is forwarded before it resolves. */
  prepare?: () => Promise<void>;
  /** Follows the process from its start to its end. */
  observe?: (child: ExecProcess) => Promise<void>;
  onTyped?: ForegroundOptions["onTyped"];
}

/** Runs a command in the foreground, or starts it in the background with `--detach`. */
export async function runOnBackend(
  argv: string[],
  values: RunValues,
  { prepare, observe = async () => undefined, onTyped }: RunCommandOptions = {},
): Promise<number> {
  const url = values.detach ? requireServerUrl(values.connect) : resolveServerUrl(values.connect);
  if (values.lifetime !== undefined && !values.detach) throw new UsageError("--lifetime requires --detach");
  if (values.forward !== undefined && url === undefined) throw new UsageError("--forward requires --connect URL");
  const timeoutSeconds = parsePositive("timeout", values.timeout);
  const timeoutMs = timeoutSeconds && Math.ceil(timeoutSeconds * 1000);
  const extraEnv = parseVariables(values.env ?? []);
  const names = parseNameOptions(values);
  const sandbox = await parseSandbox(values, { isLocal: url === undefined });
  const escapeKey = parseEscapeKey(values["escape-key"] ?? DEFAULT_ESCAPE_KEY);
  const target = { url, credentials: sandbox?.credentials };
  return withRunBackend(target, values, async (backend, { isUnreachable: isDisconnected, isMissing, sandboxes }) => {
    const fullArgv = values.user === undefined ? argv : wrapWithUser(values.user, argv);
    const plain = { ...startParams(fullArgv, url === undefined, values, extraEnv, timeoutMs, backend), ...names };
    using sandboxed =
      sandbox &&
      (await sandbox.open(plain, toPath(plain.cwd), {
        sandboxes: await sandboxes(),
        isLocal: url === undefined,
      }));
    const params = { ...plain, ...sandboxed?.startParams };
    let child: ExecProcess;
    try {
      child = await backend.start(params);
    } catch (error) {
      const cwd = toPath(params.cwd);
      return (await isMissing(cwd)) ? reportMissingCwd(cwd) : reportStartError(argv, error);
    }
    if (values.detach) return reportDetached(child);
    try {
      await prepare?.();
      const observed = observe(child);
      // Awaited after the command exits. Until then, ignore the rejection.
      observed.catch(() => undefined);
      const end = await runInForeground(child, {
        tty: params.tty,
        isDisconnected,
        onTyped,
        escapeKey,
        takeInput: sandboxed?.takeInput,
        isAnswered: params.terminalQueries === "server",
      });
      if (end.type === "exited") await observed;
      for (const line of sandboxed?.blockedLines() ?? [])
        standardStream(2).write(`procwire run: ${printableLine(line)}\n`);
      return await exitCodeOf(end, child);
    } catch (error) {
      standardStream(2).write(`procwire run: ${printableText(userMessage(error))}\n`);
      return ExitCode.noServer;
    }
  });
}

/** Detaches from the process and prints its handle. */
async function reportDetached(child: ExecProcess): Promise<number> {
  const { RemoteProcess } = await import("../../client/process/remote-process.ts");
  if (!(child instanceof RemoteProcess) || child.handle === null)
    throw new Error("cannot detach: the server does not return process handles (requires procwire serve)");
  const { handle } = child;
  await child.detach();
  process.stdout.write(`${printableLine(handle)}\n`);
  return 0;
}

/** Information about the backend that runs the command. */
interface BackendInfo {
  isUnreachable: () => boolean;
  /** Reports whether a directory is missing; false if unknown. */
  isMissing: (path: string) => Promise<boolean>;
  /** Returns the sandboxes that the host supports. */
  sandboxes: () => Promise<readonly string[]>;
}

/** Opens the backend, calls `use` and closes the backend. */
async function withRunBackend(
  { url, credentials }: { url: string | undefined; credentials: readonly CredentialDefinition[] | undefined },
  values: RunValues,
  use: (backend: ExecBackend, info: BackendInfo) => Promise<number>,
): Promise<number> {
  const secretFilter = secretFilterFromFlags("run", values, { isSummarized: true });
  if (url === undefined) {
    const { createLocalBackend } = await import("../../host/create-local-backend.ts");
    await using backend = createLocalBackend({ credentials });
    const isMissing = async (path: string) => !existsSync(path);
    const sandboxes = async () => (await import("../../host/host-sandboxes.ts")).localSandboxes();
    return await use(filterSecrets(backend, secretFilter), { isUnreachable: () => false, isMissing, sandboxes });
  }
  let state: ConnectionState["type"] = "connected";
  let client: Awaited<ReturnType<typeof connectTo>>;
  try {
    client = await connectTo(url, values, (next) => {
      if (next.type === "reconnecting") standardStream(2).write("procwire run: connection lost, reconnecting\r\n");
      else if (next.type === "connected" && state === "reconnecting")
        standardStream(2).write("procwire run: connected again\r\n");
      state = next.type;
    });
  } catch (error) {
    standardStream(2).write(`procwire run: ${printableText(userMessage(error))}\n`);
    return ExitCode.noServer;
  }
  await using _ = client;
  await using _forwards = await startAutoForward(client, values.forward, "run");
  return await use(filterSecrets(client.backend, secretFilter), {
    isUnreachable: () => state === "reconnecting",
    sandboxes: async () => {
      const { remoteSandboxes } = await import("../../host/host-sandboxes.ts");
      return remoteSandboxes(await client.info());
    },
    isMissing: (path) =>
      client.files
        .exists(path)
        .then((exists) => !exists)
        .catch(() => false),
  });
}

function startParams(
  argv: string[],
  isLocal: boolean,
  values: RunValues,
  extraEnv: Record<string, string>,
  timeoutMs: number | undefined,
  backend: ExecBackend,
): StartParams {
  const base = isLocal ? process.cwd() : (backend.defaultCwd ?? "/");
  const named = values.workdir ?? values.cwd;
  const tty = values.tty ?? false;
  const term = process.env.TERM;
  return {
    processId: `run-${process.pid}-${Date.now().toString(36)}`,
    argv,
    cwd: named === undefined ? base : path.posix.resolve(toPath(base), named),
    // The environment of a server has the wrong TERM for this terminal.
    env: !isLocal && tty && term !== undefined ? { TERM: term, ...extraEnv } : extraEnv,
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
  // Without a terminal there are no queries, and the server can use direct input.
  if (!tty) return undefined;
  if (detach) return "server";
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
      await Promise.race([child.terminate().catch(() => undefined), sleep(systemClock, LEAVE_TIMEOUT_MS)]);
      standardStream(2).write("\r\nprocwire run: left\r\n");
      return ExitCode.left;
    case "unread":
      await child.terminate().catch(() => undefined);
      return 128 + constants.signals.SIGPIPE;
    case "abandoned":
      return exitLike(end.signal, 128 + constants.signals[end.signal]);
  }
}

/** Exits like the command, so that the parent process sees the same exit code or signal. */
async function exitLike(signal: string, exitCode: number): Promise<number> {
  if (!isSignal(signal) || !REPEATED_SIGNALS.has(signal)) return exitCode;
  process.kill(process.pid, signal);
  // The signal is pending. The exit code applies if the signal does not end this process.
  await sleep(systemClock, 100);
  return exitCode;
}

function isSignal(name: string): name is NodeJS.Signals {
  return Object.hasOwn(constants.signals, name);
}

/** Maximum time to wait for the exit after the user leaves. */
const LEAVE_TIMEOUT_MS = 500;

/**
 * Wraps the command so that it runs as another user, with the groups and home of that user. Requires root; other users get
 * an error.
 */
function wrapWithUser(user: string, argv: string[]): string[] {
  if (!/^[A-Za-z0-9_][\w.-]*\$?$/.test(user)) throw new UsageError(`--user \`${user}\` is not a user name`);
  const script = [
    "u=$1; shift",
    'say() { echo "procwire run: --user $u: $1" >&2; exit 125; }',
    'id -u "$u" >/dev/null 2>&1 || say "no such user"',
    '[ "$(id -u)" = "$(id -u "$u")" ] && exec "$@"',
    '[ "$(id -u)" = 0 ] || say "requires root, but this is $(id -un)"',
    'command -v setpriv >/dev/null || say "requires setpriv (util-linux), which is missing"',
    'HOME=$(getent passwd "$u" | cut -d: -f6); USER=$u; LOGNAME=$u; export HOME USER LOGNAME',
    'exec setpriv --reuid="$(id -u "$u")" --regid="$(id -g "$u")" --init-groups -- "$@"',
  ].join("\n");
  return ["/bin/sh", "-c", script, "sh", user, ...argv];
}

/** Returns the path of a `file:` URI; a path stays as it is. */
function toPath(pathOrUri: string): string {
  return pathOrUri.startsWith("file:") ? pathFromUri(pathOrUri) : pathOrUri;
}

function reportMissingCwd(cwd: string): number {
  standardStream(2).write(`procwire run: --cwd: no such directory: ${printableText(cwd)}\n`);
  return ExitCode.noServer;
}

function reportStartError([program = "", ...words]: readonly string[], error: unknown): number {
  const failure = parseStartFailure(errorMessage(error));
  const isNameInUse = error instanceof ExecServerError && error.reason === "nameInUse";
  const subject = isNameInUse ? "--name" : program;
  const isOneWord = failure === "notFound" && words.length === 0 && program.includes(" ");
  const remedy = isOneWord ? `; give each argument as a separate word, or use \`sh -c '${program}'\`` : "";
  standardStream(2).write(`procwire run: ${printableText(`${subject}: ${userMessage(error)}${remedy}`)}\n`);
  switch (failure) {
    case "notFound":
      return ExitCode.notFound;
    case "notExecutable":
      return ExitCode.notRunnable;
    default:
      return ExitCode.noServer;
  }
}

function parseVariables(texts: string[]): Record<string, string> {
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
