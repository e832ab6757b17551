import { useEffect, useRef, useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import type { RowListing, RowsQuery } from "../../protocol/console-job-schemas.ts";
import { formatAge, formatCount, formatUsd } from "../app/format.ts";
import { toHref } from "../app/route.ts";
import { usePolling } from "../app/use-polling.ts";
import { TableHeader } from "../components/table-header.tsx";
import { listRows } from "./jobs-api.ts";

/** Height of every row, so that the position of each is known without rendering it. */
const ROW_PX = 32;
/** Rows per request. */
const CHUNK_ROWS = 100;
/** Maximum cached chunks, for scrolling back. */
const MAX_CHUNKS = 20;
/** Rows rendered above and below the visible range. */
const OVERSCAN_ROWS = 10;
const POLL_INTERVAL_MS = 1_000;
/** Debounce time of the filter input. */
const DEBOUNCE_MS = 250;

type Filter = Pick<RowsQuery, "statuses" | "errorClasses" | "text">;
const STATUSES = ["pending", "running", "completed", "failed"] as const;

/** Renders and polls only the visible rows of a job, so that its cost does not depend on the size of the job. */
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
      const errorClasses = classes.filter((known) => known === errorClass);
      onFilter({
        statuses: statuses.length > 0 ? statuses : undefined,
        errorClasses: errorClasses.length > 0 ? errorClasses : undefined,
        text: text === "" ? undefined : text,
      });
    }, DEBOUNCE_MS);
    return () => clearTimeout(timer);
    // `classes` is new after every poll; a change of it alone needs no new request.
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
        {values.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

function Rows({ jobId, filter }: { jobId: string; filter: Filter }) {
  const list = useRef<HTMLElement>(null);
  const [visible, setVisible] = useState({ first: 0, last: 40 });
  const chunks = useRef(new Map<number, readonly RowListing[]>());
  const [total, setTotal] = useState<number | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [, redraw] = useState(0);
  const from = Math.floor(visible.first / CHUNK_ROWS);
  const to = Math.floor(visible.last / CHUNK_ROWS);
  usePolling(
    async (signal) => {
      for (let chunk = from; chunk <= to; chunk++) {
        const query = { ...filter, offset: chunk * CHUNK_ROWS, limit: CHUNK_ROWS };
        try {
          const page = await listRows(jobId, query, signal);
          if (signal.aborted) return;
          cacheChunk(chunks.current, chunk, page.rows);
          setProblem(null);
          setTotal(page.total);
          redraw((times) => times + 1);
        } catch (error) {
          if (!signal.aborted) setProblem(errorMessage(error));
          return;
        }
      }
    },
    POLL_INTERVAL_MS,
    [jobId, from, to],
  );
  const onScroll = () => {
    if (!list.current) return;
    const { scrollTop, clientHeight } = list.current;
    const first = Math.max(0, Math.floor(scrollTop / ROW_PX) - OVERSCAN_ROWS);
    setVisible({ first, last: first + Math.ceil(clientHeight / ROW_PX) + 2 * OVERSCAN_ROWS });
  };
  useEffect(() => {
    if (!list.current) return;
    const watcher = new ResizeObserver(onScroll);
    watcher.observe(list.current);
    return () => watcher.disconnect();
  }, []);
  const rows = total ?? 0;
  const first = Math.min(visible.first, Math.max(0, rows - 1));
  const last = Math.min(visible.last, rows - 1);
  const indexes = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  return (
    <>
      {problem !== null && <p role="alert">{problem}</p>}
      <output aria-live="polite">{total === null ? "" : `${formatCount(total)} rows`}</output>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard */}
      <section class="rows" ref={list} tabIndex={0} aria-label="Rows of the job" onScroll={onScroll}>
        <table aria-rowcount={rows + 1}>
          <TableHeader
            titles={["Row", "Status", "Cells", "Result or error", "Attempts", "Tokens", "Cost", "Took"]}
            rowIndex={1}
          />
          <tbody>
            <Space rows={first} />
            {indexes.map((index) => (
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

/** Empty space in place of rows that are not rendered. */
function Space({ rows }: { rows: number }) {
  return rows === 0 ? null : (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: it contains no focusable element
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
        <a href={toHref({ page: "row", jobId, itemId })}>{itemId}</a>
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

/** Caches a chunk and evicts the least recently loaded one above `MAX_CHUNKS`. */
function cacheChunk(chunks: Map<number, readonly RowListing[]>, chunk: number, rows: readonly RowListing[]): void {
  chunks.delete(chunk);
  chunks.set(chunk, rows);
  const [oldest] = chunks.keys();
  if (oldest !== undefined && chunks.size > MAX_CHUNKS) chunks.delete(oldest);
}
