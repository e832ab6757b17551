import { InputError, type NewItem, type Row, rowIdFromIndex } from "../job.ts";

/** Assigns item ids: the value of the id column, or `row-N`. A duplicate gets the suffix `-2`, `-3`, … */
export class ItemIds {
  #idColumn: string | null;
  #taken = new Set<string>();
  /** Next suffix of each repeated id, so that a column of equal values needs one step per row instead of a search. */
  #nextSuffix = new Map<string, number>();
  #rows = 0;
  /** Number of rows whose id occurred before. */
  duplicates = 0;

  constructor(idColumn: string | null) {
    this.#idColumn = idColumn;
  }

  item(row: Row): NewItem {
    const rowIndex = this.#rows++;
    const sourceId = this.#readSourceId(row);
    const base = sourceId === null ? rowIdFromIndex(rowIndex) : toOneLine(sourceId);
    const itemId = this.#findFreeId(base);
    if (itemId !== base) this.duplicates++;
    this.#taken.add(itemId);
    return { itemId, rowIndex, sourceId, row };
  }

  #findFreeId(base: string): string {
    if (!this.#taken.has(base)) return base;
    let suffix = this.#nextSuffix.get(base) ?? 2;
    while (this.#taken.has(`${base}-${suffix}`)) suffix++;
    this.#nextSuffix.set(base, suffix + 1);
    return `${base}-${suffix}`;
  }

  #readSourceId(row: Row): string | null {
    if (this.#idColumn === null) return null;
    const value = Object.hasOwn(row, this.#idColumn) ? row[this.#idColumn] : undefined;
    if (value === undefined || value === null) return null;
    const text = typeof value === "string" ? value : JSON.stringify(value);
    return text.trim() === "" ? null : text;
  }
}

export function checkIdColumn(idColumn: string | null, headers: readonly string[]): void {
  if (idColumn === null || headers.includes(idColumn)) return;
  throw new InputError(`id_column ${idColumn} was not found in csv headers; they are ${headers.join(", ") || "none"}`);
}

/** The prompt has the item id on a separate line, so the id must not contain line ends. */
function toOneLine(text: string): string {
  return text.replace(/[\r\n\u2028\u2029]+/g, " ");
}
