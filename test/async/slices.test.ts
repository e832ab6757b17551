import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { mapInSlices } from "../../src/async/slices.ts";

describe("mapInSlices", () => {
  test("returns to the event loop after every 2048 items", async () => {
    const items = Array.from({ length: 10_000 }, (_, at) => at);
    let turn = 0;
    const countTurn = () => {
      turn++;
      counting = setImmediate(countTurn);
    };
    let counting = setImmediate(countTurn);
    const turns = await mapInSlices(items, () => turn);
    clearImmediate(counting);
    const perTurn = [...new Set(turns)].map((one) => turns.filter((other) => other === one).length);
    assert.deepEqual(perTurn, [2048, 2048, 2048, 2048, 1808]);
  });
});
