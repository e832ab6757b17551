import type { ItemRecord } from "../job.ts";
import type { Refusal } from "../row/row-outcome.ts";

/** These may well be about one row's content, so more of them are needed before all rows are suspected. */
const MAYBE_OF_ONE_ROW: ReadonlySet<number> = new Set([400, 422]);
const EQUAL_REFUSALS = 3;
const EQUAL_REFUSALS_OF_ONE_ROW = 10;
/** Once the API has taken requests of this run, it takes a longer row of refusals to say that it takes none any more. */
const EQUAL_REFUSALS_AFTER_ANSWERS = 20;

/**
 * Tells a request that no row could succeed with (a wrong path, an unknown model) from rows that are refused one by one. It
 * keeps the rows that were refused alike since the last answer, until it is known which of the two it was.
 */
export class CommonFault {
  #suspects: { item: ItemRecord; refusal: Refusal }[] = [];
  #hasAnswers = false;

  /** The message of the fault, once it is known to be common to all rows. */
  reason: string | null = null;

  /** A row was refused; it is kept here until it is taken back or told. */
  add(item: ItemRecord, refusal: Refusal): void {
    this.#suspects.push({ item, refusal });
    const equal = this.#suspects.filter(
      (one) => one.refusal.status === refusal.status && one.refusal.code === refusal.code,
    );
    if (equal.length >= this.#limit(refusal)) this.reason ??= item.error ?? "";
  }

  /** The API has answered a call: the rows that are kept were refused for faults of their own. */
  answered(): ItemRecord[] {
    this.#hasAnswers = true;
    return this.takeSuspects();
  }

  takeSuspects(): ItemRecord[] {
    return this.#suspects.splice(0).map(({ item }) => item);
  }

  #limit({ status }: Refusal): number {
    if (this.#hasAnswers) return EQUAL_REFUSALS_AFTER_ANSWERS;
    return MAYBE_OF_ONE_ROW.has(status) ? EQUAL_REFUSALS_OF_ONE_ROW : EQUAL_REFUSALS;
  }
}
