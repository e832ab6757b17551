import { setTimeout as delay } from "node:timers/promises";
import { printableJson, printableLine, shellQuote } from "../../base/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { isUnknownHandle } from "../../exec/compat.ts";
import type { ProcessListing, TreeEntry } from "../../exec/exec-process.ts";
import type { Command } from "../command.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { forceExit } from "../support/forced-exit.ts";

/** Poll interval of --watch. */
const WATCH_INTERVAL_MS = 1000;
/** Moves the cursor to the upper left corner and clears the screen. */
const CLEAR = "\x1b[H\x1b[2J";

const HELP = `Usage: procwire ps [OPTIONS]

List running processes: handle, id, pid, state, lifetime, age, output, command. An operator sees the processes of all
principals with their owner. The handle is the ID that attach, logs and kill take.

Options:
  -a, --all    include exited processes whose output the server retains
  -w, --watch  refresh every second, until interrupted
  -t, --tree   show the descendants of each process: pid, state, CPU time, memory, command
  --json       print one JSON object per line
`;

export const command: Command = defineServerCommand({
  help: HELP,
  options: {
    all: { type: "boolean", short: "a" },
    watch: { type: "boolean", short: "w" },
    tree: { type: "boolean", short: "t" },
    json: { type: "boolean" },
  },
  takesArguments: false,

  async run(values) {
    await using client = await openClient(values);
    const render = async (): Promise<string> => {
      // --session limits the list to that session.
      const listed = await client.list({ allSessions: values.session === undefined });
      const processes = values.all ? listed : listed.filter(({ running }) => running);
      const trees = values.tree ? await treesOf(client, processes) : null;
      if (values.json) return processes.map((one) => `${printableJson({ ...one, tree: trees?.get(one) })}\n`).join("");
      const [head = "", ...lines] = table(processes, Date.now());
      return [head, ...lines.flatMap((line, at) => [line, ...treeLines(trees?.get(processes[at] ?? null) ?? [])])]
        .map((line) => `${line}\n`)
        .join("");
    };
    if (values.watch) return forceExit(await watch(render));
    process.stdout.write(await render());
    return 0;
  },
});

/** Prints the list repeatedly; on a terminal, in place. */
async function watch(render: () => Promise<string>): Promise<number> {
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
  while (!interrupted.signal.aborted) {
    process.stdout.write(`${process.stdout.isTTY ? CLEAR : ""}${await render()}`);
    await delay(WATCH_INTERVAL_MS, undefined, interrupted).catch(() => undefined);
  }
  return 0;
}

function table(processes: ProcessListing[], nowMs: number): string[] {
  const hasPrincipals = processes.some((one) => one.principal !== undefined);
  const principal = (cell: string) => (hasPrincipals ? [printableLine(cell)] : []);
  const rows = [
    ["HANDLE", ...principal("PRINCIPAL"), "ID", "PID", "STATE", "LIFETIME", "AGE", "OUTPUT", "COMMAND"],
    ...processes.map((one) => [
      printableLine(one.handle ?? "-"),
      ...principal(one.principal ?? "-"),
      shellQuote(one.processId),
      one.pid === null ? "-" : String(one.pid),
      stateOf(one),
      one.lifetime ?? "-",
      `${Math.max(0, Math.round((nowMs - one.startedAtMs) / 1000))}s`,
      String(one.outputBytes),
      one.argv.map(shellQuote).join(" "),
    ]),
  ];
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

/** Fetches the process trees. A process that the server no longer tracks has none. */
async function treesOf(
  client: ExecServerClient,
  processes: readonly ProcessListing[],
): Promise<Map<ProcessListing | null, TreeEntry[]>> {
  const trees = new Map<ProcessListing | null, TreeEntry[]>();
  for (const one of processes) {
    if (one.handle === undefined || !one.running) continue;
    const { processes: tree } = await client.tree(one.handle).catch((error: unknown) => {
      if (isUnknownHandle(error)) return { processes: [] };
      throw error;
    });
    trees.set(one, tree);
  }
  return trees;
}

/** Indents each process below its parent. A process whose parent exited is not indented. */
function treeLines(tree: readonly TreeEntry[]): string[] {
  const pids = new Set(tree.map(({ pid }) => pid));
  const below = (parent: TreeEntry | null): readonly TreeEntry[] =>
    tree.filter((entry) => (parent ? entry.parentPid === parent.pid : !pids.has(entry.parentPid)));
  const lines = (entries: readonly TreeEntry[], depth: number): string[] =>
    entries.flatMap((entry) => [
      `${"  ".repeat(depth)}${entry.pid}  ${entry.state}  ${(entry.cpuMs / 1000).toFixed(2)}s  ${Math.round(entry.rssBytes / 1024)}K  ${entry.argv.map(shellQuote).join(" ")}`,
      ...lines(below(entry), depth + 1),
    ]);
  return lines(below(null), 1);
}

function stateOf({ running, signal, exitCode }: ProcessListing): string {
  if (running) return "running";
  return printableLine(signal ?? `exit ${exitCode ?? "?"}`);
}
