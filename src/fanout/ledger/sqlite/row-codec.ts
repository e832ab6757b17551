import type { ItemRecord, Row } from "../../job.ts";
import { decodeItem } from "../record-codec.ts";
import type { SqliteDatabase } from "./sqlite-database.ts";
import * as sql from "./sqlite-statements.ts";

/** Precedes each cell. A row that contains it is stored as an object. */
export const CELL_SEPARATOR = "\x1f";
/** Separates the rows of a block. */
export const ROW_SEPARATOR = "\x1e";
/** Characters that packed text cannot contain. Unpaired surrogates are checked separately. */
const UNSTORABLE = new RegExp(`[\\0${CELL_SEPARATOR}${ROW_SEPARATOR}]`);

/** A stored row. Most rows of a table have the same columns, so column names are stored once. */
export interface StoredRow {
  columnsId: number | null;
  row: string;
}

/** Encodes the rows of one transaction. */
export class RowWriter {
  #db: SqliteDatabase;
  #ids = new Map<string, number | null>();

  constructor(db: SqliteDatabase) {
    this.#db = db;
  }

  encode(row: Row): StoredRow {
    const cells = Object.values(row);
    const columnsId = cells.every(isPlain) ? this.#findColumnsId(Object.keys(row)) : null;
    if (columnsId === null) return { columnsId, row: JSON.stringify(row) };
    return { columnsId, row: cells.map((cell) => `${CELL_SEPARATOR}${cell}`).join("") };
  }

  /** Returns the id of a list of column names, or null if there are too many different lists. */
  #findColumnsId(columns: readonly string[]): number | null {
    const names = JSON.stringify(columns);
    let id = this.#ids.get(names);
    if (id === undefined) {
      const row = this.#db.get(sql.FIND_COLUMNS, { names }) ?? this.#db.get(sql.INSERT_COLUMNS, { names });
      id = row ? Number(row.id) : null;
      this.#ids.set(names, id);
    }
    return id;
  }
}

/** Decodes the rows of a ledger and caches their column names. */
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
    const columns = this.#readColumns(id);
    return decodeItem({ ...row, row_json: Object.fromEntries(columns.map((name, at) => [name, cells[at]])) });
  };

  #readColumns(id: number): readonly string[] {
    const known = this.#columns.get(id);
    if (known) return known;
    const columns: readonly string[] = JSON.parse(String(this.#db.get(sql.READ_COLUMNS, { id })?.names_json));
    this.#columns.set(id, columns);
    return columns;
  }
}

function isPlain(cell: unknown): cell is string {
  return typeof cell === "string" && !UNSTORABLE.test(cell) && cell.isWellFormed();
}
