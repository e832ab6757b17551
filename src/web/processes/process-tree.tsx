import { useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import { commandLine, formatBytes } from "../app/format.ts";
import { usePolling } from "../app/use-polling.ts";
import { TableHeader } from "../components/table-header.tsx";

const LOOK_EVERY_MS = 2_000;

type Tree = Awaited<ReturnType<ExecServerClient["tree"]>>;
type Entry = Tree["processes"][number];

/** The process and its descendants, what they do and use just now. */
export function ProcessTreeView({ client, handle }: { client: ExecServerClient; handle: string }) {
  const [tree, setTree] = useState<Tree | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  usePolling(
    async (signal) => {
      try {
        const found = await client.tree(handle, { signal });
        setTree(found);
        setProblem(null);
      } catch (error) {
        if (!signal.aborted) setProblem(errorMessage(error));
      }
    },
    LOOK_EVERY_MS,
    [client, handle],
  );
  if (problem !== null) return <p role="alert">{problem}</p>;
  if (tree === null) return null;
  if (tree.processes.length === 0) return <p>No process is left, or the system does not tell.</p>;
  return (
    <>
      <table class="narrow">
        <TableHeader titles={["Pid", "Command", "State", "CPU", "Memory"]} />
        <tbody>
          {inOrder(tree.processes).map(([entry, depth]) => (
            <tr key={entry.pid}>
              <td class="number">{entry.pid}</td>
              <td class="command" style={{ paddingInlineStart: `${0.6 + depth}rem` }}>
                {commandLine(entry.argv)}
              </td>
              <td>{entry.state}</td>
              <td class="number">{(entry.cpuMs / 1000).toFixed(1)} s</td>
              <td class="number">{formatBytes(entry.rssBytes)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {tree.omitted > 0 && <p>{tree.omitted} more are not shown.</p>}
    </>
  );
}

/** Sorts processes below their parents, with depth. A process whose parent exited is placed below the leader. */
function inOrder(processes: readonly Entry[]): [Entry, number][] {
  const [first] = processes;
  if (!first) return [];
  const known = new Set(processes.map(({ pid }) => pid));
  const below = Map.groupBy(processes.slice(1), ({ parentPid }) =>
    known.has(parentPid) ? parentPid : first.pid,
  );
  const ordered: [Entry, number][] = [];
  const add = (entry: Entry, depth: number) => {
    ordered.push([entry, depth]);
    for (const child of below.get(entry.pid) ?? []) add(child, depth + 1);
  };
  add(first, 0);
  return ordered;
}
