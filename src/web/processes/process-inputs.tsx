import { useState } from "preact/hooks";
import { messageOf } from "../../base/error-message.ts";
import type { AttachedProcess } from "../../client/browser.ts";
import { age, bytes } from "../app/format.ts";
import { useLooks } from "../app/use-polling.ts";
import { ColumnHeads } from "../components/table-header.tsx";

const LOOK_EVERY_MS = 1_000;
/** Only the newest are shown: no more than a person reads. */
const SHOWN = 100;

type Inputs = Awaited<ReturnType<AttachedProcess["inputs"]>>;

/** Who typed how much into the process, and when. What was typed is shown only in the terminal. */
export function ProcessInputs({ process }: { process: AttachedProcess }) {
  const [told, setTold] = useState<Inputs | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  useLooks(
    async (signal) => {
      try {
        const found = await process.inputs({ signal });
        setTold(found);
        setProblem(null);
      } catch (error) {
        if (!signal.aborted) setProblem(messageOf(error));
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
        <ColumnHeads titles={["After", "Who", "As", "By", "Typed"]} />
        <tbody>
          {newest.map((entry) => (
            <tr key={`${entry.session} ${entry.fromMs}`}>
              <td>{age(entry.fromMs)}</td>
              <td>
                {entry.principal}, session {entry.session}
              </td>
              <td>{entry.role}</td>
              <td>{entry.client}</td>
              <td class="number">
                {bytes(entry.bytes)}
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
