import type { ExecServerClient } from "../../client/browser.ts";
import { formatBytes, formatCommand } from "../app/format.ts";
import { usePolled } from "../app/use-polling.ts";
import { TableHeader } from "../components/table-header.tsx";

const POLL_INTERVAL_MS = 2_000;

type Entry = Awaited<ReturnType<ExecServerClient["tree"]>>["processes"][number];

/** State, CPU time and memory of the process and its descendants. */
export function ProcessTreeView({ client, handle }: { client: ExecServerClient; handle: string }) {
  const { value: tree, problem } = usePolled((signal) => client.tree(handle, { signal }), POLL_INTERVAL_MS, [
    client,
    handle,
  ]);
  if (problem !== null) return <p role="alert">{problem}</p>;
  if (tree === null) return null;
  if (tree.processes.length === 0) return <p>No process is left, or the host does not list them.</p>;
  return (
    <>
      <table class="narrow">
        <TableHeader titles={["Pid", "Command", "State", "CPU", "Memory"]} numbers={["Pid", "CPU", "Memory"]} />
        <tbody>
          {sortByParent(tree.processes).map(([entry, depth]) => (
            <tr key={entry.pid}>
              <td class="number">{entry.pid}</td>
              <td class="command" style={{ paddingInlineStart: `${0.5 + depth}rem` }}>
                {formatCommand(entry.argv)}
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
function sortByParent(processes: readonly Entry[]): [Entry, number][] {
  const [first] = processes;
  if (!first) return [];
  const known = new Set(processes.map(({ pid }) => pid));
  const below = Map.groupBy(processes.slice(1), ({ parentPid }) => (known.has(parentPid) ? parentPid : first.pid));
  const ordered: [Entry, number][] = [];
  const add = (entry: Entry, depth: number) => {
    ordered.push([entry, depth]);
    for (const child of below.get(entry.pid) ?? []) add(child, depth + 1);
  };
  add(first, 0);
  return ordered;
}
