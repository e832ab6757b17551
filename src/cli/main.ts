import { visibleLine, visibleText } from "../base/printable-text.ts";
import type { Command } from "./command.ts";
import { nearest } from "./options/parse-options.ts";
import { endOnBrokenOutput } from "./terminal/broken-pipe.ts";

/** Each command is loaded only when it is the one that runs. */
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
    summary: "offer ports of a server's machine here, or the other way round",
    load: () => import("./commands/forward.ts"),
  },
  cp: { summary: "copy files and folders to or from a server", load: () => import("./commands/cp.ts") },
  ps: { summary: "list the processes of a server's sessions", load: () => import("./commands/ps.ts") },
  record: {
    summary: "run a command in a terminal and record what it shows",
    load: () => import("./commands/record.ts"),
  },
  share: {
    summary: "let somebody else watch or drive one process of a server",
    load: () => import("./commands/share.ts"),
  },
  replay: {
    summary: "show a recording, or what a process of a server has shown",
    load: () => import("./commands/replay.ts"),
  },
  export: {
    summary: "write what a process of a server has shown as an asciicast",
    load: () => import("./commands/export.ts"),
  },
  doctor: {
    summary: "say what works on this machine, and how to mend the rest",
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
  // A server goes on although nobody reads what it says; its help is only read.
  const isServer = SERVERS.has(name ?? "") && !rest.some((word) => word === "--help" || word === "-h");
  if (!isServer) endOnBrokenOutput(Object.hasOwn(COMMANDS, name ?? "") ? `procwire ${name}` : "procwire");
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
    const meant = nearest(name, Object.keys(COMMANDS));
    const hint = meant === null ? "" : `did you mean \`${meant}\`? `;
    process.stderr.write(
      `procwire: unknown command \`${visibleLine(name)}\`; ${hint}\`procwire --help\` lists the commands\n`,
    );
    return 2;
  }
  try {
    const { command } = await entry.load();
    return await command.run(rest);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // By its name: a built command is a script of its own, and so has a class of its own.
    const isUsage = error.name === "UsageError" || isParseArgsError(error);
    // What is wrong with a URL is said in words that programs look for at the beginning of the line.
    const speaker = error.name === "ListenUrlError" ? "" : `procwire ${name}: `;
    process.stderr.write(
      `${speaker}${visibleText(error.message)}${isUsage ? `; see \`procwire ${name} --help\`` : ""}\n`,
    );
    return isUsage ? 2 : 1;
  }
}

/** Commands whose stdout says little, or is somebody else's to look after. */
const SERVERS: ReadonlySet<string> = new Set(["serve", "start", "connect"]);

/** What node:util parseArgs throws for an unknown or incomplete option. */
function isParseArgsError(error: Error): boolean {
  return "code" in error && typeof error.code === "string" && error.code.startsWith("ERR_PARSE_ARGS");
}

function helpText(): string {
  const width = Math.max(...Object.keys(COMMANDS).map((name) => name.length));
  const lines = Object.entries(COMMANDS).map(([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`);
  return `procwire: processes over a wire\n\nUsage: procwire COMMAND [options]\n\n${lines.join("\n")}\n\n\`procwire help COMMAND\` tells the rest.\n`;
}
