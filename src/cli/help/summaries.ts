/** Summary of each command, in the groups of `procwire --help`. The only source for help, manual page, completion and docs. */
export const COMMAND_GROUPS = {
  Servers: {
    start: "serve on ws://127.0.0.1:7070 and print first steps",
    serve: "serve processes over stdio, WebSocket or a Unix socket",
    connect: "bridge stdin and stdout to a server on this host",
    doctor: "check this host and print how to fix problems",
    token: "create, inspect and revoke signed tokens",
    access: "list and revoke connections and console sessions",
    audit: "check the audit log of a server",
  },
  Processes: {
    run: "run a command on this host or on a server",
    ps: "list the processes of a server",
    attach: "attach this terminal to a process of a server",
    logs: "print the output of a process of a server",
    wait: "wait until processes of a server exit",
    kill: "terminate or signal processes of a server",
    share: "create a share link for one process",
    console: "print a login URL of the web console",
  },
  "Files and ports": {
    cp: "copy files and directories to or from a server",
    forward: "forward ports to or from the host of a server",
  },
  Recordings: {
    record: "run a command in a terminal and record its output",
    replay: "play a recording, or the output of a process",
    export: "write the output of a process as an asciicast",
  },
  Agents: {
    exec: "run one agent turn",
    fanout: "run one agent per row of a table",
    jobs: "list, show, resume, cancel, export or remove fan-out jobs",
    mcp: "serve the tools for models over MCP",
  },
  Shell: {
    completion: "print a completion script for bash, zsh or fish",
  },
} as const;

/** Summary of each subcommand, by the name of its command. */
export const SUBCOMMANDS = {
  audit: {
    verify: "find changed, missing, moved and duplicated lines",
  },
  access: {
    list: "list connections and console sessions",
    revoke: "close a connection, or end a console session",
  },
  share: {
    list: "list the share links of all processes",
    revoke: "invalidate a share link",
  },
  token: {
    create: "sign a token with the secret of a server",
    inspect: "print the content of a token",
    revoke: "revoke a token, and end its connections",
  },
  exec: {
    resume: "continue a stored thread with another prompt",
  },
  fanout: {
    worker: "execute rows of the jobs in a database",
    migrate: "create or upgrade the tables of fan-out jobs in a database",
  },
  jobs: {
    list: "list all jobs, newest first",
    show: "show one job, or one of its rows",
    watch: "follow a running job until it ends",
    cancel: "stop a job; unfinished rows stay pending",
    resume: "execute the pending rows of a job",
    retry: "execute failed and pending rows again",
    export: "write the results, or the failures, of a job",
    report: "write one HTML page with the rows and failures of a job",
    rm: "delete a job and its answers; result files stay",
    prune: "delete jobs that ended long ago",
  },
} as const;

type Group = (typeof COMMAND_GROUPS)[keyof typeof COMMAND_GROUPS];
/** Name of a command. */
export type CommandName = Group extends infer G ? (G extends unknown ? keyof G : never) : never;
/** Words of a command or a subcommand, such as `jobs list`. */
export type CommandWords =
  | CommandName
  | { [C in keyof typeof SUBCOMMANDS]: `${C} ${keyof (typeof SUBCOMMANDS)[C] & string}` }[keyof typeof SUBCOMMANDS];

/** Summaries of all commands, by name. */
export const COMMAND_SUMMARIES: ReadonlyMap<string, string> = new Map(
  Object.values(COMMAND_GROUPS).flatMap((group) => Object.entries(group)),
);

/** Returns the summaries of the subcommands of a command, by name; empty if it has none. */
export function subcommandSummaries(name: string): Readonly<Record<string, string>> {
  return Object.hasOwn(SUBCOMMANDS, name) ? SUBCOMMANDS[name as keyof typeof SUBCOMMANDS] : {};
}

/** Returns the summary of a command or a subcommand. */
export function summaryOf(words: CommandWords): string {
  const [name = "", subcommand] = words.split(" ");
  const summary = subcommand === undefined ? COMMAND_SUMMARIES.get(name) : subcommandSummaries(name)[subcommand];
  return summary ?? "";
}
