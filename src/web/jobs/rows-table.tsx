import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import type { RowListing } from "../../protocol/console/console-job-schemas.ts";
import { formatQuantity } from "../app/format.ts";
import { useMedia } from "../app/use-media.ts";
import { usePolling } from "../app/use-polling.ts";
import { Alert } from "../components/alert.tsx";
import { listRows } from "./jobs-api.ts";
import { type Filter, RowFilter } from "./row-filter.tsx";
import { FIXED_COLUMNS, RowLine, RowsHeader, RowsSpace } from "./row-line.tsx";

/** Height of a row of the table, in units of the font size of the page. */
const ROW_REM = 2.25;
/** Height of a line of a card, and of the space around its lines. */
const CARD_LINE_REM = 1.375;
const CARD_PADDING_REM = 1.5;
/** Lines of a card other than cells: id and status, result, numbers. */
const CARD_FIXED_LINES = 3;
/** Rows per request. */
const CHUNK_ROWS = 100;
/** Maximum cached chunks, for scrolling back. */
const MAX_CHUNKS = 20;
/** Rows rendered above and below the visible range. */
const OVERSCAN_ROWS = 10;
const POLL_INTERVAL_MS = 1_000;
/** Columns of the table that are shown; the drawer of a row has all cells. */
const MAX_CELL_COLUMNS = 4;

/**
 * Renders and polls only the visible rows of a job, so that its cost does not depend on the size of the job. On phones,
 * each row is a card.
 */
export function RowsTable({
  jobId,
  headers,
  classes,
  selected,
}: {
  jobId: string;
  /** Columns of the table. */
  headers: readonly string[];
  classes: readonly NonNullable<RowListing["errorClass"]>[];
  /** Id of the row that is open in the drawer. */
  selected: string | null;
}) {
  const [filter, setFilter] = useState<Filter>({});
  return (
    <section class="card rows-card" aria-labelledby="rows-title">
      <RowFilter classes={classes} onFilter={setFilter} />
      <Rows
        key={JSON.stringify(filter)}
        jobId={jobId}
        headers={headers.slice(0, MAX_CELL_COLUMNS)}
        filter={filter}
        selected={selected}
      />
    </section>
  );
}

function Rows({
  jobId,
  headers,
  filter,
  selected,
}: {
  jobId: string;
  headers: readonly string[];
  filter: Filter;
  selected: string | null;
}) {
  const list = useRef<HTMLElement>(null);
  const areCards = useMedia("(max-width: 40rem)");
  const rowPx = toRowPixels(areCards, headers.length);
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
          if (!signal.aborted) setProblem(userMessage(error));
          return;
        }
      }
    },
    POLL_INTERVAL_MS,
    [jobId, from, to],
  );
  /** Number of rows above the visible range, with a fraction. */
  const topRow = useRef(0);
  const renderVisible = () => {
    if (!list.current) return;
    const { scrollTop, clientHeight } = list.current;
    topRow.current = scrollTop / rowPx;
    const first = Math.max(0, Math.floor(topRow.current) - OVERSCAN_ROWS);
    setVisible({ first, last: first + Math.ceil(clientHeight / rowPx) + 2 * OVERSCAN_ROWS });
  };
  useLayoutEffect(() => {
    if (!list.current) return;
    // The same row stays at the top when a phone is turned and the layout changes.
    list.current.scrollTop = topRow.current * rowPx;
    const watcher = new ResizeObserver(renderVisible);
    watcher.observe(list.current);
    return () => watcher.disconnect();
  }, [rowPx]);
  const rows = total ?? 0;
  const first = Math.min(visible.first, Math.max(0, rows - 1));
  const last = Math.min(visible.last, rows - 1);
  const indexes = Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index);
  const itemAt = (index: number) => chunks.current.get(Math.floor(index / CHUNK_ROWS))?.[index % CHUNK_ROWS];
  const columns = headers.length + FIXED_COLUMNS;
  const isFiltered = Object.values(filter).some((value) => value !== undefined);
  return (
    <>
      <Alert message={problem} />
      <output aria-live="polite" class="row-count muted">
        {total === null ? "" : formatQuantity(total, "row")}
      </output>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrollable element must be reachable by keyboard */}
      <section class="rows" ref={list} tabIndex={0} aria-label="Rows of the job" onScroll={renderVisible}>
        {total === 0 ? (
          <p class="notice">{isFiltered ? "No row matches the filter." : "The job has no rows."}</p>
        ) : (
          <table aria-rowcount={rows + 1} style={{ "--row-height": `${rowPx}px` }}>
            <RowsHeader headers={headers} />
            <tbody>
              <RowsSpace px={first * rowPx} columns={columns} />
              {indexes.map((index) => (
                <RowLine
                  key={index}
                  jobId={jobId}
                  headers={headers}
                  isSelected={itemAt(index)?.itemId === selected}
                  index={index}
                  row={itemAt(index)}
                />
              ))}
              <RowsSpace px={Math.max(0, rows - 1 - last) * rowPx} columns={columns} />
            </tbody>
          </table>
        )}
      </section>
    </>
  );
}

/** Returns the height of every row, so that the position of each is known without rendering it. */
function toRowPixels(areCards: boolean, cells: number): number {
  const remPx = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  return remPx * (areCards ? CARD_PADDING_REM + (CARD_FIXED_LINES + cells) * CARD_LINE_REM : ROW_REM);
}

/** Caches a chunk and evicts the least recently loaded one above `MAX_CHUNKS`. */
function cacheChunk(chunks: Map<number, readonly RowListing[]>, chunk: number, rows: readonly RowListing[]): void {
  chunks.delete(chunk);
  chunks.set(chunk, rows);
  const [oldest] = chunks.keys();
  if (oldest !== undefined && chunks.size > MAX_CHUNKS) chunks.delete(oldest);
}
