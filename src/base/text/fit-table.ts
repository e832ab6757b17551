/** A column of a table for a terminal. */
export interface TableColumn<T> {
  title: string;
  /** Returns the text of a cell, without control characters. */
  cell: (row: T) => string;
  /** Minimum width if the table does not fit. Absent: the column is never cut. */
  minWidth?: number | undefined;
  /** Omits the column if the table does not fit. */
  isOptional?: boolean | undefined;
  /** Omits the column if the table does not fit even when it is cut, the column with the lowest rank first. */
  rank?: number | undefined;
}

/**
 * Returns the lines of a table with at most `maxWidth` columns, or any number if it is null, the title line first. If
 * the table does not fit, it omits optional columns from the last to the first. Then it cuts the widest column that may
 * be cut, and so on. Then it omits columns by their rank. Last, it cuts the lines. The last column is not padded.
 */
export function fitTable<T>(all: readonly TableColumn<T>[], rows: readonly T[], maxWidth: number | null): string[] {
  const width = maxWidth ?? Number.POSITIVE_INFINITY;
  let measured: MeasuredColumn<T>[] = all.map((column) => {
    const cells = [column.title, ...rows.map(column.cell)];
    return { column, cells, width: Math.max(...cells.map(textWidth)) };
  });
  for (let at = measured.length - 1; at >= 0 && totalWidth(measured) > width; at--)
    if (measured[at]?.column.isOptional) measured.splice(at, 1);
  let fitted = cutColumns(measured, width);
  const ranked = measured.flatMap(({ column }) => (column.rank === undefined ? [] : [{ column, rank: column.rank }]));
  for (const { column } of ranked.sort((one, other) => one.rank - other.rank)) {
    if (totalWidth(fitted) <= width) break;
    measured = measured.filter((one) => one.column !== column);
    fitted = cutColumns(measured, width);
  }
  return [...Array(rows.length + 1).keys()].map((line) => {
    const cells = fitted.map(({ cells, width }) => padText(cutText(cells[line] ?? "", width), width));
    return cutText(cells.join(GAP).trimEnd(), width);
  });
}

interface MeasuredColumn<T> {
  column: TableColumn<T>;
  cells: readonly string[];
  width: number;
}

/** Returns the columns, cut to fit as far as their minimum widths allow. */
function cutColumns<T>(measured: readonly MeasuredColumn<T>[], width: number): MeasuredColumn<T>[] {
  const columns = measured.map((one) => ({ ...one }));
  for (let excess = totalWidth(columns) - width; excess > 0; excess = totalWidth(columns) - width) {
    const spare = (one: MeasuredColumn<T>) => one.width - (one.column.minWidth ?? one.width);
    const [widest] = columns.filter((one) => spare(one) > 0).sort((a, b) => b.width - a.width);
    if (!widest) break;
    const [, second] = columns.map((one) => (spare(one) > 0 ? one.width : 0)).sort((a, b) => b - a);
    // Cuts down to the next narrower column, so that no column loses more than it must.
    widest.width -= Math.min(excess, spare(widest), Math.max(1, widest.width - (second ?? 0)));
  }
  return columns;
}

function totalWidth(columns: readonly { width: number }[]): number {
  return columns.reduce((sum, column) => sum + column.width, (columns.length - 1) * GAP.length);
}

const GAP = "  ";
/** Characters that terminals draw two columns wide. */
const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}|[\u{20000}-\u{3fffd}]/u;
const ZERO_WIDTH = /\p{Mn}|\p{Me}|\u200d/u;

/** Returns the number of terminal columns of a text without control characters. */
export function textWidth(text: string): number {
  if (/^[\x20-\x7e]*$/.test(text)) return text.length;
  let columns = 0;
  for (const char of text) columns += charWidth(char);
  return columns;
}

/** Cuts a text to at most `width` columns; the last one is an ellipsis. */
export function cutText(text: string, width: number): string {
  if (textWidth(text) <= width) return text;
  let [kept, columns] = ["", 0];
  for (const char of text) {
    columns += charWidth(char);
    if (columns > width - 1) break;
    kept += char;
  }
  return `${kept}…`;
}

function padText(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - textWidth(text)));
}

function charWidth(char: string): number {
  if (ZERO_WIDTH.test(char)) return 0;
  return WIDE.test(char) ? 2 : 1;
}
