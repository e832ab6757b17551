import { useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { ExecServerClient } from "../../client/browser.ts";
import { formatAge } from "../app/format.ts";
import { toHref } from "../app/route.ts";
import { listDevices } from "../app/sign-in.ts";
import { usePageTitle } from "../app/use-page-title.ts";
import { usePolled } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { ConfirmDialog } from "../components/confirm-dialog.tsx";
import { TableHeader } from "../components/table-header.tsx";
import { type AccessRow, listAccess } from "./access-rows.ts";

const POLL_INTERVAL_MS = 2_000;

/** The connections, console sessions and share links that the user may see. */
export function AccessPage({ client }: { client: ExecServerClient }) {
  usePageTitle("Access");
  const [version, setVersion] = useState(0);
  const [chosen, setChosen] = useState<AccessRow | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const { value: rows, problem: loadProblem } = usePolled(
    (signal) => listAccess(client, listDevices, signal),
    POLL_INTERVAL_MS,
    [client, version],
  );
  const revoke = (row: AccessRow) => {
    row
      .revoke()
      .then(
        (isRevoked) => setProblem(isRevoked ? null : `${row.id} has ended already`),
        (error: unknown) => setProblem(userMessage(error)),
      )
      .finally(() => setVersion((count) => count + 1));
  };
  const shownProblem = problem ?? loadProblem;
  return (
    <>
      <div class="page-head">
        <h1>Access</h1>
        {rows !== null && <span class="muted">{rows.length} entries</span>}
      </div>
      <Alert message={shownProblem} />
      {rows === null && shownProblem === null && <p class="notice">Loading…</p>}
      {rows !== null && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard
        <section class="card scroll" tabIndex={0} aria-label="Access">
          <table class="devices cards">
            <TableHeader titles={["Kind", "Principal", "From", "Since", "Expires", "Revoke"]} numbers={["Revoke"]} />
            <tbody>
              {rows.map((row) => (
                <Row key={row.id} row={row} onRevoke={() => setChosen(row)} />
              ))}
            </tbody>
          </table>
        </section>
      )}
      {chosen && (
        <ConfirmDialog
          title={`Revoke ${chosen.id}?`}
          actions={[{ label: "Revoke", tone: "danger", onSelect: () => revoke(chosen) }]}
          onClose={() => setChosen(null)}
        >
          <p>{chosen.consequence}</p>
          {chosen.mark !== null && <p>It belongs to this page, which then loses its connection.</p>}
        </ConfirmDialog>
      )}
    </>
  );
}

function Row({ row, onRevoke }: { row: AccessRow; onRevoke: () => void }) {
  const { id, kind, principal, from, sinceMs, expiresAtMs, mark, handle } = row;
  const now = Date.now();
  return (
    <tr>
      <td class="browser" title={id}>
        {kind} {mark !== null && <span class="muted">({mark})</span>}
        {handle !== undefined && <a href={toHref({ page: "process", handle })}>{handle}</a>}
      </td>
      <td data-title="Principal">{principal}</td>
      <td data-title="From">{from}</td>
      <td data-title="Since" title={new Date(sinceMs).toLocaleString()}>
        {formatAge(now - sinceMs)} ago
      </td>
      <td data-title="Expires" title={expiresAtMs === null ? undefined : new Date(expiresAtMs).toLocaleString()}>
        {expiresAtMs === null ? "never" : `in ${formatAge(Math.max(0, expiresAtMs - now))}`}
      </td>
      <td class="number">
        <button type="button" class="danger" aria-label={`Revoke ${id}`} onClick={onRevoke}>
          Revoke
        </button>
      </td>
    </tr>
  );
}
