import type { JsonObject } from "../../agent/api/response-events.ts";
import { isObject } from "../../base/type-guards.ts";

interface Choice {
  result: JsonObject;
  stop: boolean;
  votes: number;
}

/**
 * Counts the answers of several agents to one row. Two results are equal if their values are equal, in any key order.
 */
export class VoteTally {
  #votes: number;
  #choices = new Map<string, Choice>();

  /** `votes`: maximum number of agents. */
  constructor(votes: number) {
    this.#votes = votes;
  }

  add(result: JsonObject, stop: boolean): void {
    const key = JSON.stringify(sortKeys(result));
    const choice = this.#choices.get(key);
    if (choice) choice.votes++;
    else this.#choices.set(key, { result, stop, votes: 1 });
  }

  /** Whether one answer has more than half of all votes, so that no remaining vote can change the outcome. */
  get isDecided(): boolean {
    return (this.winner?.votes ?? 0) > this.#votes / 2;
  }

  /** The most frequent answer, or null if there is none. At a tie, the earliest answer wins. */
  get winner(): Readonly<Choice> | null {
    let best: Choice | null = null;
    for (const choice of this.#choices.values()) if (choice.votes > (best?.votes ?? 0)) best = choice;
    return best;
  }
}

function sortKeys(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (!isObject(value) || "rawJSON" in value) return value;
  const keys = Object.keys(value).sort();
  return Object.fromEntries(keys.map((key) => [key, sortKeys(value[key])]));
}
