import type { PoolClient } from "pg";
import type { NewItem } from "../../job.ts";
import { INSERT_ITEMS } from "./postgres-statements.ts";
import { execute, storable } from "./statement.ts";

/** Rows per INSERT statement. */
const INSERT_ROWS = 1_000;

/** Inserts rows and returns their number. */
export async function insertItems(
  client: PoolClient,
  jobId: string,
  items: AsyncIterable<NewItem> | Iterable<NewItem>,
): Promise<number> {
  let total = 0;
  let batch: NewItem[] = [];
  const write = async () => {
    await execute(client, INSERT_ITEMS, {
      jobId,
      rowIndexes: batch.map((item) => item.rowIndex),
      itemIds: batch.map((item) => storable(item.itemId)),
      sourceIds: batch.map((item) => (item.sourceId === null ? null : storable(item.sourceId))),
      rows: batch.map((item) => JSON.stringify(item.row)),
      questions: batch.map((item) => item.question ?? null),
    });
    batch = [];
  };
  for await (const item of items) {
    total++;
    batch.push(item);
    if (batch.length >= INSERT_ROWS) await write();
  }
  if (batch.length > 0) await write();
  return total;
}
