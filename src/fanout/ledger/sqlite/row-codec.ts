import type { ItemRecord, Row } from "../../job.ts";
import { decodeItem } from "../record-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import { FIND_COLUMNS, INSERT_COLUMNS, READ_COLUMNS } from "./sqlite-statements.ts";

/** Stands before each cell. Tables do not contain it; a row that does is stored as an object. */
export const CELL_SEPARATOR = "\x1f";
/** Stands between the rows of a block. */
export const ROW_SEPARATOR = "\x1e";
/** Characters that text in a ledger cannot hold, besides half of a surrogate pair. */
const UNSTORABLE = new RegExp(`[\\0${CELL_SEPARATOR}${ROW_SEPARATOR}]`);

/** A row as the ledger stores it: most rows of a table have the same columns, so their names are not repeated with each. */
export interface StoredRow {
  columnsId: number | null;
  row: string;
}

/** Stores the rows of one transaction. */
export class RowWriter {
  #db: SqliteDatabase;
  #ids = new Map<string, number | null>();

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  encode(row: Row): StoredRow {
    const cells = Object.values(row);
    const columnsId = cells.every(isPlain) ? this.#idOf(Object.keys(row)) : null;
    if (columnsId === null) return { columnsId, row: JSON.stringify(row) };
    return { columnsId, row: cells.map((cell) => `${CELL_SEPARATOR}${cell}`).join("") };
  }

  /** Null: there are too many different ones. */
  #idOf(columns: readonly string[]): number | null {
    const names = JSON.stringify(columns);
    let id = this.#ids.get(names);
    if (id === undefined) {
      const row = this.#db.get(FIND_COLUMNS, { names }) ?? this.#db.get(INSERT_COLUMNS, { names });
      id = row ? Number(row.id) : null;
      this.#ids.set(names, id);
    }
    return id;
  }
}

/** Reads the rows of a ledger, and remembers the names of their columns. */
export class ItemReader {
  #db: SqliteDatabase;
  #columns = new Map<number, readonly string[]>();

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  decode = (row: Readonly<Record<string, unknown>>): ItemRecord => {
    const { columns_id: id, row_json: text } = row;
    if (typeof id !== "number" || typeof text !== "string") return decodeItem(row);
    const [, ...cells] = text.split(CELL_SEPARATOR);
    const columns = this.#columnsOf(id);
    return decodeItem({ ...row, row_json: Object.fromEntries(columns.map((name, at) => [name, cells[at]])) });
  };

  #columnsOf(id: number): readonly string[] {
    const known = this.#columns.get(id);
    if (known) return known;
    const columns: readonly string[] = JSON.parse(String(this.#db.get(READ_COLUMNS, { id })?.names_json));
    this.#columns.set(id, columns);
    return columns;
  }
}

function isPlain(cell: unknown): cell is string {
  return typeof cell === "string" && !UNSTORABLE.test(cell) && cell.isWellFormed();
}
