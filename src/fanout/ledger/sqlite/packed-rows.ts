import { type ItemRecord, type NewItem, numberedId } from "../../job.ts";
import { CELL_SEPARATOR, type ItemReader, ROW_SEPARATOR, RowWriter, type StoredRow } from "./row-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import {
  DELETE_BLOCK,
  INSERT_BLOCK,
  INSERT_ITEM,
  LAST_ROW,
  NEXT_BLOCK,
  READ_BLOCK,
  READ_BLOCK_AROUND,
} from "./sqlite-statements.ts";

/** Large enough that a last page of which half is empty counts for little, small enough to be taken apart in a moment. */
const BLOCK_ROWS = 4_000;
const BLOCK_CHARS = 200_000;
/** Length of the hash that names a row's question. */
const QUESTION_BYTES = 16;

/** A row of a block, with the values of its record should it leave the block. */
export interface BlockedRow extends StoredRow {
  rowIndex: number;
  ownId: string | null;
  sourceId: string | null;
  /** Hexadecimal. */
  question: string | null;
}

/** Where an id is the text of one of the row's cells, that cell's place is stored. */
type StoredId = null | number | readonly [ownId: string | null, sourceId: string | null];

/** What a row is before anybody has worked on it. */
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

/** Rows that nobody has worked on, as they are in a block. */
export interface Block {
  firstRow: number;
  rows: BlockedRow[];
}

/**
 * The rows that nobody has worked on yet, many in one record: beside its cells such a row takes two bytes and its question,
 * a record of its own takes about 80. A block is taken apart when one of its rows is to change.
 */
export class RowBlocks {
  #db: SqliteDatabase;

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  /** The first block behind this row that begins before `rowLimit`. */
  next(after: number, rowLimit: number): { firstRow: number; rowCount: number } | null {
    const row = this.#db.get(NEXT_BLOCK, { after, rowLimit });
    return row ? { firstRow: Number(row.first_row), rowCount: Number(row.row_count) } : null;
  }

  /** Null: it has been taken apart. */
  read(firstRow: number): Block | null {
    const row = this.#db.get(READ_BLOCK, { firstRow });
    return row ? decodeBlock(row) : null;
  }

  /** The block that holds this row. */
  around(rowIndex: number): Block | null {
    const row = this.#db.get(READ_BLOCK_AROUND, { rowIndex });
    return row ? decodeBlock(row) : null;
  }

  /** The last row of the ledger, in a block or not; -1: there is none. */
  lastRow(): number {
    return Number(this.#db.get(LAST_ROW)?.last ?? -1);
  }

  /** Blocks in the table's order; each is read when it is asked for. */
  *all(rowLimit: number): Generator<Block, void, undefined> {
    for (let after = -1; ; ) {
      const next = this.next(after, rowLimit);
      if (!next) return;
      const block = this.read(next.firstRow);
      if (block) yield block;
      after = next.firstRow;
    }
  }

  /** Gives each row of a block a record of its own; part of a transaction. */
  takeApart({ firstRow, rows }: Block): void {
    for (const row of rows) this.#db.run(INSERT_ITEM, { ...row });
    this.#db.run(DELETE_BLOCK, { firstRow });
  }
}

/** Writes rows into blocks; part of a transaction, which `flush` ends. */
export class BlockWriter {
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
    const isFull = this.#cells.length >= BLOCK_ROWS || this.#chars >= BLOCK_CHARS;
    const isNext = item.rowIndex === this.#firstRow + this.#cells.length && columnsId === this.#columnsId;
    if (isFull || !isNext) this.flush();
    if (this.#cells.length === 0) {
      this.#firstRow = item.rowIndex;
      this.#columnsId = columnsId;
    }
    this.#cells.push(row);
    this.#chars += row.length;
    this.#ids.push(storedId(item, columnsId));
    this.#questions.push(item.question ?? "0".repeat(QUESTION_BYTES * 2));
  }

  /** Writes a row that is about to change: it gets a record of its own. */
  pushApart(item: NewItem): void {
    this.flush();
    const { rowIndex, itemId, sourceId, question = null } = item;
    const ownId = itemId === numberedId(rowIndex) ? null : itemId;
    this.#db.run(INSERT_ITEM, { rowIndex, ownId, sourceId, question, ...this.#rows.encode(item.row) });
  }

  flush(): void {
    const rowCount = this.#cells.length;
    if (rowCount === 0) return;
    this.#db.run(INSERT_BLOCK, {
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

export function freshItem(reader: ItemReader, row: BlockedRow): ItemRecord {
  return reader.decode({
    ...FRESH,
    row_index: row.rowIndex,
    item_id: itemIdOf(row),
    source_id: row.sourceId,
    row_json: row.row,
    columns_id: row.columnsId,
  });
}

export function itemIdOf({ ownId, rowIndex }: BlockedRow): string {
  return ownId ?? numberedId(rowIndex);
}

function storedId({ itemId, rowIndex, sourceId, row }: NewItem, columnsId: number | null): StoredId {
  const ownId = itemId === numberedId(rowIndex) ? null : itemId;
  if (ownId === null && sourceId === null) return null;
  const place = columnsId !== null && ownId === sourceId ? Object.values(row).indexOf(ownId) : -1;
  return place === -1 ? [ownId, sourceId] : place;
}

function decodeBlock(row: Readonly<Record<string, unknown>>): Block {
  const firstRow = Number(row.first_row);
  const columnsId = typeof row.columns_id === "number" ? row.columns_id : null;
  const ids: StoredId[] = typeof row.ids_json === "string" ? JSON.parse(row.ids_json) : [];
  const questions = typeof row.questions === "string" ? row.questions : null;
  const rows = String(row.cells)
    .split(ROW_SEPARATOR)
    .map((cells, at): BlockedRow => {
      const id = ids[at] ?? null;
      const fromCell = typeof id === "number" ? (cells.split(CELL_SEPARATOR)[id + 1] ?? null) : null;
      const [ownId, sourceId] = typeof id === "number" || id === null ? [fromCell, fromCell] : id;
      const from = at * QUESTION_BYTES * 2;
      const question = questions?.slice(from, from + QUESTION_BYTES * 2) ?? null;
      return {
        rowIndex: firstRow + at,
        columnsId,
        row: cells,
        ownId,
        sourceId,
        question: question !== null && isQuestion(question) ? question : null,
      };
    });
  return { firstRow, rows };
}

function isQuestion(question: string): boolean {
  return /[^0]/.test(question);
}
