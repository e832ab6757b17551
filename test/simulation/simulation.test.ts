import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FAILED_SEEDS } from "./failed-seeds.ts";
import { simulate } from "./simulation.ts";

/** Number of seeds in `npm test`, enough to test the simulator itself. `npm run simulate` runs thousands. */
const SEEDS = 100;

describe("a simulation from a seed", () => {
  test(`violates no invariant in ${SEEDS} runs`, async () => {
    const total = { connections: 0, faults: 0, processes: 0, bytes: 0 };
    for (let seed = 1; seed <= SEEDS; seed++) {
      const { counts } = await pass(seed);
      for (const key of ["connections", "faults", "processes", "bytes"] as const) total[key] += counts[key];
    }
    // Without enough connections, faults and processes the runs would prove nothing.
    assert.ok(total.connections > 2 * SEEDS && total.faults > 5 * SEEDS, JSON.stringify(total));
    assert.ok(total.processes > SEEDS && total.bytes > 1000 * SEEDS, JSON.stringify(total));
  });

  test("produces the same trace when it is run again", async () => {
    for (const seed of [1, 2, 3, 12, 244]) {
      const [first, second] = [await simulate(seed), await simulate(seed)];
      assert.equal(second.digest, first.digest, `seed ${seed}`);
    }
    assert.notEqual((await simulate(1)).digest, (await simulate(2)).digest);
  });

  for (const { seed, was } of FAILED_SEEDS) {
    test(`does not fail again with seed ${seed}: ${was}`, async () => {
      await pass(seed);
    });
  }
});

async function pass(seed: number): ReturnType<typeof simulate> {
  const outcome = await simulate(seed);
  assert.deepEqual(outcome.faults, [], `seed ${seed}\n${outcome.trace.join("\n")}`);
  return outcome;
}
