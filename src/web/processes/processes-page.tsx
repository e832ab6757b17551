import { useRef, useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import type { ProcessListing } from "../../exec/exec-process.ts";
import { formatAge, formatBytes, formatCommand, formatLimits, formatState } from "../app/format.ts";
import { handleSubmit } from "../app/handle-submit.ts";
import { toHref } from "../app/route.ts";
import type { Identity } from "../app/sign-in.ts";
import { type Polled, usePolled } from "../app/use-polling.ts";
import { ScrollableTable } from "../components/scrollable-table.tsx";
import { startDetached } from "./start-process.ts";

const POLL_INTERVAL_MS = 1_000;

interface Row extends ProcessListing {
  bytesPerSecond: number;
}

/** Page with all processes that the principal may see. */
export function ProcessesPage({ client, me }: { client: ExecServerClient; me: Identity }) {
  const { value: rows, problem } = useRows(client);
  const [showsExited, setShowsExited] = useState(false);
  const shown = (rows ?? []).filter(({ running }) => running || showsExited);
  return (
    <>
      <h1>Processes</h1>
      <StartForm client={client} />
      {problem !== null && <p role="alert">{problem}</p>}
      <label class="inline">
        <input
          type="checkbox"
          checked={showsExited}
          onChange={(event) => setShowsExited(event.currentTarget.checked)}
        />
        show exited processes
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
                <a href={toHref({ page: "process", handle: row.handle })}>{row.handle}</a>
              )}
            </td>
            <td class="command" title={row.cwd}>
              {formatCommand(row.argv)}
            </td>
            <td>{formatState(row)}</td>
            <td>{formatAge(Date.now() - row.startedAtMs)}</td>
            <td class="number">{formatBytes(row.outputBytes)}</td>
            <td class="number">{row.running ? `${formatBytes(row.bytesPerSecond)}/s` : ""}</td>
            <td>{formatLimits(row.status?.limits)}</td>
            <td>{row.principal ?? me.id}</td>
          </tr>
        ))}
      </ScrollableTable>
      {rows !== null && shown.length === 0 && <p class="notice">No processes. Start a shell above.</p>}
    </>
  );
}

/** Polls the processes, newest first, with the output rate since the last poll. */
function useRows(client: ExecServerClient): Polled<Row[]> {
  const previous = useRef(new Map<string, { bytes: number; atMs: number }>());
  return usePolled(
    async (signal) => {
      const listings = await client.list({ allSessions: true, signal });
      const atMs = performance.now();
      const current = new Map<string, { bytes: number; atMs: number }>();
      const rows = listings.map((listing) => {
        const key = listing.handle ?? listing.processId;
        const last = previous.current.get(key);
        current.set(key, { bytes: listing.outputBytes, atMs });
        const seconds = last ? (atMs - last.atMs) / 1000 : 0;
        const bytesPerSecond = last && seconds > 0 ? Math.max(0, (listing.outputBytes - last.bytes) / seconds) : 0;
        return { ...listing, bytesPerSecond };
      });
      previous.current = current;
      return rows.sort((a, b) => b.startedAtMs - a.startedAtMs);
    },
    POLL_INTERVAL_MS,
    [client],
  );
}

function StartForm({ client }: { client: ExecServerClient }) {
  const [command, setCommand] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const [isStarting, setStarting] = useState(false);
  const start = async () => {
    setStarting(true);
    try {
      location.hash = toHref({ page: "process", handle: await startDetached(client, command.trim()) });
    } catch (error) {
      setProblem(errorMessage(error));
    } finally {
      setStarting(false);
    }
  };
  return (
    <form class="start" onSubmit={handleSubmit(() => void start())}>
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
