import type { ModelError } from "./model-error.ts";

/** Since when the API has answered no call, and the last error in place of an answer. */
export interface ApiSilence {
  sinceMs: number;
  reason: string;
}

/** Codes that say that the API was not reached at all, whatever the request. */
const UNREACHABLE: ReadonlySet<string> = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ETIMEDOUT",
]);

/**
 * What the calls of a process know together: whether the API is away, or a single request has a fault of its own. One call
 * that fails alone says little; several that fail with no answer in between are an outage.
 */
export class ApiHealth {
  /** Answers that all calls together have had. */
  answers = 0;
  #failing = new Set<object>();
  #silence: ApiSilence | null = null;
  #isUnreachable = false;

  get silence(): ApiSilence | null {
    return this.#silence;
  }

  answered(): void {
    this.answers++;
    this.#failing.clear();
    this.#silence = null;
  }

  /** A call got no answer. Tells since when the API is away; null when the fault may be the call's own. */
  failed(call: object, error: ModelError, nowMs: number): number | null {
    this.#failing.add(call);
    this.#isUnreachable = error.code !== undefined && UNREACHABLE.has(error.code);
    this.#silence = { sinceMs: this.#silence?.sinceMs ?? nowMs, reason: error.message };
    return this.#failing.size > 1 || this.#isUnreachable ? this.#silence.sinceMs : null;
  }
}
