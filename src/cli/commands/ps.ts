import { sleep, systemClock } from "../../async/clock.ts";
import { cutText, fitTable, type TableColumn } from "../../base/text/fit-table.ts";
import { formatAge } from "../../base/text/format-age.ts";
import { printableJson, printableLine, shellQuote, shellQuoteAll } from "../../base/text/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { isUnknownHandle } from "../../exec/compat.ts";
import type { ProcessListing, TreeEntry } from "../../exec/exec-process.ts";
import { outputColumns, writeStandardOutput } from "../../server/lifecycle/stdio-stream.ts";
import type { Command } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { selectProcess } from "../support/find-process.ts";
import { forceExit } from "../support/forced-exit.ts";
import { parseProcessFilter } from "../support/process-filter.ts";

/** Poll interval of --watch. */
const WATCH_INTERVAL_MS = 1000;
/** Moves the cursor to the upper left corner and clears the screen. */
const CLEAR = "\x1b[H\x1b[2J";

const HELP: HelpPage = {
  usage: ["[OPTIONS] [ID...]"],
  details: `Lists running processes, or the processes with these IDs: handle, name, state, age, owner and command. A wide
    terminal, a pipe and a file also get pid, lifetime, bytes of output, id and labels. An operator sees the processes of all
    principals.`,
  options: {
    Listing: [
      ["-a, --all", "include exited processes whose output the server retains"],
      ["-f, --filter KEY=VALUE", "list only matching processes; repeatable"],
      ["-q, --quiet", "print only the handles"],
      ["-w, --watch", "refresh every second, until interrupted"],
      ["-t, --tree", "show the descendants of each process: pid, state, CPU time, memory, command"],
      ["--json", "print one JSON object per line"],
    ],
  },
  notes: `Filter keys: name and command (a part of the text), label (KEY or KEY=VALUE), state (running or exited), owner and
    lifetime. A process must match all labels, and one value of each other key.`,
  examples: [
    ["procwire ps", "running processes of the server that `procwire start` runs"],
    ["procwire ps --all --json --filter label=team=x", "for programs, with exited processes"],
    ["procwire ps --watch --tree --connect ssh://build-host", "process trees of another host, refreshed"],
  ],
};

export const command: Command = defineServerCommand("ps", HELP, {
  ids: { includesExited: true, isRepeatable: true },
  options: {
    all: { type: "boolean", short: "a" },
    watch: { type: "boolean", short: "w" },
    tree: { type: "boolean", short: "t" },
    json: { type: "boolean" },
    quiet: { type: "boolean", short: "q" },
    filter: { type: "string", short: "f", multiple: true },
  },

  async run(values, ids) {
    const filter = parseProcessFilter(values.filter ?? []);
    const includesExited = values.all || filter.wantsExited || ids.length > 0;
    await using client = await openClient(values);
    const render = async (): Promise<string> => {
      // --session limits the list to that session.
      const listed = await client.list({ allSessions: values.session === undefined });
      const named = ids.length === 0 ? listed : [...new Set(ids.map((id) => selectProcess(listed, id)))];
      const processes = named
        .filter((one) => (includesExited || one.running) && filter.matches(one))
        .sort((one, other) => one.startedAtMs - other.startedAtMs);
      if (values.quiet) return processes.map(({ handle = "-" }) => `${printableLine(handle)}\n`).join("");
      const trees = values.tree ? await treesOf(client, processes) : null;
      if (values.json) return processes.map((one) => `${printableJson({ ...one, tree: trees?.get(one) })}\n`).join("");
      const width = outputColumns();
      const [head = "", ...lines] = fitTable(columns(Date.now()), processes, width);
      return [head, ...lines.flatMap((line, at) => [line, ...treeLines(trees?.get(processes[at] ?? null) ?? [])])]
        .map((line) => `${width === null ? line : cutText(line, width)}\n`)
        .join("");
    };
    if (values.watch) return forceExit(await watch(render));
    writeStandardOutput(await render());
    return 0;
  },
});

/** Prints the list repeatedly; on a terminal, in place. */
async function watch(render: () => Promise<string>): Promise<number> {
  const interrupted = new AbortController();
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort());
  while (!interrupted.signal.aborted) {
    process.stdout.write(`${process.stdout.isTTY ? CLEAR : ""}${await render()}`);
    await sleep(systemClock, WATCH_INTERVAL_MS, interrupted.signal).catch(() => undefined);
  }
  return 0;
}

/** Columns of the list. A terminal of 80 columns omits the optional columns, and a narrower one others by rank. */
function columns(nowMs: number): TableColumn<ProcessListing>[] {
  return [
    { title: "HANDLE", cell: ({ handle }) => printableLine(handle ?? "-") },
    { title: "NAME", cell: ({ name }) => printableLine(name ?? "-"), minWidth: 12, rank: 4 },
    { title: "STATE", cell: stateOf, rank: 3 },
    { title: "AGE", cell: ({ startedAtMs }) => formatAge(nowMs - startedAtMs), rank: 2 },
    { title: "OWNER", cell: ({ principal }) => printableLine(principal ?? "-"), minWidth: 8, rank: 1 },
    { title: "PID", cell: ({ pid }) => (pid === null ? "-" : String(pid)), isOptional: true },
    { title: "LIFETIME", cell: ({ lifetime }) => lifetime ?? "-", isOptional: true },
    { title: "OUTPUT", cell: ({ outputBytes }) => String(outputBytes), isOptional: true },
    { title: "ID", cell: ({ processId }) => shellQuote(processId), isOptional: true },
    { title: "LABELS", cell: ({ labels }) => labelText(labels), isOptional: true },
    { title: "COMMAND", cell: ({ argv }) => shellQuoteAll(argv), minWidth: 12, rank: 5 },
  ];
}

function labelText(labels: ProcessListing["labels"] = {}): string {
  const texts = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
  return texts.length === 0 ? "-" : printableLine(texts.join(","));
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
  const byPid = new Map(tree.map((entry) => [entry.pid, entry]));
  const children = Map.groupBy(byPid.values(), ({ parentPid }) => parentPid);
  const roots = [...byPid.values()].filter(({ parentPid }) => !byPid.has(parentPid));
  // Each pid is shown once, and only below a root. A hostile server may send a pid twice, or as its own parent.
  const lines = (entries: readonly TreeEntry[], depth: number): string[] =>
    entries.flatMap((entry) => [
      `${"  ".repeat(depth)}${entry.pid}  ${entry.state}  ${(entry.cpuMs / 1000).toFixed(2)}s  ${Math.round(entry.rssBytes / 1024)}K  ${shellQuoteAll(entry.argv)}`,
      ...lines(children.get(entry.pid) ?? [], depth + 1),
    ]);
  return lines(roots, 1);
}

function stateOf({ running, signal, exitCode }: ProcessListing): string {
  if (running) return "running";
  return printableLine(signal ?? `exit ${exitCode ?? "?"}`);
}
