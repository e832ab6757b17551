import type { ItemRecord } from "../job.ts";

/** Rows per page, so that a large job is never in memory as a whole. */
export const PAGE_ROWS = 500;

/** Yields the rows of all pages. `readPage` returns the rows after `last`; only the last page is shorter. */
export async function* readPages(
  readPage: (last: ItemRecord | undefined) => readonly ItemRecord[] | Promise<readonly ItemRecord[]>,
): AsyncGenerator<ItemRecord, void, undefined> {
  for (let last: ItemRecord | undefined; ; ) {
    const page = await readPage(last);
    yield* page;
    if (page.length < PAGE_ROWS) return;
    last = page.at(-1);
  }
}
