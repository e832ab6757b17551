import { useRef, useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import { commandLine, formatAge, formatBytes, formatState, limitsText } from "../app/format.ts";
import { hrefOf } from "../app/route.ts";
import type { Identity } from "../app/sign-in.ts";
import { usePolling } from "../app/use-polling.ts";
import { ScrollableTable } from "../components/scrollable-table.tsx";
import { startDetached } from "./start-process.ts";

const LOOK_EVERY_MS = 1_000;

interface Row extends ProcessListing {
  bytesPerSecond: number;
}

/** Every process this page may see, polled once a second while the page is visible. */
export function ProcessesPage({ client, me }: { client: ExecServerClient; me: Identity }) {
  const { rows, problem } = useRows(client);
  const [ended, setEnded] = useState(false);
  const shown = (rows ?? []).filter(({ running }) => running || ended);
  return (
    <>
      <h1>Processes</h1>
      <StartForm client={client} />
      {problem !== null && <p role="alert">{problem}</p>}
      <label class="inline">
        <input type="checkbox" checked={ended} onChange={(event) => setEnded(event.currentTarget.checked)} />
        show those that have ended
      </label>
      <ScrollableTable
        label="Processes"
        titles={["Process", "Command", "State", "Age", "Output", "Rate", "Limits", "Owner"]}
      >
        {shown.map((row) => (
          <tr key={row.handle}>
            <td>
              {row.handle === undefined ? (
                row.processId
              ) : (
                <a href={hrefOf({ page: "process", handle: row.handle })}>{row.handle}</a>
              )}
            </td>
            <td class="command" title={row.cwd}>
              {commandLine(row.argv)}
            </td>
            <td>{formatState(row)}</td>
            <td>{formatAge(Date.now() - row.startedAtMs)}</td>
            <td class="number">{formatBytes(row.outputBytes)}</td>
            <td class="number">{row.running ? `${formatBytes(row.bytesPerSecond)}/s` : ""}</td>
            <td>{limitsText(row.status?.limits)}</td>
            <td>{row.principal ?? me.id}</td>
          </tr>
        ))}
      </ScrollableTable>
      {rows !== null && shown.length === 0 && <p class="notice">Nothing runs here. Start a shell above.</p>}
    </>
  );
}

function useRows(client: ExecServerClient): { rows: Row[] | null; problem: string | null } {
  const [rows, setRows] = useState<Row[] | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const before = useRef(new Map<string, { bytes: number; atMs: number }>());
  usePolling(
    async (signal) => {
      try {
        const listings = await client.list({ allSessions: true, signal });
        const atMs = performance.now();
        const next = new Map<string, { bytes: number; atMs: number }>();
        setRows(
          listings
            .map((listing) => {
              const key = listing.handle ?? listing.processId;
              const last = before.current.get(key);
              next.set(key, { bytes: listing.outputBytes, atMs });
              const seconds = last ? (atMs - last.atMs) / 1000 : 0;
              const bytesPerSecond =
                last && seconds > 0 ? Math.max(0, (listing.outputBytes - last.bytes) / seconds) : 0;
              return { ...listing, bytesPerSecond };
            })
            .sort((a, b) => b.startedAtMs - a.startedAtMs),
        );
        before.current = next;
        setProblem(null);
      } catch (error) {
        if (!signal.aborted) setProblem(errorMessage(error));
      }
    },
    LOOK_EVERY_MS,
    [client],
  );
  return { rows, problem };
}

function StartForm({ client }: { client: ExecServerClient }) {
  const [command, setCommand] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isStarting, setStarting] = useState(false);
  const start = async () => {
    setStarting(true);
    try {
      location.hash = hrefOf({ page: "process", handle: await startDetached(client, command.trim()) });
    } catch (error) {
      setProblem(errorMessage(error));
    } finally {
      setStarting(false);
    }
  };
  return (
    <form
      class="start"
      onSubmit={(event) => {
        event.preventDefault();
        void start();
      }}
    >
      <label>
        Command (empty: a shell)
        <input
          value={command}
          placeholder="npm test"
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => setCommand(event.currentTarget.value)}
        />
      </label>
      <button type="submit" disabled={isStarting}>
        Start
      </button>
      {problem !== null && <p role="alert">{problem}</p>}
    </form>
  );
}
