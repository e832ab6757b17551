import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { NO_ADDON, type Started, startChild } from "./started.ts";

const KIB = 1024;
const LINES = 100;

const median = (numbers: number[]) => numbers.toSorted((a, b) => a - b)[numbers.length >> 1] ?? 0;

describe("streams of programs of which one floods", { skip: NO_ADDON }, () => {
  const running: Started[] = [];
  const killAfter = (started: Started) => void running.push(started);
  afterEach(async () => {
    for (const { child } of running) child.signalGroup(9);
    await Promise.all(running.splice(0).map(({ close }) => close));
  });

  test("let a dialogue proceed between short reads of the flood, and are read in long ones without it", async () => {
    let pieces: number[] = [];
    let enough = Promise.withResolvers<void>();
    const flood = await startChild(["cat", "/dev/zero"], {}, (_, chunk) => {
      pieces.push(chunk.length);
      if (pieces.length === 100) enough.resolve();
    });
    killAfter(flood);
    await enough.promise;
    // The first pieces are those of a pipe that has not grown yet.
    enough = Promise.withResolvers();
    pieces = [];
    await enough.promise;
    const alone = median(pieces);
    assert.ok(alone > 64 * KIB, `alone, half of its pieces have no more than ${alone} bytes`);

    let lines = 0;
    const done = Promise.withResolvers<void>();
    const dialogue = await startChild(["cat"], { pipeStdin: true }, () => {
      if (++lines === LINES) done.resolve();
      else dialogue.child.input.write(Buffer.from("next line\n"));
    });
    killAfter(dialogue);
    pieces = [];
    dialogue.child.input.write(Buffer.from("first line\n"));
    await done.promise;
    const between = median(pieces);
    assert.ok(between <= 64 * KIB, `between the lines, half of its pieces have ${between} bytes or more`);
    assert.ok(pieces.length > 0, "the flood stood still");
  });

  test("let floods take turns", async () => {
    const counts = [0, 0, 0, 0];
    const done = Promise.withResolvers<void>();
    const floods = await Promise.all(
      counts.map((_, at) =>
        startChild(["cat", "/dev/zero"], {}, (_stream, chunk) => {
          counts[at] = (counts[at] ?? 0) + chunk.length;
          if (counts.every((bytes) => bytes > 16 * KIB * KIB)) done.resolve();
        }),
      ),
    );
    floods.forEach(killAfter);
    await done.promise;
    const [least, most] = [Math.min(...counts), Math.max(...counts)];
    assert.ok(most < 8 * least, `one had ${most} bytes taken while another had ${least}`);
  });
});
