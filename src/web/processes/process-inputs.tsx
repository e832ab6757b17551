import type { AttachedProcess } from "../../client/browser.ts";
import { formatAge, formatBytes } from "../app/format.ts";
import { usePolled } from "../app/use-polling.ts";
import { TableHeader } from "../components/table-header.tsx";

const POLL_INTERVAL_MS = 1_000;
/** Maximum number of entries shown, newest first. */
const MAX_ENTRIES = 100;

/** Input history: principal, size and time of each write. The input itself appears only in the terminal. */
export function ProcessInputs({ process }: { process: AttachedProcess }) {
  const { value: history, problem } = usePolled((signal) => process.inputs({ signal }), POLL_INTERVAL_MS, [process]);
  if (problem !== null) return <p role="alert">{problem}</p>;
  if (history === null) return null;
  const newest = history.inputs.slice(-MAX_ENTRIES).reverse();
  const omitted = history.omitted + history.inputs.length - newest.length;
  if (newest.length === 0) return <p>No input yet.</p>;
  return (
    <>
      <table class="narrow">
        <TableHeader titles={["After", "Principal", "Role", "Client", "Input"]} numbers={["Input"]} />
        <tbody>
          {newest.map((entry) => (
            <tr key={`${entry.session} ${entry.fromMs}`}>
              <td>{formatAge(entry.fromMs)}</td>
              <td>
                {entry.principal}, session {entry.session}
              </td>
              <td>{entry.role}</td>
              <td>{entry.client}</td>
              <td class="number">
                {formatBytes(entry.bytes)}
                {entry.echo ? "" : ", not echoed"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {omitted > 0 && <p>{omitted} older entries are not shown.</p>}
    </>
  );
}
