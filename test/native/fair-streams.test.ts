import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { NO_ADDON, type Started, startChild } from "./started.ts";

const KIB = 1024;
const LINES = 100;

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? 0;

describe("concurrent output streams", { skip: NO_ADDON }, () => {
  const running: Started[] = [];
  const killAfter = (started: Started) => void running.push(started);
  afterEach(async () => {
    for (const { child } of running) child.signalGroup(9);
    await Promise.all(running.splice(0).map(({ close }) => close));
  });

  test("shorten bulk reads while one of them is interactive", async () => {
    let chunks: number[] = [];
    let enough = Promise.withResolvers<void>();
    const bulk = await startChild(["cat", "/dev/zero"], {}, (_, chunk) => {
      chunks.push(chunk.length);
      if (chunks.length === 100) enough.resolve();
    });
    killAfter(bulk);
    await enough.promise;
    // The first chunks are those of a pipe that has not grown yet.
    enough = Promise.withResolvers();
    chunks = [];
    await enough.promise;
    const alone = median(chunks);
    assert.ok(alone > 64 * KIB, `alone, half of its chunks have no more than ${alone} bytes`);

    let lines = 0;
    const done = Promise.withResolvers<void>();
    const interactive = await startChild(["cat"], { pipeStdin: true }, () => {
      if (++lines === LINES) done.resolve();
      else interactive.child.input.write(Buffer.from("next line\n"));
    });
    killAfter(interactive);
    chunks = [];
    interactive.child.input.write(Buffer.from("first line\n"));
    await done.promise;
    const between = median(chunks);
    assert.ok(between <= 64 * KIB, `between the lines, half of its chunks have ${between} bytes or more`);
    assert.ok(chunks.length > 0, "bulk output stopped");
  });

  test("are read in rotation if all of them are bulk output", async () => {
    const counts = [0, 0, 0, 0];
    const done = Promise.withResolvers<void>();
    const bulk = await Promise.all(
      counts.map((_, at) =>
        startChild(["cat", "/dev/zero"], {}, (_stream, chunk) => {
          counts[at] = (counts[at] ?? 0) + chunk.length;
          if (counts.every((bytes) => bytes > 16 * KIB * KIB)) done.resolve();
        }),
      ),
    );
    bulk.forEach(killAfter);
    await done.promise;
    const [least, most] = [Math.min(...counts), Math.max(...counts)];
    assert.ok(most < 8 * least, `one had ${most} bytes taken while another had ${least}`);
  });
});
