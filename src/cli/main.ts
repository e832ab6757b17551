import { getErrorCode } from "../base/error-code.ts";
import { printableLine, printableText } from "../base/printable-text.ts";
import type { Command } from "./command.ts";
import { closestMatch } from "./options/parse-options.ts";
import { exitOnBrokenPipe } from "./terminal/broken-pipe.ts";

/** Summary for `procwire --help` and module of each command. Modules are loaded on demand. */
const COMMANDS: Readonly<Record<string, readonly [summary: string, load: () => Promise<{ command: Command }>]>> = {
  serve: ["serve processes over stdio, WebSocket or a Unix socket", () => import("./commands/serve.ts")],
  start: ["serve on ws://127.0.0.1:7070 and print first steps", () => import("./commands/start.ts")],
  run: ["run a command on this host or on a server", () => import("./commands/run.ts")],
  attach: ["attach this terminal to a process of a server", () => import("./commands/attach.ts")],
  logs: ["print the output of a process of a server", () => import("./commands/logs.ts")],
  kill: ["terminate or signal processes of a server", () => import("./commands/kill.ts")],
  connect: ["bridge stdin and stdout to a server on this host", () => import("./commands/connect.ts")],
  forward: ["forward ports to or from the host of a server", () => import("./commands/forward.ts")],
  cp: ["copy files and directories to or from a server", () => import("./commands/cp.ts")],
  ps: ["list the processes of a server", () => import("./commands/ps.ts")],
  record: ["run a command in a terminal and record its output", () => import("./commands/record.ts")],
  share: ["create a share link for one process", () => import("./commands/share.ts")],
  replay: ["play a recording, or the output of a process", () => import("./commands/replay.ts")],
  export: ["write the output of a process as an asciicast", () => import("./commands/export.ts")],
  doctor: ["check this host and print how to fix problems", () => import("./commands/doctor.ts")],
  exec: ["run one agent turn", () => import("./commands/exec.ts")],
  fanout: ["run one agent per row of a table", () => import("./commands/fanout/fanout.ts")],
  jobs: ["list, show, watch, retry, export or remove fan-out jobs", () => import("./commands/fanout/jobs.ts")],
  completion: ["print a completion script for bash, zsh or fish", () => import("./commands/completion.ts")],
  mcp: ["serve the tools for models over MCP", () => import("./commands/mcp.ts")],
};

export async function main(argv: string[]): Promise<number> {
  const [name, ...rest] = argv;
  // A server keeps running if its stdout is closed. Its help does not.
  const isServer = SERVERS.has(name ?? "") && !rest.some((argument) => argument === "--help" || argument === "-h");
  const known = name !== undefined && Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!isServer) exitOnBrokenPipe(known ? `procwire ${name}` : "procwire");
  switch (name) {
    case "help":
      if (rest[0] !== undefined) return main([rest[0], "--help"]);
      process.stdout.write(helpText());
      return 0;
    case undefined:
    case "--help":
    case "-h":
      process.stdout.write(helpText());
      return name === undefined ? 2 : 0;
    case "--version":
    case "-V": {
      const { VERSION } = await import("../version.ts");
      process.stdout.write(`procwire ${VERSION}\n`);
      return 0;
    }
  }
  if (!known) {
    const suggestion = closestMatch(name, Object.keys(COMMANDS));
    const hint = suggestion === null ? "" : `did you mean \`${suggestion}\`? `;
    process.stderr.write(
      `procwire: unknown command \`${printableLine(name)}\`; ${hint}\`procwire --help\` lists the commands\n`,
    );
    return 2;
  }
  try {
    const [, load] = known;
    const { command } = await load();
    return await command.run(rest);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // Compared by name: each built command bundles its own copy of the class.
    const isUsage = error.name === "UsageError" || isParseArgsError(error);
    // Codex prints listen URL errors without a prefix, and programs match them at the start of the line.
    const prefix = error.name === "ListenUrlError" ? "" : `procwire ${name}: `;
    process.stderr.write(
      `${prefix}${printableText(error.message)}${isUsage ? `; see \`procwire ${name} --help\`` : ""}\n`,
    );
    return isUsage ? 2 : 1;
  }
}

/** Commands that run as servers and handle a closed stdout themselves. */
const SERVERS: ReadonlySet<string> = new Set(["serve", "start", "connect"]);

/** Reports whether the error comes from `parseArgs`: an unknown or incomplete option. */
function isParseArgsError(error: Error): boolean {
  return getErrorCode(error)?.startsWith("ERR_PARSE_ARGS") ?? false;
}

function helpText(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  const lines = Object.entries(COMMANDS).map(([name, [summary]]) => `  ${name.padEnd(width)}  ${summary}`);
  return `procwire: processes over a wire\n\nUsage: procwire COMMAND [OPTIONS]\n\n${lines.join("\n")}\n\nRun \`procwire help COMMAND\` for details.\n`;
}
