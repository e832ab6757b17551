import { getErrorCode } from "../base/error-code.ts";
import { userMessage } from "../base/error-message.ts";
import { printableLine, printableText } from "../base/text/printable-text.ts";
import type { Command } from "./command.ts";
import { connectHelp } from "./help/connect-help.ts";
import { renderCommandList } from "./help/help-page.ts";
import type { CommandName } from "./help/summaries.ts";
import { closestMatch } from "./options/parse-options.ts";
import { exitOnBrokenPipe } from "./terminal/broken-pipe.ts";

/** Module of each command. Modules are loaded on demand. */
export const COMMANDS: Readonly<Record<CommandName, () => Promise<{ command: Command }>>> = {
  serve: () => import("./commands/serve.ts"),
  start: () => import("./commands/start.ts"),
  run: () => import("./commands/run.ts"),
  attach: () => import("./commands/attach.ts"),
  logs: () => import("./commands/logs.ts"),
  wait: () => import("./commands/wait.ts"),
  kill: () => import("./commands/kill.ts"),
  connect: () => import("./commands/connect.ts"),
  forward: () => import("./commands/forward.ts"),
  cp: () => import("./commands/cp.ts"),
  ps: () => import("./commands/ps.ts"),
  record: () => import("./commands/record.ts"),
  share: () => import("./commands/access/share.ts"),
  console: () => import("./commands/access/console.ts"),
  token: () => import("./commands/access/token.ts"),
  access: () => import("./commands/access/access.ts"),
  audit: () => import("./commands/access/audit.ts"),
  replay: () => import("./commands/replay.ts"),
  export: () => import("./commands/export.ts"),
  doctor: () => import("./commands/doctor.ts"),
  exec: () => import("./commands/exec.ts"),
  fanout: () => import("./commands/fanout/fanout.ts"),
  jobs: () => import("./commands/fanout/jobs.ts"),
  completion: () => import("./commands/completion.ts"),
  mcp: () => import("./commands/mcp.ts"),
};

export async function main(argv: string[]): Promise<number> {
  const [name, ...rest] = argv;
  // A server keeps running if its stdout is closed. Its help does not.
  const isServer = SERVERS.has(name ?? "") && !rest.some((argument) => argument === "--help" || argument === "-h");
  const known = name !== undefined && isCommandName(name) ? COMMANDS[name] : undefined;
  if (!isServer) exitOnBrokenPipe(known ? `procwire ${name}` : "procwire");
  switch (name) {
    case "help":
      if (rest[0] === "--options") return listOptions(rest.slice(1));
      if (rest[0] === "--candidates") return listCandidates(rest.slice(1));
      if (rest[0] === "connect" && rest.length === 1) process.stdout.write(connectHelp());
      else if (rest[0] !== undefined) return main([...(await helpTopic(rest)), "--help"]);
      else process.stdout.write(renderCommandList());
      return 0;
    case undefined:
    case "--help":
    case "-h":
      process.stdout.write(renderCommandList());
      return name === undefined ? 2 : 0;
    case "--version":
    case "-V": {
      const { VERSION } = await import("../version.ts");
      process.stdout.write(`procwire ${VERSION}\n`);
      return 0;
    }
  }
  if (!known) {
    const suggestion = closestMatch(name, [...Object.keys(COMMANDS), "help", "--version"]);
    const hint = suggestion === null ? "" : `did you mean \`${suggestion}\`? `;
    process.stderr.write(
      `procwire: unknown command \`${printableLine(name)}\`; ${hint}\`procwire --help\` lists the commands\n`,
    );
    return 2;
  }
  try {
    const { command } = await known();
    return await command.run(rest);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // Compared by name: each built command bundles its own copy of the class.
    const isUsage = USAGE_ERRORS.has(error.name) || isParseArgsError(error) || isUnixListenError(error);
    // Codex prints listen URL errors without a prefix, and programs match them at the start of the line.
    const prefix = error.name === "ListenUrlError" && !isUsage ? "" : `procwire ${name}: `;
    process.stderr.write(
      `${prefix}${printableText(`${userMessage(error)}${hintOf(error)}`)}${isUsage ? `; see \`procwire ${name} --help\`` : ""}\n`,
    );
    return isUsage ? 2 : 1;
  }
}

/** Returns the remedy of an error for a user of the CLI, such as the flag that reads the input. */
function hintOf(error: Error): string {
  return "hint" in error && typeof error.hint === "string" ? `; ${error.hint}` : "";
}

/** Names of errors in arguments. */
const USAGE_ERRORS: ReadonlySet<string> = new Set(["UsageError", "FlagError"]);

/** Reports whether the error is an invalid Unix socket URL, which Codex does not support and so prints no text for. */
function isUnixListenError(error: Error): boolean {
  return error.name === "ListenUrlError" && "kind" in error && error.kind === "invalidUnix";
}

/** Commands that run as servers and handle a closed stdout themselves. */
const SERVERS: ReadonlySet<string> = new Set(["serve", "start", "connect"]);

/** Reports whether the error comes from `parseArgs`: an unknown or incomplete option. */
function isParseArgsError(error: Error): boolean {
  return getErrorCode(error)?.startsWith("ERR_PARSE_ARGS") ?? false;
}

/** Returns the command and subcommand of a help topic. Other words stay out: `run` would take them as its command. */
async function helpTopic([name = "", subcommand = ""]: string[]): Promise<string[]> {
  const { subcommands = {} } = isCommandName(name) ? (await COMMANDS[name]()).command : {};
  return Object.hasOwn(subcommands, subcommand) ? [name, subcommand] : [name];
}

/** Prints the long options of a command or a subcommand, one per line, for the completion scripts. */
async function listOptions([name = "", subcommand = ""]: string[]): Promise<number> {
  if (!isCommandName(name)) return 2;
  const { command } = await COMMANDS[name]();
  const load = Object.hasOwn(command.subcommands ?? {}, subcommand) ? command.subcommands?.[subcommand] : undefined;
  const { options } = load ? await load() : command;
  process.stdout.write(["help", ...Object.keys(options)].map((option) => `--${option}\n`).join(""));
  return 0;
}

/** Prints the candidates for the argument after these words, for the completion scripts. */
async function listCandidates(words: string[]): Promise<number> {
  const { renderCandidates } = await import("./support/candidates.ts");
  const load = async (name: string) => (isCommandName(name) ? (await COMMANDS[name]()).command : null);
  process.stdout.write(await renderCandidates(words, load));
  // A server that does not respond must not delay the shell.
  process.exit(0);
}

function isCommandName(name: string): name is CommandName {
  return Object.hasOwn(COMMANDS, name);
}
