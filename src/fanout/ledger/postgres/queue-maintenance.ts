import type { PostgresDatabase } from "./postgres-database.ts";
import * as sql from "./postgres-statements.ts";
import type { Delivery, RowQueue } from "./row-queue.ts";

/** Rows queued at a time. */
const ENQUEUE_ROWS = 5_000;

/** Queues every unfinished row that has no delivery yet. */
export async function enqueueMissing(database: PostgresDatabase, queue: RowQueue, jobId: string): Promise<void> {
  for (let after = -1; ; ) {
    const rows = await database.all(sql.READ_OPEN_ITEMS, { jobId, after, pageRows: ENQUEUE_ROWS });
    const queued = rows.map((row) => ({
      itemId: String(row.item_id),
      rowIndex: Number(row.row_index),
      dueAtMs: Number(row.due_at),
    }));
    await queue.put(queued);
    const last = queued.at(-1);
    if (!last || queued.length < ENQUEUE_ROWS) return;
    after = last.rowIndex;
  }
}

/**
 * Drops deliveries of rows that are finished or beyond the row limit. A change of the limit queues the latter again.
 * Rows of a job that was just stopped return to the queue.
 */
export async function dropObsolete(
  database: PostgresDatabase,
  queue: RowQueue,
  jobId: string,
  deliveries: readonly Delivery[],
): Promise<void> {
  if (deliveries.length === 0) return;
  const itemIds = deliveries.map(({ data }) => data.itemId);
  const rows = await database.all(sql.FILTER_OPEN_ITEMS, { jobId, itemIds });
  const open = new Set(rows.map((row) => String(row.item_id)));
  await queue.done(deliveries.filter(({ data }) => !open.has(data.itemId)));
  for (const delivery of deliveries.filter(({ data }) => open.has(data.itemId))) {
    await database.transaction(async (client) => {
      await queue.done([delivery], client);
      await queue.put([{ ...delivery.data, dueAtMs: 0 }], client);
    });
  }
}
