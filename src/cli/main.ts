import { getErrorCode } from "../base/error-code.ts";
import { printableLine, printableText } from "../base/printable-text.ts";
import type { Command } from "./command.ts";
import { closestMatch } from "./options/parse-options.ts";
import { exitOnBrokenPipe } from "./terminal/broken-pipe.ts";

/** Commands, loaded on demand. */
const COMMANDS: Record<string, { summary: string; load: () => Promise<{ command: Command }> }> = {
  serve: {
    summary: "serve processes over stdio, WebSocket or a unix socket",
    load: () => import("./commands/serve.ts"),
  },
  start: {
    summary: "serve on ws://127.0.0.1:7070 and say what to try",
    load: () => import("./commands/start.ts"),
  },
  run: {
    summary: "run a command here or on a server, as if it ran here",
    load: () => import("./commands/run.ts"),
  },
  attach: {
    summary: "show and drive a process of a server on this terminal",
    load: () => import("./commands/attach.ts"),
  },
  logs: { summary: "write the output of a process of a server", load: () => import("./commands/logs.ts") },
  kill: { summary: "end or signal processes of a server", load: () => import("./commands/kill.ts") },
  connect: {
    summary: "carry a client on stdin and stdout to your server on this machine",
    load: () => import("./commands/connect.ts"),
  },
  forward: {
    summary: "forward ports to or from the host of a server",
    load: () => import("./commands/forward.ts"),
  },
  cp: { summary: "copy files and directories to or from a server", load: () => import("./commands/cp.ts") },
  ps: { summary: "list the processes of a server's sessions", load: () => import("./commands/ps.ts") },
  record: {
    summary: "run a command in a terminal and record what it shows",
    load: () => import("./commands/record.ts"),
  },
  share: {
    summary: "create a share link for one process",
    load: () => import("./commands/share.ts"),
  },
  replay: {
    summary: "show a recording, or what a process of a server has shown",
    load: () => import("./commands/replay.ts"),
  },
  export: {
    summary: "write the output of a process as an asciicast",
    load: () => import("./commands/export.ts"),
  },
  doctor: {
    summary: "check this host and print how to fix problems",
    load: () => import("./commands/doctor.ts"),
  },
  exec: { summary: "run one agent turn", load: () => import("./commands/exec.ts") },
  fanout: { summary: "run one agent per row of a table", load: () => import("./commands/fanout.ts") },
  jobs: {
    summary: "list, show, retry, cancel, export or watch fan-out jobs",
    load: () => import("./commands/jobs.ts"),
  },
  completion: {
    summary: "print a completion script for bash, zsh or fish",
    load: () => import("./commands/completion.ts"),
  },
  mcp: { summary: "serve the tools for models over MCP on stdio", load: () => import("./commands/mcp.ts") },
};

export async function main(argv: string[]): Promise<number> {
  const [name, ...rest] = argv;
  // A server keeps running if its stdout is closed. Its help does not.
  const isServer = SERVERS.has(name ?? "") && !rest.some((word) => word === "--help" || word === "-h");
  if (!isServer) exitOnBrokenPipe(Object.hasOwn(COMMANDS, name ?? "") ? `procwire ${name}` : "procwire");
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
  const entry = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (!entry) {
    const meant = closestMatch(name, Object.keys(COMMANDS));
    const hint = meant === null ? "" : `did you mean \`${meant}\`? `;
    process.stderr.write(
      `procwire: unknown command \`${printableLine(name)}\`; ${hint}\`procwire --help\` lists the commands\n`,
    );
    return 2;
  }
  try {
    const { command } = await entry.load();
    return await command.run(rest);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // Compared by name: each built command bundles its own copy of the class.
    const isUsage = error.name === "UsageError" || isParseArgsError(error);
    // Codex prints listen URL errors without a prefix, and programs match them at the start of the line.
    const speaker = error.name === "ListenUrlError" ? "" : `procwire ${name}: `;
    process.stderr.write(
      `${speaker}${printableText(error.message)}${isUsage ? `; see \`procwire ${name} --help\`` : ""}\n`,
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
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`);
  return `procwire: processes over a wire\n\nUsage: procwire COMMAND [options]\n\n${lines.join("\n")}\n\nRun \`procwire help COMMAND\` for details.\n`;
}
