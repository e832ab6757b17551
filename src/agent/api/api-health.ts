import type { ModelError } from "./model-error.ts";

/** Time since which the API has answered no call, and the last error. */
export interface ApiOutage {
  sinceMs: number;
  reason: string;
}

/** Codes of errors that occur before a request reaches the API. */
const UNREACHABLE_CODES: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ETIMEDOUT",
]);

/**
 * Availability of the API, shared by all calls of a process. A single failure may be caused by its request. Several
 * failures without a success in between are an outage.
 */
export class ApiHealth {
  /** Number of answers to all calls. */
  successCount = 0;
  outage: ApiOutage | null = null;
  #failing = new Set<object>();

  onSuccess(): void {
    this.successCount++;
    this.#failing.clear();
    this.outage = null;
  }

  /** Records a failed call. Returns the start of the outage, or null if the request itself may be the cause. */
  onFailure(call: object, error: ModelError, nowMs: number): number | null {
    this.#failing.add(call);
    const isUnreachable = error.code !== undefined && UNREACHABLE_CODES.has(error.code);
    this.outage = { sinceMs: this.outage?.sinceMs ?? nowMs, reason: error.message };
    return this.#failing.size > 1 || isUnreachable ? this.outage.sinceMs : null;
  }
}
