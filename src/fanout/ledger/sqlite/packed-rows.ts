import { type ItemRecord, type NewItem, QUESTION_BYTES, rowIdFromIndex } from "../../job.ts";
import { CELL_SEPARATOR, type ItemReader, ROW_SEPARATOR, RowWriter, type StoredRow } from "./row-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import * as sql from "./sqlite-statements.ts";

/**
 * Size limits of a block: large enough that its half-empty last page matters little, small enough to unpack quickly.
 */
const MAX_BLOCK_ROWS = 4_000;
const MAX_BLOCK_CHARS = 200_000;
/** Larger than any row index. */
export const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/** A packed row, with the values that its separate record would have. */
export interface PackedRow extends StoredRow {
  rowIndex: number;
  storedId: string | null;
  sourceId: string | null;
  /** Hexadecimal. */
  question: string | null;
}

/** Ids of a packed row. If an id is the text of a cell, only the index of the cell is stored. */
type StoredId = null | number | readonly [storedId: string | null, sourceId: string | null];

/** State of a row without attempts. */
const FRESH = {
  status: "pending",
  attempt_count: 0,
  result_json: null,
  error_class: null,
  last_error: null,
  input_tokens: 0,
  cached_input_tokens: 0,
  output_tokens: 0,
  reasoning_output_tokens: 0,
  batch_input_tokens: 0,
  batch_cached_input_tokens: 0,
  batch_output_tokens: 0,
  started_at: null,
  reported_at: null,
  completed_at: null,
};

/** A block of packed rows. */
export interface Block {
  firstRow: number;
  rows: PackedRow[];
}

/**
 * Rows without attempts, many per record. In addition to its cells, a packed row takes two bytes and its question; a
 * separate record takes about 80 bytes. A block is unpacked before one of its rows changes.
 */
export class PackedRows {
  #db: SqliteDatabase;

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  /** Returns the first block that begins after row `after` and before `rowLimit`, or null if there is none. */
  next(after: number, rowLimit: number): { firstRow: number; rowCount: number } | null {
    const row = this.#db.get(sql.NEXT_BLOCK, { after, rowLimit });
    return row ? { firstRow: Number(row.first_row), rowCount: Number(row.row_count) } : null;
  }

  /** Returns a block, or null if it was unpacked. */
  read(firstRow: number): Block | null {
    const row = this.#db.get(sql.READ_BLOCK, { firstRow });
    return row ? decodeBlock(row) : null;
  }

  /** Returns the block that contains a row, or null. */
  around(rowIndex: number): Block | null {
    const row = this.#db.get(sql.READ_BLOCK_AROUND, { rowIndex });
    return row ? decodeBlock(row) : null;
  }

  /** Returns the last row index of the ledger, packed or not, or -1 if there are no rows. */
  lastRow(): number {
    return Number(this.#db.get(sql.LAST_ROW)?.last ?? -1);
  }

  /** Yields blocks in table order; each block is read on demand. */
  *all(): Generator<Block, void, undefined> {
    for (let after = -1; ; ) {
      const next = this.next(after, NO_LIMIT);
      if (!next) return;
      const block = this.read(next.firstRow);
      if (block) yield block;
      after = next.firstRow;
    }
  }

  /** Replaces a block by one record per row. Must run in a transaction. */
  unpack({ firstRow, rows }: Block): void {
    for (const row of rows) this.#db.run(sql.INSERT_ITEM, { ...row });
    this.#db.run(sql.DELETE_BLOCK, { firstRow });
  }
}

/** Packs rows into blocks. Must run in a transaction; call `flush` at its end. */
export class PackedRowWriter {
  #db: SqliteDatabase;
  #rows: RowWriter;
  #firstRow = 0;
  #columnsId: number | null = null;
  #cells: string[] = [];
  #chars = 0;
  #ids: StoredId[] = [];
  #questions: string[] = [];

  constructor(db: SqliteDatabase) {
    this.#db = db;
    this.#rows = new RowWriter(db);
  }

  push(item: NewItem): void {
    const { columnsId, row } = this.#rows.encode(item.row);
    const isFull = this.#cells.length >= MAX_BLOCK_ROWS || this.#chars >= MAX_BLOCK_CHARS;
    const isNext = item.rowIndex === this.#firstRow + this.#cells.length && columnsId === this.#columnsId;
    if (isFull || !isNext) this.flush();
    if (this.#cells.length === 0) {
      this.#firstRow = item.rowIndex;
      this.#columnsId = columnsId;
    }
    this.#cells.push(row);
    this.#chars += row.length;
    this.#ids.push(encodeId(item, columnsId));
    this.#questions.push(item.question ?? "0".repeat(QUESTION_BYTES * 2));
  }

  /** Writes a row that is about to change as a separate record. */
  pushUnpacked(item: NewItem): void {
    this.flush();
    const { rowIndex, itemId, sourceId, question = null } = item;
    const storedId = itemId === rowIdFromIndex(rowIndex) ? null : itemId;
    this.#db.run(sql.INSERT_ITEM, { rowIndex, storedId, sourceId, question, ...this.#rows.encode(item.row) });
  }

  flush(): void {
    const rowCount = this.#cells.length;
    if (rowCount === 0) return;
    this.#db.run(sql.INSERT_BLOCK, {
      firstRow: this.#firstRow,
      rowCount,
      columnsId: this.#columnsId,
      cells: this.#cells.join(ROW_SEPARATOR),
      ids: this.#ids.every((id) => id === null) ? null : JSON.stringify(this.#ids),
      questions: this.#questions.some(isQuestion) ? Buffer.from(this.#questions.join(""), "hex") : null,
    });
    this.#cells = [];
    this.#chars = 0;
    this.#ids = [];
    this.#questions = [];
  }
}

export function freshItem(reader: ItemReader, row: PackedRow): ItemRecord {
  return reader.decode({
    ...FRESH,
    row_index: row.rowIndex,
    item_id: itemIdOf(row),
    source_id: row.sourceId,
    row_json: row.row,
    columns_id: row.columnsId,
  });
}

export function itemIdOf({ storedId, rowIndex }: PackedRow): string {
  return storedId ?? rowIdFromIndex(rowIndex);
}

function encodeId({ itemId, rowIndex, sourceId, row }: NewItem, columnsId: number | null): StoredId {
  const storedId = itemId === rowIdFromIndex(rowIndex) ? null : itemId;
  if (storedId === null && sourceId === null) return null;
  const cellIndex = columnsId !== null && storedId === sourceId ? Object.values(row).indexOf(storedId) : -1;
  return cellIndex === -1 ? [storedId, sourceId] : cellIndex;
}

function decodeBlock(row: Readonly<Record<string, unknown>>): Block {
  const firstRow = Number(row.first_row);
  const columnsId = typeof row.columns_id === "number" ? row.columns_id : null;
  const ids: StoredId[] = typeof row.ids_json === "string" ? JSON.parse(row.ids_json) : [];
  const questions = typeof row.questions === "string" ? row.questions : null;
  const rows = String(row.cells)
    .split(ROW_SEPARATOR)
    .map((cells, at): PackedRow => {
      const id = ids[at] ?? null;
      const fromCell = typeof id === "number" ? (cells.split(CELL_SEPARATOR)[id + 1] ?? null) : null;
      const [storedId, sourceId] = typeof id === "number" || id === null ? [fromCell, fromCell] : id;
      const from = at * QUESTION_BYTES * 2;
      const question = questions?.slice(from, from + QUESTION_BYTES * 2) ?? null;
      return {
        rowIndex: firstRow + at,
        columnsId,
        row: cells,
        storedId,
        sourceId,
        question: question !== null && isQuestion(question) ? question : null,
      };
    });
  return { firstRow, rows };
}

function isQuestion(question: string): boolean {
  return /[^0]/.test(question);
}
