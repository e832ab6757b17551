import { useEffect, useRef, useState } from "preact/hooks";
import type { RowListing, RowsQuery } from "../../protocol/console-job-schemas.ts";
import { formatAge, formatCount, formatUsd } from "../app/format.ts";
import { hrefOf } from "../app/route.ts";
import { usePolling } from "../app/use-polling.ts";
import { TableHeader } from "../components/table-header.tsx";
import { listRows } from "./jobs-api.ts";

/** Every row of the table is this high, so that the place of each is known without drawing it. */
const ROW_PX = 32;
/** Rows per request. */
const CHUNK_ROWS = 100;
/** Maximum cached chunks, for scrolling back. */
const MAX_CHUNKS = 20;
/** Rows rendered above and below the visible range. */
const OVERSCAN_ROWS = 10;
const LOOK_EVERY_MS = 1_000;
/** Debounce time of the filter input. */
const TYPED_MS = 250;

type Filter = Pick<RowsQuery, "statuses" | "errorClasses" | "text">;
const STATUSES = ["pending", "running", "completed", "failed"] as const;

/** Draws only the visible rows of a job, however many there are; those are polled. */
export function RowsTable({
  jobId,
  classes,
}: {
  jobId: string;
  classes: readonly NonNullable<RowListing["errorClass"]>[];
}) {
  const [filter, setFilter] = useState<Filter>({});
  return (
    <>
      <FilterForm classes={classes} onFilter={setFilter} />
      <Rows key={JSON.stringify(filter)} jobId={jobId} filter={filter} />
    </>
  );
}

function FilterForm({
  classes,
  onFilter,
}: {
  classes: readonly NonNullable<RowListing["errorClass"]>[];
  onFilter: (filter: Filter) => void;
}) {
  const [status, setStatus] = useState("");
  const [errorClass, setClass] = useState("");
  const [text, setText] = useState("");
  const isFirst = useRef(true);
  useEffect(() => {
    if (isFirst.current) {
      isFirst.current = false;
      return;
    }
    const timer = setTimeout(() => {
      const statuses = STATUSES.filter((known) => known === status);
      const found = classes.filter((known) => known === errorClass);
      onFilter({
        statuses: statuses.length > 0 ? statuses : undefined,
        errorClasses: found.length > 0 ? found : undefined,
        text: text === "" ? undefined : text,
      });
    }, TYPED_MS);
    return () => clearTimeout(timer);
    // The classes change with every poll; a change of them alone needs no new request.
  }, [status, errorClass, text]);
  return (
    <form class="filter" onSubmit={(event) => event.preventDefault()}>
      <Choice label="Status" value={status} values={STATUSES} onValue={setStatus} />
      <Choice label="Failure" value={errorClass} values={classes} onValue={setClass} />
      <label>
        Text
        <input type="search" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
    </form>
  );
}

function Choice({
  label,
  value,
  values,
  onValue,
}: {
  label: string;
  value: string;
  values: readonly string[];
  onValue: (value: string) => void;
}) {
  return (
    <label class="choice">
      {label}
      <select value={value} onChange={(event) => onValue(event.currentTarget.value)}>
        <option value="">all</option>
        {values.map((one) => (
          <option key={one}>{one}</option>
        ))}
      </select>
    </label>
  );
}

function Rows({ jobId, filter }: { jobId: string; filter: Filter }) {
  const place = useRef<HTMLElement>(null);
  const [seen, setSeen] = useState({ first: 0, last: 40 });
  const chunks = useRef(new Map<number, readonly RowListing[]>());
  const [total, setTotal] = useState<number | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [, redraw] = useState(0);
  const from = Math.floor(seen.first / CHUNK_ROWS);
  const to = Math.floor(seen.last / CHUNK_ROWS);
  usePolling(
    async (signal) => {
      for (let chunk = from; chunk <= to; chunk++) {
        const query = { ...filter, offset: chunk * CHUNK_ROWS, limit: CHUNK_ROWS };
        const told = await listRows(jobId, query, signal);
        if (signal.aborted) return;
        if (told.type === "refused") return setProblem(told.reason);
        keep(chunks.current, chunk, told.value.rows);
        setProblem(null);
        setTotal(told.value.total);
        redraw((times) => times + 1);
      }
    },
    LOOK_EVERY_MS,
    [jobId, from, to],
  );
  const look = () => {
    if (!place.current) return;
    const { scrollTop, clientHeight } = place.current;
    const first = Math.max(0, Math.floor(scrollTop / ROW_PX) - OVERSCAN_ROWS);
    setSeen({ first, last: first + Math.ceil(clientHeight / ROW_PX) + 2 * OVERSCAN_ROWS });
  };
  useEffect(() => {
    if (!place.current) return;
    const watcher = new ResizeObserver(look);
    watcher.observe(place.current);
    return () => watcher.disconnect();
  }, []);
  const rows = total ?? 0;
  const first = Math.min(seen.first, Math.max(0, rows - 1));
  const last = Math.min(seen.last, rows - 1);
  const shown = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  return (
    <>
      {problem !== null && <p role="alert">{problem}</p>}
      <output aria-live="polite">{total === null ? "" : `${formatCount(total)} rows`}</output>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reachable by the keyboard */}
      <section class="rows" ref={place} tabIndex={0} aria-label="Rows of the job" onScroll={look}>
        <table aria-rowcount={rows + 1}>
          <TableHeader
            titles={["Row", "Status", "Cells", "Result or error", "Attempts", "Tokens", "Cost", "Took"]}
            rowIndex={1}
          />
          <tbody>
            <Space rows={first} />
            {shown.map((index) => (
              <Line
                key={index}
                jobId={jobId}
                index={index}
                row={chunks.current.get(Math.floor(index / CHUNK_ROWS))?.[index % CHUNK_ROWS]}
              />
            ))}
            <Space rows={Math.max(0, rows - 1 - last)} />
          </tbody>
        </table>
      </section>
    </>
  );
}

/** The space of rows that are not drawn. */
function Space({ rows }: { rows: number }) {
  return rows === 0 ? null : (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: nothing in it can have the focus
    <tr aria-hidden="true">
      <td class="space" colSpan={8} style={{ height: `${rows * ROW_PX}px` }} />
    </tr>
  );
}

function Line({ jobId, index, row }: { jobId: string; index: number; row: RowListing | undefined }) {
  if (!row) {
    return (
      <tr aria-rowindex={index + 2}>
        <td colSpan={8}>…</td>
      </tr>
    );
  }
  const { itemId, usage } = row;
  return (
    <tr aria-rowindex={index + 2}>
      <td>
        <a href={hrefOf({ page: "row", jobId, itemId })}>{itemId}</a>
      </td>
      <td>{row.errorClass === null ? row.status : `failed: ${row.errorClass}`}</td>
      <td class="clipped" title={row.cells}>
        {row.cells}
      </td>
      <td class="clipped" title={row.outcome}>
        {row.outcome}
      </td>
      <td class="number">{row.attempts}</td>
      <td class="number">{formatCount(usage.inputTokens + usage.outputTokens)}</td>
      <td class="number">{formatUsd(usage.costUsd)}</td>
      <td class="number">{row.tookMs === null ? "" : formatAge(row.tookMs)}</td>
    </tr>
  );
}

/** Keeps the newest, so that a job of any size costs the page the same memory. */
function keep(chunks: Map<number, readonly RowListing[]>, chunk: number, rows: readonly RowListing[]): void {
  chunks.delete(chunk);
  chunks.set(chunk, rows);
  const [oldest] = chunks.keys();
  if (oldest !== undefined && chunks.size > MAX_CHUNKS) chunks.delete(oldest);
}
