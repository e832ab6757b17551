import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { selectCases } from "../../support/system/repetitions.ts";
import { type SimulationCounts, seededRandom, simulateRate } from "./rate-simulation.ts";

/** Slots that start at once: their first refusals cannot be avoided, because the limit is not known yet. */
const WIDTH = 64;
const SECONDS = 240;

function refusedShare({ answered, refused }: SimulationCounts): number {
  return refused / (refused + answered);
}

type Case = readonly [latencyMs: number, capacity: number, tells: "nothing" | "headers"];

const CASES: readonly Case[] = [50, 1_000, 3_000].flatMap((latencyMs) =>
  [10, 600].flatMap((capacity): Case[] => [
    [latencyMs, capacity, "nothing"],
    [latencyMs, capacity, "headers"],
  ]),
);
const FEW_CASES: readonly Case[] = [
  [50, 10, "nothing"],
  [1_000, 10, "headers"],
  [3_000, 600, "nothing"],
];

for (const [latencyMs, capacity, tells] of selectCases(CASES, FEW_CASES)) {
  test(`95% of an unannounced limit of 600 calls per minute are used with less than 5% rejected (${latencyMs} ms, capacity ${capacity}, headers: ${tells})`, async () => {
    const counts = await simulateRate({
      limit: { perMinute: 600, shape: { type: "bucket", capacity } },
      latencyMs,
      tells,
      width: WIDTH,
      seconds: SECONDS,
      random: seededRandom(1),
    });
    assert.ok(counts.answered >= 0.95 * counts.allowed, `${counts.answered} of ${counts.allowed}`);
    assert.ok(refusedShare(counts) < 0.05, `${counts.refused} refused, ${counts.answered} answered`);
  });
}

test("the rate of any token bucket is learned, for any capacity and any headers", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.record({
        perMinute: fc.integer({ min: 300, max: 1_200 }),
        savedSeconds: fc.double({ min: 0.6, max: 60, noNaN: true }),
        latencyMs: fc.integer({ min: 50, max: 1_000 }),
        tells: fc.constantFrom("nothing" as const, "retry-after" as const, "headers" as const),
        seed: fc.integer(),
      }),
      async ({ perMinute, savedSeconds, latencyMs, tells, seed }) => {
        const capacity = Math.max(10, Math.round((perMinute * savedSeconds) / 60));
        const counts = await simulateRate({
          limit: { perMinute, shape: { type: "bucket", capacity } },
          latencyMs,
          tells,
          width: WIDTH,
          seconds: SECONDS,
          random: seededRandom(seed),
        });
        assert.ok(counts.answered >= 0.9 * counts.allowed, `${counts.answered} of ${counts.allowed}`);
        const beyondFirst = counts.refused - WIDTH;
        assert.ok(beyondFirst < 0.05 * counts.answered, `${counts.refused} refused of ${counts.answered}`);
      },
    ),
    { numRuns: 5 },
  );
});

test("at least nine tenths of a token bucket without reserves are used", async () => {
  const counts = await simulateRate({
    limit: { perMinute: 600, shape: { type: "bucket", capacity: 1 } },
    latencyMs: 1_000,
    width: WIDTH,
    seconds: SECONDS,
    random: seededRandom(1),
  });
  assert.ok(counts.answered >= 0.9 * counts.allowed, `${counts.answered} of ${counts.allowed}`);
  assert.ok(refusedShare(counts) < 0.05, `${counts.refused} refused, ${counts.answered} answered`);
});

for (const tells of ["nothing", "retry-after"] as const) {
  test(`a per-minute limit is used completely (headers: ${tells})`, async () => {
    const counts = await simulateRate({
      limit: { perMinute: 600, shape: { type: "minute" } },
      latencyMs: 1_000,
      tells,
      width: WIDTH,
      seconds: SECONDS,
      random: seededRandom(1),
    });
    assert.ok(counts.answered >= 0.95 * counts.allowed, `${counts.answered} of ${counts.allowed}`);
    assert.ok(refusedShare(counts) < 0.05, `${counts.refused} refused, ${counts.answered} answered`);
  });
}

for (const strayShare of selectCases([0.05, 0.1, 0.2], [0.1])) {
  test(`${strayShare * 100}% of stray rejections cost hardly more than their own calls`, async () => {
    const options = { latencyMs: 1_000, width: WIDTH, seconds: 60 };
    const without = await simulateRate({ ...options, random: seededRandom(1) });
    let answered = 0;
    const seeds = [1, 2, 3];
    for (const seed of seeds) {
      answered += (await simulateRate({ ...options, strayShare, random: seededRandom(seed) })).answered;
    }
    assert.ok(answered >= 0.85 * seeds.length * without.answered, `${answered} of 3 x ${without.answered}`);
  });
}

test("95% of a limit are used although some rejections are strays", async () => {
  const counts = await simulateRate({
    limit: { perMinute: 600, shape: { type: "bucket", capacity: 100 } },
    latencyMs: 1_000,
    strayShare: 0.02,
    width: WIDTH,
    seconds: SECONDS,
    random: seededRandom(1),
  });
  assert.ok(counts.answered >= 0.95 * counts.allowed, `${counts.answered} of ${counts.allowed}`);
  assert.ok(refusedShare(counts) < 0.1, `${counts.refused} refused, ${counts.answered} answered`);
});

for (const workers of [2, 4]) {
  for (const capacity of [10, 600]) {
    test(`${workers} independent workers use a shared limit completely (${capacity} capacity)`, async () => {
      const counts = await simulateRate({
        limit: { perMinute: 600, shape: { type: "bucket", capacity } },
        latencyMs: 1_000,
        workers,
        width: WIDTH / workers,
        seconds: SECONDS,
        random: seededRandom(1),
      });
      assert.ok(counts.answered >= 0.95 * counts.allowed, `${counts.answered} of ${counts.allowed}`);
      // Each worker learns a share that the others change.
      assert.ok(refusedShare(counts) < 0.2, `${counts.refused} refused, ${counts.answered} answered`);
    });
  }
}
