import { InputError, type JobTask, type NewItem, type Row } from "../job.ts";
import { checkIdColumn, ItemIds } from "./item-ids.ts";
import { randomSample } from "./random-sample.ts";
import { openTable, type Table } from "./table.ts";
import type { TableInput } from "./table-input.ts";
import { checkColumns, type Template } from "./template.ts";

/** Hashes the prompt of a row; see `hashQuestion`. */
export type HashQuestion = (headers: readonly string[], row: Row) => Promise<string | undefined>;

export interface TableRowsOptions {
  input: TableInput;
  task: JobTask;
  template: Template;
  hashQuestion?: HashQuestion | undefined;
  signal?: AbortSignal | undefined;
}

/**
 * The rows of a table as items of a job, read once. A large table is read in two steps: the initial rows, with which
 * the work begins, and the rest.
 */
export class TableRows {
  #options: TableRowsOptions;
  #table: Table;
  #ids: ItemIds;
  #rows: AsyncIterator<NewItem, void, undefined>;
  /** Whether all rows have been read. */
  isWhole = false;

  constructor(options: TableRowsOptions) {
    const { input, task } = options;
    this.#options = options;
    this.#table = openTable(input.path, input.format, input.name, input.parseOptions);
    this.#ids = new ItemIds(task.idColumn);
    const { randomSample: size, seed = input.sha256 } = input.parseOptions;
    this.#rows = size === undefined ? this.#all() : randomSample(this.#all(), size, seed);
  }

  /** The columns seen so far. */
  get headers(): readonly string[] {
    return this.#table.headers;
  }

  /** Yields rows up to the limits, then further rows until all columns of the task have occurred. */
  async *initialRows(limits: InitialRowLimits): AsyncGenerator<NewItem, void, undefined> {
    let rows = 0;
    let chars = 0;
    // A random sample needs the whole table.
    const isSample = this.#options.input.parseOptions.randomSample !== undefined;
    while (isSample || rows < limits.rows) {
      const next = await this.#next();
      if (!next) return;
      yield next;
      rows++;
      chars += estimateChars(next.row);
      if (!isSample && chars >= limits.chars) break;
    }
    // A header line names all columns before the first row.
    const { format } = this.#options.input;
    if (format === "csv" || format === "tsv") this.#checkColumns();
    while (!this.#hasAllColumns()) {
      const next = await this.#next();
      if (!next) return;
      yield next;
    }
  }

  /** Yields the rows after those already read, starting at `fromRow`. */
  async *remainingRows(fromRow: number): AsyncGenerator<NewItem, void, undefined> {
    for (let next = await this.#next(); next; next = await this.#next()) {
      if (next.rowIndex >= fromRow) yield next;
    }
  }

  /** Returns warnings about the table that are probably mistakes and affect the results. */
  warnings(): string[] {
    const { skipped } = this.#table;
    const warnings: string[] = [];
    if (skipped.count > 0) {
      warnings.push(`${skipped.count} rows cannot be read and are left out; the first: ${skipped.first}`);
    }
    if (this.#ids.duplicates > 0) {
      const column = this.#options.task.idColumn ?? "";
      warnings.push(
        `${this.#ids.duplicates} rows have an id in ${column} that an earlier row has; they are named with -2, -3 and so on`,
      );
    }
    return warnings;
  }

  async close(): Promise<void> {
    await this.#rows.return?.();
  }

  async #next(): Promise<NewItem | null> {
    const next = await this.#rows.next();
    if (!next.done) return next.value;
    this.isWhole = true;
    return null;
  }

  async *#all(): AsyncGenerator<NewItem, void, undefined> {
    const { signal, hashQuestion } = this.#options;
    for await (const row of this.#table.rows()) {
      signal?.throwIfAborted();
      const item = this.#ids.item(row);
      if (hashQuestion) item.question = await hashQuestion(this.#table.headers, row);
      yield item;
    }
    // All columns are known only now.
    this.#checkColumns();
  }

  #hasAllColumns(): boolean {
    try {
      this.#checkColumns();
      return true;
    } catch (error) {
      if (error instanceof InputError) return false;
      throw error;
    }
  }

  #checkColumns(): void {
    const { task, template } = this.#options;
    checkIdColumn(task.idColumn, this.headers);
    checkColumns(template, this.headers);
    checkImageColumns(task.imageColumns ?? [], this.headers);
  }
}

/** Maximum part of a table that is read before the work begins. */
export interface InitialRowLimits {
  rows: number;
  chars: number;
}

/** Estimates the characters of a row; values other than strings are mostly numbers. */
export function estimateChars(row: Row): number {
  let chars = 0;
  for (const value of Object.values(row)) chars += typeof value === "string" ? value.length : 8;
  return chars;
}

function checkImageColumns(columns: readonly string[], headers: readonly string[]): void {
  const unknown = columns.find((column) => !headers.includes(column));
  if (unknown === undefined) return;
  throw new InputError(
    `--image-column ${unknown} is not a column of the table; the columns are ${headers.join(", ") || "none"}`,
  );
}
