import type { PriceTable } from "../cost/price-table.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { ItemDetails } from "../output/item-report.ts";
import { compileTask } from "../row/compiled-task.ts";
import { rowInstructions } from "../row/row-prompt.ts";
import { rowText } from "../row/row-request.ts";

/** Reads a row with its attempts and prompt. Returns null if the job has no such row. */
export async function readItemDetails(
  ledger: JobLedger,
  itemId: string,
  prices: PriceTable,
): Promise<ItemDetails | null> {
  const item = await ledger.item(itemId);
  if (!item) return null;
  const job = await ledger.job();
  const task = await compileTask(job.task);
  const prompt = {
    instructions: rowInstructions(job.task.schema),
    message: rowText(job, task, item),
  };
  return { item, attempts: await ledger.attempts(itemId), prompt, price: prices.priceOf(job.task.model) };
}
