import type { ItemRecord } from "../job.ts";
import type { Refusal } from "../row/row-outcome.ts";

/** Statuses that may be caused by one row's content, so more of them are needed before all rows are suspected. */
const MAYBE_OF_ONE_ROW: ReadonlySet<number> = new Set([400, 422]);
const EQUAL_REFUSALS = 3;
const EQUAL_REFUSALS_OF_ONE_ROW = 10;
/** Once the API has accepted requests of this run, more equal refusals are needed to conclude that it accepts none. */
const EQUAL_REFUSALS_AFTER_ANSWERS = 20;

/**
 * Distinguishes a fault common to all rows (a wrong path, an unknown model) from rows that are refused individually. It
 * keeps the rows that were refused alike since the last answer, until it is known which of the two it is.
 */
export class CommonFault {
  #suspects: { item: ItemRecord; refusal: Refusal }[] = [];
  #hasAnswers = false;

  /** The message of the fault, once it is known to be common to all rows. */
  reason: string | null = null;

  /** Keeps a refused row until it is clear whether the row or the common fault is the cause. */
  add(item: ItemRecord, refusal: Refusal): void {
    this.#suspects.push({ item, refusal });
    const equal = this.#suspects.filter(
      (one) => one.refusal.status === refusal.status && one.refusal.code === refusal.code,
    );
    if (equal.length >= this.#limit(refusal)) this.reason ??= item.error ?? "";
  }

  /** The API has answered a call, so the kept rows were refused for their own faults; returns them. */
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
