import type { ItemRecord } from "../job.ts";
import type { ApiRejection } from "../row/row-outcome.ts";

/** Statuses that the content of one row may cause, so more of them are needed to suspect all rows. */
const MAYBE_ONE_ROW_STATUSES: ReadonlySet<number> = new Set([400, 422]);
/** Number of equal rejections that indicate a systemic failure. */
const EQUAL_REFUSALS = 3;
const EQUAL_REFUSALS_OF_ONE_ROW = 10;
/** Number of equal rejections that indicate a systemic failure after the API has accepted requests in this run. */
const EQUAL_REFUSALS_AFTER_ANSWERS = 20;

/**
 * Distinguishes a systemic failure (wrong path, unknown model) from rejections of single rows. Collects the rows that
 * were rejected alike since the last answer, until the cause is known.
 */
export class SystemicFailureDetector {
  #suspects: { item: ItemRecord; refusal: ApiRejection }[] = [];
  #hasAnswers = false;

  /** Message of the systemic failure; null if there is none. */
  reason: string | null = null;

  /** Adds a rejected row until the cause is known. */
  add(item: ItemRecord, refusal: ApiRejection): void {
    this.#suspects.push({ item, refusal });
    const equal = this.#suspects.filter(
      (suspect) => suspect.refusal.status === refusal.status && suspect.refusal.code === refusal.code,
    );
    if (equal.length >= this.#limit(refusal)) this.reason ??= item.error ?? "";
  }

  /** Called when the API answers a call. Returns the collected rows, which were rejected for their own content. */
  onSuccess(): ItemRecord[] {
    this.#hasAnswers = true;
    return this.takeRejected();
  }

  takeRejected(): ItemRecord[] {
    return this.#suspects.splice(0).map(({ item }) => item);
  }

  #limit({ status }: ApiRejection): number {
    if (this.#hasAnswers) return EQUAL_REFUSALS_AFTER_ANSWERS;
    return MAYBE_ONE_ROW_STATUSES.has(status) ? EQUAL_REFUSALS_OF_ONE_ROW : EQUAL_REFUSALS;
  }
}
