import type { NewItem, NewJob } from "../../job.ts";
import type { TableState } from "../job-ledger.ts";
import { PackedRowWriter } from "./packed-rows.ts";
import { SqliteDatabase } from "./sqlite-database.ts";
import { INSERT_JOB } from "./sqlite-statements.ts";

/** Writes a new ledger in one transaction. */
export async function createLedger(
  path: string,
  job: NewJob,
  rows: AsyncIterable<NewItem>,
  table: () => TableState,
): Promise<void> {
  const db = new SqliteDatabase(path, { isNew: true });
  try {
    db.begin();
    const writer = new PackedRowWriter(db);
    let totalRows = 0;
    for await (const item of rows) {
      totalRows++;
      writer.push(item);
    }
    writer.flush();
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
