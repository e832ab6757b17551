import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ModelError } from "../../../src/agent/api/model-error.ts";
import type { RequestPermit } from "../../../src/agent/api/request-gate.ts";
import { NO_USAGE } from "../../../src/agent/token-usage.ts";
import { sleep } from "../../../src/async/clock.ts";
import { parseDuration } from "../../../src/fanout/run/rate-headers.ts";
import { type LimiterOptions, RateLimiter } from "../../../src/fanout/run/rate-limiter.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const answered = { type: "answered", usage: { ...NO_USAGE, inputTokens: 50, outputTokens: 50 } } as const;
const refused = (retryAfterMs?: number) =>
  ({
    type: "failed",
    error: new ModelError("rate_limit", "429", retryAfterMs === undefined ? {} : { retryAfterMs }),
  }) as const;

const overloaded = (retryAfterMs?: number) =>
  ({
    type: "failed",
    error: new ModelError("overloaded", "503", retryAfterMs === undefined ? {} : { retryAfterMs }),
  }) as const;

/** A limiter and the permits it has given, in order. */
function setup(options: Omit<LimiterOptions, "clock">, estimate = 0) {
  const clock = new ManualClock(0);
  const limiter = new RateLimiter({ ...options, clock });
  const permits: RequestPermit[] = [];
  const startedAtMs: number[] = [];
  const enter = (count: number, signal = new AbortController().signal) => {
    for (let index = 0; index < count; index++) {
      limiter
        .enter(() => estimate, signal)
        .then(
          (permit) => {
            permits.push(permit);
            startedAtMs.push(clock.now());
          },
          () => undefined,
        );
    }
    return clock.advance(0);
  };
  return { clock, limiter, permits, startedAtMs, enter };
}

test("all slots are full from the start", async () => {
  const { limiter, permits, enter } = setup({ width: 64 });
  await enter(100);
  assert.equal(permits.length, 64);
  assert.equal(limiter.inFlight, 64);
});

test("a released permit admits the next call; a second release has no effect", async () => {
  const { clock, limiter, permits, enter } = setup({ width: 1 });
  await enter(3);
  permits[0]?.release(answered);
  permits[0]?.release(answered);
  await clock.advance(0);
  assert.equal(permits.length, 2);
  assert.equal(limiter.inFlight, 1);
});

test("errors other than rejections do not reduce concurrency", async () => {
  const { limiter, permits, enter } = setup({ width: 8 });
  await enter(8);
  for (const permit of permits) permit.release({ type: "failed", error: new ModelError("server", "500") });
  assert.equal(limiter.concurrency, 8);
});

test("a rejection pauses every slot for as long as the API requests", async () => {
  const { clock, permits, enter } = setup({ width: 4 });
  await enter(4);
  permits[0]?.release(refused(2_000));
  permits[1]?.release(answered);
  await enter(2);
  await clock.advance(1_999);
  assert.equal(permits.length, 4);
  permits[2]?.release(answered);
  permits[3]?.release(answered);
  await clock.advance(1);
  assert.ok(permits.length > 4);
});

test("each wave of overload rejections halves concurrency once, never below one", async () => {
  const { clock, limiter, permits, enter } = setup({ width: 16 });
  await enter(16);
  for (const permit of permits.splice(0)) permit.release(overloaded(10));
  assert.equal(limiter.concurrency, 8);
  for (const width of [4, 2, 1, 1]) {
    await enter(1);
    await clock.advance(10);
    permits.shift()?.release(overloaded(10));
    assert.equal(limiter.concurrency, width);
  }
});

test("concurrency grows by one for every round of answers, up to its maximum", async () => {
  const { clock, limiter, permits, enter } = setup({ width: 4 });
  await enter(4);
  for (const permit of permits.splice(0)) permit.release(overloaded(10));
  await clock.advance(10);
  for (let answers = 0; answers < 30; answers++) {
    await enter(1);
    permits.shift()?.release(answered);
  }
  assert.equal(limiter.concurrency, 4);
});

test("the pause after rejections without a delay grows, and is reset by an answer", async () => {
  const { clock, limiter, permits, enter } = setup({ width: 1 });
  const holds: number[] = [];
  for (let wave = 0; wave < 3; wave++) {
    await enter(1);
    permits.shift()?.release(overloaded());
    holds.push(limiter.pausedUntilMs - clock.now());
    await clock.advance(holds.at(-1) ?? 0);
  }
  assert.deepEqual(holds, [500, 1000, 2000]);
  await enter(1);
  permits.shift()?.release(answered);
  await enter(1);
  permits.shift()?.release(overloaded());
  assert.equal(limiter.pausedUntilMs - clock.now(), 500);
});

test("a stray rejection delays no other call", async () => {
  const { limiter, permits, enter, clock } = setup({ width: 8 });
  await enter(8);
  permits[0]?.release(refused());
  await enter(1);
  assert.equal(permits.length, 9);
  assert.equal(limiter.concurrency, 8);
  assert.ok(limiter.pausedUntilMs <= clock.monotonic());
});

test("after a wave of rejections, single calls with growing delays are sent until one is accepted", async () => {
  const { clock, limiter, permits, enter } = setup({ width: 32 });
  await enter(16);
  for (const permit of permits.splice(0)) permit.release(refused());
  await enter(32);
  const holds: number[] = [];
  for (let probe = 0; probe < 3; probe++) {
    const held = limiter.pausedUntilMs - clock.monotonic();
    holds.push(held);
    await clock.advance(held - 1);
    assert.equal(permits.length, 0);
    await clock.advance(1);
    assert.equal(permits.length, 1);
    permits.shift()?.release(refused());
  }
  assert.deepEqual(holds, [500, 1_000, 2_000]);
  await clock.advance(4_000);
  permits[0]?.onAccepted({});
  await clock.advance(1_000);
  assert.ok(permits.length > 1);
});

test("a header with an exhausted limit pauses requests until its reset", async () => {
  const { clock, permits, enter } = setup({ width: 2 });
  await enter(1);
  permits[0]?.onAccepted({ "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1.5s" });
  await enter(1);
  assert.equal(permits.length, 1);
  await clock.advance(1_499);
  assert.equal(permits.length, 1);
  await clock.advance(1);
  assert.equal(permits.length, 2);
  permits[1]?.onAccepted({ "x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "9s" });
  permits[0]?.release(answered);
  await enter(1);
  assert.equal(permits.length, 3);
});

/** By floating-point rounding, thirty-three parts of sixty seconds add up to slightly less than sixty seconds. */
const ROUNDING_MS = 0.001;

test("no interval of a minute has more requests than --rpm", async () => {
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 200 }), fc.integer({ min: 1, max: 50 }), async (rpm, width) => {
      const { clock, permits, startedAtMs, enter } = setup({ width, requestsPerMinute: rpm });
      await enter(300);
      for (let step = 0; step < 40; step++) {
        await clock.advance(5_000);
        for (const permit of permits.splice(0)) permit.release(answered);
      }
      for (const [index, start] of startedAtMs.entries()) {
        const end = startedAtMs.findIndex((at, later) => later >= index && at >= start + 60_000 - ROUNDING_MS);
        const inMinute = (end === -1 ? startedAtMs.length : end) - index;
        assert.ok(inMinute <= rpm, `${inMinute} in a minute at ${rpm}`);
      }
    }),
    { numRuns: 20 },
  );
});

test("a header with the bucket size pauses requests for one call's share of the reset", async () => {
  const { clock, permits, enter } = setup({ width: 2 });
  await enter(1);
  permits[0]?.onAccepted({
    "x-ratelimit-limit-requests": "600",
    "x-ratelimit-remaining-requests": "0",
    "x-ratelimit-reset-requests": "1m0s",
  });
  await enter(1);
  await clock.advance(99);
  assert.equal(permits.length, 1);
  await clock.advance(1);
  assert.equal(permits.length, 2);
});

test("tokens are paced by the estimate and corrected by the actual usage", async () => {
  // 600 a minute is 10 a second; each call sends 20, and 200 of output are assumed until the first answer.
  const { clock, permits, enter } = setup({ width: 10, tokensPerMinute: 600 }, 20);
  await enter(4);
  assert.equal(permits.length, 1);
  // It used 100: the next one waits for those 10 s, not for 22.
  permits[0]?.release(answered);
  await clock.advance(9_999);
  assert.equal(permits.length, 1);
  await clock.advance(1);
  assert.equal(permits.length, 2);
  // The 50 output tokens of the first are expected of the second one too: 70, so 7 s.
  await clock.advance(6_999);
  assert.equal(permits.length, 2);
  await clock.advance(1);
  assert.equal(permits.length, 3);
});

test("a call that is aborted while it waits admits the next one", async () => {
  const { clock, permits, enter } = setup({ width: 1 });
  await enter(1);
  const controller = new AbortController();
  await enter(1, controller.signal);
  await enter(1);
  controller.abort(new Error("enough"));
  permits[0]?.release({ type: "abandoned" });
  await clock.advance(0);
  assert.equal(permits.length, 2);
});

test("durations are parsed in every format of the rate-limit headers", () => {
  assert.equal(parseDuration("120ms"), 120);
  assert.equal(parseDuration("1.5s"), 1_500);
  assert.equal(parseDuration("6m0s"), 360_000);
  assert.equal(parseDuration("1h2m3s"), 3_723_000);
  assert.equal(parseDuration("12"), 12_000);
  assert.equal(parseDuration("soon"), undefined);
  assert.equal(parseDuration(""), undefined);
});

test("a clock that is set back or forward changes neither rate nor pause", async () => {
  const { clock, permits, enter } = setup({ width: 10, requestsPerMinute: 60 });
  await enter(4);
  assert.equal(permits.length, 1);
  clock.setForward(-3_600_000);
  await clock.advance(1_000);
  assert.equal(permits.length, 2);
  clock.setForward(7_200_000);
  await clock.advance(999);
  assert.equal(permits.length, 2);
  await clock.advance(1);
  assert.equal(permits.length, 3);
});

test("a raised limit is noticed: the rate grows while nothing is rejected", async () => {
  const { clock, limiter } = setup({ width: 64 });
  const signal = new AbortController().signal;
  let isLimited = true;
  let lastMs = Number.NEGATIVE_INFINITY;
  let count = 0;
  const slot = async (): Promise<void> => {
    for (;;) {
      const permit = await limiter.enter(() => 0, signal);
      const isRefused = isLimited && clock.now() - lastMs < 100;
      if (!isRefused) lastMs = clock.now();
      await sleep(clock, 10);
      if (!isRefused) count++;
      permit.release(isRefused ? refused() : answered);
    }
  };
  for (let index = 0; index < 64; index++) void slot();
  await clock.advance(60_000);
  isLimited = false;
  await clock.advance(120_000);
  count = 0;
  await clock.advance(1_000);
  assert.ok(count > 100, `${count} in a second, where there were ten`);
});
