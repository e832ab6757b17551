import type { SQLInputValue } from "node:sqlite";
import { type NewItem, type NewJob, numberedId } from "../../job.ts";
import type { ReadTable } from "../job-ledger.ts";
import { SqliteDatabase } from "./sqlite-database.ts";
import { INSERT_ITEM, INSERT_JOB } from "./sqlite-statements.ts";
import { RowWriter } from "./stored-row.ts";

/** Writes a new ledger in one transaction. */
export async function writeLedger(
  path: string,
  job: NewJob,
  rows: AsyncIterable<NewItem>,
  table: () => ReadTable,
): Promise<void> {
  const db = new SqliteDatabase(path, { isNew: true });
  try {
    db.begin();
    const writer = new RowWriter(db);
    let totalRows = 0;
    for await (const item of rows) {
      totalRows++;
      db.run(INSERT_ITEM, itemValues(item, writer));
    }
    const { headers, isReading } = table();
    db.run(INSERT_JOB, {
      id: job.id,
      key: job.key,
      task: JSON.stringify(job.task),
      settings: JSON.stringify(job.settings),
      headers: JSON.stringify(headers),
      totalRows,
      isReading: Number(isReading),
      inputPath: job.inputPath,
      outputPath: job.outputPath,
      createdAt: job.createdAtMs,
    });
    db.commit();
  } finally {
    db.close();
  }
}

export function itemValues(item: NewItem, writer: RowWriter): Record<string, SQLInputValue> {
  const { rowIndex, itemId, sourceId, row, question = null } = item;
  const ownId = itemId === numberedId(rowIndex) ? null : itemId;
  return { rowIndex, ownId, sourceId, ...writer.encode(row), question };
}
