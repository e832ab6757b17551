import { Component, type ComponentChildren } from "preact";
import { followRow } from "../app/follow-row.ts";
import { formatAge, formatBytes } from "../app/format.ts";
import { toHref } from "../app/route.ts";
import { Badge } from "../components/badge.tsx";
import { Sparkline } from "../components/sparkline.tsx";
import { ColumnTitle } from "../components/table-header.tsx";
import type { ProcessRow, Sorting, SortKey } from "./process-rows.ts";

/** Columns that only some servers and processes fill. */
export interface OptionalColumns {
  usage: boolean;
  limits: boolean;
}

const COLUMNS: readonly { key: SortKey; title: string; isNumber?: boolean; column?: keyof OptionalColumns }[] = [
  { key: "title", title: "Name" },
  { key: "command", title: "Command" },
  { key: "state", title: "State" },
  { key: "owner", title: "Owner" },
  { key: "age", title: "Age", isNumber: true },
  { key: "cpu", title: "CPU", isNumber: true, column: "usage" },
  { key: "memory", title: "Memory", isNumber: true, column: "usage" },
  { key: "rate", title: "Output", isNumber: true },
];

/** Table of processes. On phones, each row is a card. */
export function ProcessTable({
  rows,
  columns,
  hasForeign,
  sorting,
  onSort,
  selected,
  onSelect,
}: {
  rows: readonly ProcessRow[];
  columns: OptionalColumns;
  /** Whether other principals own some of the processes. Narrow pages show the owner only then. */
  hasForeign: boolean;
  sorting: Sorting;
  onSort: (sorting: Sorting) => void;
  selected: ReadonlySet<string>;
  onSelect: (keys: readonly string[], isSelected: boolean) => void;
}) {
  const selectable = rows.filter(({ isRunning, handle }) => isRunning && handle !== null).map(({ key }) => key);
  const nowMs = Date.now();
  return (
    <table class={`processes cards ${hasForeign ? "" : "own-only"} ${columns.limits ? "with-limits" : ""}`}>
      <thead>
        <tr>
          <th scope="col" class="check">
            <input
              type="checkbox"
              aria-label="Select all running processes"
              disabled={selectable.length === 0}
              checked={selectable.length > 0 && selectable.every((key) => selected.has(key))}
              onChange={(event) => onSelect(selectable, event.currentTarget.checked)}
            />
          </th>
          {COLUMNS.filter(({ column }) => column === undefined || columns[column]).map(({ key, title, isNumber }) => (
            <SortHeader key={key} sortKey={key} isNumber={isNumber} sorting={sorting} onSort={onSort}>
              {title}
            </SortHeader>
          ))}
          {columns.limits && <ColumnTitle class="limits">Limits</ColumnTitle>}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <Row
            key={row.key}
            row={row}
            age={formatAge(nowMs - row.startedAtMs)}
            cpu={row.cpuPercent === null ? "" : `${row.cpuPercent.toFixed(row.cpuPercent < 9.95 ? 1 : 0)} %`}
            memory={row.memoryBytes === null ? "" : formatBytes(row.memoryBytes)}
            columns={columns}
            isSelected={selected.has(row.key)}
            onSelect={onSelect}
          />
        ))}
      </tbody>
    </table>
  );
}

function SortHeader({
  sortKey,
  isNumber = false,
  sorting,
  onSort,
  children,
}: {
  sortKey: SortKey;
  isNumber?: boolean | undefined;
  sorting: Sorting;
  onSort: (sorting: Sorting) => void;
  children: ComponentChildren;
}) {
  const isCurrent = sorting.key === sortKey;
  const direction = sorting.isDescending ? "descending" : "ascending";
  return (
    <th
      scope="col"
      class={`column-${sortKey} ${isNumber ? "number" : ""}`}
      aria-sort={isCurrent ? direction : undefined}
    >
      <button
        type="button"
        class="plain sort"
        onClick={() => onSort({ key: sortKey, isDescending: isCurrent ? !sorting.isDescending : isNumber })}
      >
        {children}
      </button>
    </th>
  );
}

interface RowProps {
  row: ProcessRow;
  age: string;
  cpu: string;
  memory: string;
  columns: OptionalColumns;
  isSelected: boolean;
  onSelect: (keys: readonly string[], isSelected: boolean) => void;
}

/** One process. Renders again only if a shown value changed, so that hundreds of idle processes cost nothing. */
class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { props } = this;
    return (
      next.age !== props.age ||
      next.cpu !== props.cpu ||
      next.memory !== props.memory ||
      next.isSelected !== props.isSelected ||
      next.onSelect !== props.onSelect ||
      next.row.rates !== props.row.rates ||
      next.row.state.label !== props.row.state.label ||
      next.row.state.detail !== props.row.state.detail ||
      next.columns.usage !== props.columns.usage ||
      next.columns.limits !== props.columns.limits
    );
  }

  override render() {
    const { row, age, cpu, memory, columns, isSelected, onSelect } = this.props;
    const { key, handle, title } = row;
    const href = handle === null ? null : toHref({ page: "process", handle });
    const rate = row.rates.at(-1);
    return (
      // The name is the link for the keyboard; the click area is the whole row.
      <tr class={href === null ? undefined : "clickable"} onClick={(event) => href !== null && followRow(event, href)}>
        <td class="check">
          <input
            type="checkbox"
            aria-label={`Select ${title}`}
            disabled={!row.isRunning || handle === null}
            checked={isSelected}
            onChange={(event) => onSelect([key], event.currentTarget.checked)}
          />
        </td>
        <td class="title">
          {href === null ? title : <a href={href}>{title}</a>}
          {row.labels.map((label) => (
            <span key={label} class="label">
              {label}
            </span>
          ))}
        </td>
        <td class="command" title={[row.fullCommand, `in ${row.cwd}`, row.limits].filter(Boolean).join("\n")}>
          {row.command}
        </td>
        <td class="state">
          <Badge {...row.state} />
        </td>
        <td class="owner clipped">{row.owner}</td>
        <td class="age number">{age}</td>
        {columns.usage && <td class="cpu number">{cpu}</td>}
        {columns.usage && <td class="memory number">{memory}</td>}
        <td class="rate number" title={`${formatBytes(row.outputBytes)} in total`}>
          {row.isRunning && <Sparkline values={row.rates} />}
          <span>
            {rate === undefined ? (row.isRunning ? "" : formatBytes(row.outputBytes)) : `${formatBytes(rate)}/s`}
          </span>
        </td>
        {columns.limits && (
          <td class="limits clipped" title={row.limits}>
            {row.limits}
          </td>
        )}
      </tr>
    );
  }
}
