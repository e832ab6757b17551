import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import { formatCount, formatQuantity } from "../app/format.ts";
import type { Identity } from "../app/sign-in.ts";
import { usePageTitle } from "../app/use-page-title.ts";
import { usePolled } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { ConfirmDialog } from "../components/confirm-dialog.tsx";
import { GRACE_MS } from "./kill-dialog.tsx";
import { ProcessPage } from "./lazy-process-page.ts";
import { filterRows, type ProcessRow, ProcessRows, type Sorting, sortRows } from "./process-rows.ts";
import { ProcessTable } from "./process-table.tsx";
import { StartForm } from "./start-form.tsx";

const POLL_INTERVAL_MS = 1_000;
/** Names in the confirmation; more would not fit a phone. */
const MAX_NAMES = 8;

/** Choices of the user, kept while other pages are shown. */
const view = { filter: "", showsEnded: false, sorting: { key: "age", isDescending: false } as Sorting };

/** Page with all processes that the principal may see. */
export function ProcessesPage({ client, me }: { client: ExecServerClient; me: Identity }) {
  usePageTitle("Processes");
  const [filter, setFilter] = useState(view.filter);
  const [showsEnded, setShowsEnded] = useState(view.showsEnded);
  const [sorting, setSorting] = useState(view.sorting);
  Object.assign(view, { filter, showsEnded, sorting });
  const rows = useRef(new ProcessRows());
  const { value, problem } = usePolled(
    async (signal) => {
      const listings = await client.list({ allSessions: true, usage: true, signal });
      return rows.current.update(listings, me.id, performance.now());
    },
    POLL_INTERVAL_MS,
    [client],
  );
  // The list is shown, and the next click probably opens a terminal.
  useEffect(() => {
    if (value !== null) ProcessPage.preload();
  }, [value === null]);
  const all = value ?? [];
  const listed = showsEnded ? all : all.filter(({ isRunning }) => isRunning);
  const shown = sortRows(filterRows(listed, filter), sorting);
  const running = all.filter(({ isRunning }) => isRunning).length;
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const onSelect = useCallback((keys: readonly string[], isSelected: boolean) => {
    setSelected((before) => {
      const after = new Set(before);
      for (const key of keys) isSelected ? after.add(key) : after.delete(key);
      return after;
    });
  }, []);
  // Only shown processes can be terminated: a filter must not hide a part of the selection.
  const chosen = shown.filter(({ key, isRunning }) => isRunning && selected.has(key));
  return (
    <>
      <div class="page-head">
        <h1>Processes</h1>
        {value !== null && <span class="muted">{formatCount(running)} running</span>}
        <span class="spacer" />
        <StartForm client={client} />
      </div>
      <Alert message={problem} />
      <div class="toolbar">
        <input
          type="search"
          aria-label="Filter processes"
          placeholder="Filter by name, command or state"
          title="Searches name, command, label, owner and state"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <label class="inline">
          <input
            type="checkbox"
            checked={showsEnded}
            onChange={(event) => setShowsEnded(event.currentTarget.checked)}
          />
          Show ended processes
        </label>
        <span class="spacer" />
        <BulkTerminate client={client} chosen={chosen} onDone={() => setSelected(new Set())} />
      </div>
      {value === null && problem === null && <p class="notice">Loading…</p>}
      {shown.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard
        <section class="card scroll" tabIndex={0} aria-label="Processes">
          <ProcessTable
            rows={shown}
            columns={{
              usage: shown.some(({ memoryBytes }) => memoryBytes !== null),
              limits: shown.some(({ limits }) => limits !== ""),
            }}
            hasForeign={shown.some(({ owner }) => owner !== me.id)}
            sorting={sorting}
            onSort={setSorting}
            selected={selected}
            onSelect={onSelect}
          />
        </section>
      )}
      {value !== null && shown.length === 0 && (
        <p class="card notice">
          {filter !== ""
            ? `No process matches “${filter}”.`
            : all.length > 0
              ? "No process is running."
              : "No processes yet. Start a shell or a command above."}
        </p>
      )}
    </>
  );
}

/** Terminates the chosen processes after a confirmation. */
function BulkTerminate({
  client,
  chosen,
  onDone,
}: {
  client: ExecServerClient;
  chosen: readonly ProcessRow[];
  onDone: () => void;
}) {
  /** The processes of the open confirmation, fixed when it opens. */
  const [asked, setAsked] = useState<readonly ProcessRow[] | null>(null);
  const [note, setNote] = useState("");
  const terminate = async (rows: readonly ProcessRow[]) => {
    setNote(`Terminating ${countProcesses(rows.length)}…`);
    onDone();
    const results = await Promise.allSettled(
      rows.map(({ handle }) => client.kill(handle ?? "", { mode: { type: "graceful", timeoutMs: GRACE_MS } })),
    );
    const failures = results.flatMap((result, index) =>
      result.status === "rejected" ? `${rows[index]?.title}: ${userMessage(result.reason)}` : [],
    );
    setNote(failures.length === 0 ? `Terminated ${countProcesses(rows.length)}.` : failures.join("; "));
  };
  const names = asked?.slice(0, MAX_NAMES).map(({ title }) => title) ?? [];
  return (
    <>
      <output aria-live="polite" class="muted">
        {note}
      </output>
      {chosen.length > 0 && (
        <button type="button" class="danger" onClick={() => setAsked(chosen)}>
          Terminate {countProcesses(chosen.length)}…
        </button>
      )}
      {asked !== null && (
        <ConfirmDialog
          title={`Terminate ${countProcesses(asked.length)}?`}
          actions={[{ label: "Terminate", tone: "danger", onSelect: () => void terminate(asked) }]}
          onClose={() => setAsked(null)}
        >
          <p>
            {names.join(", ")}
            {asked.length > names.length && ` and ${asked.length - names.length} more`}
          </p>
          <p class="muted">
            Each process and its descendants get SIGTERM. What still runs after {GRACE_MS / 1000} seconds gets SIGKILL.
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}

function countProcesses(processes: number): string {
  return formatQuantity(processes, "process", "processes");
}
