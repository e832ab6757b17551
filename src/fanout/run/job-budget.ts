/** How many tokens a job has used, and how many more rows its budget is good for. */
export class JobBudget {
  used = 0;
  #limit: number | undefined;
  #finishedTokens = 0;
  #finishedRows = 0;

  constructor(limit: number | undefined) {
    this.#limit = limit;
  }

  /** Tokens of an attempt that did not finish its row. */
  spend(tokens: number): void {
    this.used += tokens;
  }

  finishRow(tokens: number): void {
    this.used += tokens;
    this.#finishedTokens += tokens;
    this.#finishedRows++;
  }

  /** Taking the rows under way at the price of the finished ones. */
  affordableRows(underWay: number): number {
    if (this.#limit === undefined) return Number.POSITIVE_INFINITY;
    if (this.used >= this.#limit) return 0;
    // The first wave starts without a price; at worst it passes the budget by one row a lane.
    if (this.#finishedRows === 0) return Number.POSITIVE_INFINITY;
    const perRow = this.#finishedTokens / this.#finishedRows;
    return Math.floor((this.#limit - this.used) / perRow) - underWay;
  }

  usedUpReason(): string {
    return `the budget of ${this.#limit} tokens is used up (${this.used} used)`;
  }
}
