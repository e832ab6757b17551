import type { RowListing } from "../../protocol/console/console-job-schemas.ts";
import { followRow } from "../app/follow-row.ts";
import { formatCount, formatDuration, formatUsd } from "../app/format.ts";
import { describeRow } from "../app/job-state.ts";
import { toHref } from "../app/route.ts";
import { Badge } from "../components/badge.tsx";
import { ColumnTitle } from "../components/table-header.tsx";

const NUMBERS = ["Attempts", "Duration", "Tokens", "Cost"];
/** Columns other than cells: id, status, result and numbers. */
export const FIXED_COLUMNS = 3 + NUMBERS.length;

/** Titles of the columns. Cards have none: their fields carry their own titles. */
export function RowsHeader({ headers }: { headers: readonly string[] }) {
  return (
    <thead>
      <tr aria-rowindex={1}>
        <ColumnTitle class="column-id">Row</ColumnTitle>
        <ColumnTitle class="column-status">Status</ColumnTitle>
        {headers.map((header) => (
          <ColumnTitle key={header} class="clipped">
            {header}
          </ColumnTitle>
        ))}
        <ColumnTitle class="clipped">Result or error</ColumnTitle>
        {NUMBERS.map((title) => (
          <ColumnTitle key={title} class="number column-number">
            {title}
          </ColumnTitle>
        ))}
      </tr>
    </thead>
  );
}

/** Empty space in place of rows that are not rendered. */
export function RowsSpace({ px, columns }: { px: number; columns: number }) {
  return px === 0 ? null : (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: it contains no focusable element
    <tr class="space" aria-hidden="true">
      <td colSpan={columns} style={{ height: `${px}px` }} />
    </tr>
  );
}

/** One row of a job. `data-title` is the title of a field of a card. */
export function RowLine({
  jobId,
  headers,
  isSelected,
  index,
  row,
}: {
  jobId: string;
  /** Titles of the cell columns. */
  headers: readonly string[];
  isSelected: boolean;
  index: number;
  /** Undefined while the row is loaded. */
  row: RowListing | undefined;
}) {
  if (!row) {
    return (
      <tr aria-rowindex={index + 2}>
        <td colSpan={headers.length + FIXED_COLUMNS}>…</td>
      </tr>
    );
  }
  const { itemId, usage } = row;
  const href = toHref({ page: "row", jobId, itemId });
  return (
    <tr
      aria-rowindex={index + 2}
      class={`clickable ${isSelected ? "selected" : ""}`}
      onClick={(event) => followRow(event, href)}
    >
      <td class="id clipped">
        <a href={href}>{itemId}</a>
      </td>
      <td class="status">
        <Badge {...describeRow(row)} />
      </td>
      {headers.map((header, column) => (
        <td key={column} class="cell clipped" data-title={header} title={row.cells[column]}>
          {row.cells[column]}
        </td>
      ))}
      <td class="result cell clipped" data-title={row.status === "failed" ? "Error" : "Result"} title={row.outcome}>
        {row.outcome}
      </td>
      <td class="number" data-title="Attempts">
        {row.attempts}
      </td>
      <td class="number">{row.tookMs === null ? "" : formatDuration(row.tookMs)}</td>
      <td class="number" data-title="Tokens">
        {formatCount(usage.inputTokens + usage.outputTokens)}
      </td>
      <td class="number">{formatUsd(usage.costUsd)}</td>
    </tr>
  );
}
