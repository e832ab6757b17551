import { useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { AttachedProcess } from "../../client/browser.ts";
import { formatAge, formatBytes } from "../app/format.ts";
import { usePolling } from "../app/use-polling.ts";
import { TableHeader } from "../components/table-header.tsx";

const LOOK_EVERY_MS = 1_000;
/** Maximum number of entries shown, newest first. */
const SHOWN = 100;

type Inputs = Awaited<ReturnType<AttachedProcess["inputs"]>>;

/** Input history: principal, size and time of each write. The input itself appears only in the terminal. */
export function ProcessInputs({ process }: { process: AttachedProcess }) {
  const [told, setTold] = useState<Inputs | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  usePolling(
    async (signal) => {
      try {
        const found = await process.inputs({ signal });
        setTold(found);
        setProblem(null);
      } catch (error) {
        if (!signal.aborted) setProblem(errorMessage(error));
      }
    },
    LOOK_EVERY_MS,
    [process],
  );
  if (problem !== null) return <p role="alert">{problem}</p>;
  if (told === null) return null;
  const newest = told.inputs.slice(-SHOWN).reverse();
  const omitted = told.omitted + told.inputs.length - newest.length;
  if (newest.length === 0) return <p>Nobody has typed anything.</p>;
  return (
    <>
      <table class="narrow">
        <TableHeader titles={["After", "Who", "As", "By", "Typed"]} />
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
                {entry.echo ? "" : ", not shown"}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {omitted > 0 && <p>{omitted} older entries are not shown.</p>}
    </>
  );
}
