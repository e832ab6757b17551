import type { ModelApi } from "../../../src/agent/api/model-api.ts";
import { ModelError } from "../../../src/agent/api/model-error.ts";
import { NO_USAGE } from "../../../src/agent/token-usage.ts";
import { sleep } from "../../../src/async/clock.ts";
import { createRowCaller } from "../../../src/fanout/run/row-resources.ts";
import { ManualClock } from "../../support/manual-clock.ts";

/** How an API limits its callers. */
export interface SimulatedLimit {
  perMinute: number;
  /** A bucket that fills evenly and saves up so many calls, or so many calls in each minute of its clock. */
  shape: { type: "bucket"; capacity: number } | { type: "minute" };
}

export interface SimulationOptions {
  /** Undefined: every call is answered. */
  limit?: SimulatedLimit | undefined;
  latencyMs: number;
  /** Information of the API about its limit: none, a Retry-After, or the remaining quota with every answer. */
  tells?: "nothing" | "retry-after" | "headers" | undefined;
  /** The share of calls that are refused for no reason. */
  strayShare?: number | undefined;
  workers?: number | undefined;
  /** Slots of each worker. */
  width: number;
  seconds: number;
  random: () => number;
}

export interface SimulationCounts {
  /** Calls that were answered within the time. */
  answered: number;
  refused: number;
  /** Number of calls that the limit allows in that time. */
  allowed: number;
}

/** Workers that send calls without end through the fan-out's caller and limiter, on a manual clock. */
export async function simulateRate(options: SimulationOptions): Promise<SimulationCounts> {
  const { limit, latencyMs, tells = "nothing", strayShare = 0, workers = 1, width, seconds, random } = options;
  const clock = new ManualClock(0);
  const gate = limit ? new SimulatedGate(limit, clock) : null;
  const counts = { answered: 0, refused: 0 };
  const api: ModelApi = {
    close: () => undefined,
    async send(_request, _signal, listener) {
      const isStray = random() < strayShare;
      if (isStray || (gate && !gate.take())) {
        // A refusal comes sooner than any answer.
        await sleep(clock, 5);
        counts.refused++;
        const retryAfterMs = isStray || !gate ? 5 : Math.ceil(gate.nextInMs());
        throw new ModelError("rate_limit", "429", tells === "nothing" ? {} : { retryAfterMs });
      }
      await sleep(clock, Math.min(latencyMs, 20));
      listener.onAccepted?.(tells === "headers" && gate ? gate.headers() : {});
      await sleep(clock, latencyMs * (0.75 + random() / 2));
      counts.answered++;
      listener.onEvent({ type: "completed", output: [], usage: NO_USAGE });
    },
  };
  const request = {
    model: "m",
    instructions: "",
    input: [],
    tools: [],
    parallelToolCalls: false,
    cacheKey: "",
  };
  const { signal } = new AbortController();
  for (let worker = 0; worker < workers; worker++) {
    const { callModel } = createRowCaller(api, { width }, { clock, random });
    const slot = async (): Promise<void> => {
      for (;;) await callModel(request, signal).catch(() => undefined);
    };
    for (let index = 0; index < width; index++) void slot();
  }
  await clock.advance(seconds * 1_000);
  return { ...counts, allowed: limit ? allowedIn(limit, seconds) : Number.POSITIVE_INFINITY };
}

function allowedIn({ perMinute, shape }: SimulatedLimit, seconds: number): number {
  if (shape.type === "minute") return perMinute * Math.ceil(seconds / 60);
  return shape.capacity + (perMinute * seconds) / 60;
}

class SimulatedGate {
  #limit: SimulatedLimit;
  #clock: ManualClock;
  #saved: number;
  #filledAtMs = 0;

  constructor(limit: SimulatedLimit, clock: ManualClock) {
    this.#limit = limit;
    this.#clock = clock;
    this.#saved = this.#capacity;
  }

  get #capacity(): number {
    const { shape, perMinute } = this.#limit;
    return shape.type === "bucket" ? shape.capacity : perMinute;
  }

  take(): boolean {
    this.#fill();
    if (this.#saved < 1) return false;
    this.#saved--;
    return true;
  }

  nextInMs(): number {
    this.#fill();
    if (this.#limit.shape.type === "minute") return 60_000 - (this.#clock.monotonic() % 60_000);
    return Math.max(0, 1 - this.#saved) * (60_000 / this.#limit.perMinute);
  }

  headers(): Record<string, string> {
    this.#fill();
    const fullInMs =
      this.#limit.shape.type === "minute"
        ? this.nextInMs()
        : (this.#capacity - this.#saved) * (60_000 / this.#limit.perMinute);
    return {
      "x-ratelimit-limit-requests": `${this.#capacity}`,
      "x-ratelimit-remaining-requests": `${Math.floor(this.#saved)}`,
      "x-ratelimit-reset-requests": `${Math.ceil(fullInMs)}ms`,
    };
  }

  #fill(): void {
    const now = this.#clock.monotonic();
    const { shape, perMinute } = this.#limit;
    if (shape.type === "minute") {
      if (Math.floor(now / 60_000) > Math.floor(this.#filledAtMs / 60_000)) this.#saved = perMinute;
    } else {
      this.#saved = Math.min(shape.capacity, this.#saved + ((now - this.#filledAtMs) * perMinute) / 60_000);
    }
    this.#filledAtMs = now;
  }
}

/** Numbers between 0 and 1 that look random and are the same for the same seed. */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
