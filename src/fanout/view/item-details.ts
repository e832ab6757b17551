import type { PriceTable } from "../cost/price-table.ts";
import type { JobLedger } from "../ledger/job-ledger.ts";
import type { ItemDetails } from "../output/item-report.ts";
import { compileTask } from "../row/compiled-task.ts";
import { rowInstructions, rowMessage } from "../row/row-prompt.ts";

/** Reads a row with its attempts and prompt. Returns null if the job has no such row. */
export async function readItemDetails(
  ledger: JobLedger,
  itemId: string,
  prices: PriceTable,
): Promise<ItemDetails | null> {
  const item = await ledger.item(itemId);
  if (!item) return null;
  const job = await ledger.job();
  const { template } = await compileTask(job.task);
  const prompt = {
    instructions: rowInstructions(job.task.schema),
    message: rowMessage(job, item, template.render(item.row)),
  };
  return { item, attempts: await ledger.attempts(itemId), prompt, price: prices.priceOf(job.task.model) };
}
