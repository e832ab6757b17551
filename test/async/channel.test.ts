import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { Channel } from "../../src/async/channel.ts";

async function take<T extends {}>(channel: Channel<T>): Promise<T[]> {
  const taken: T[] = [];
  for await (const item of channel) taken.push(item);
  return taken;
}

test("a channel delivers everything in order, however reads and writes interleave", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.array(fc.integer())), fc.array(fc.nat(3)), async (bursts, pauses) => {
      const channel = new Channel<number>();
      const taken: number[] = [];
      const reading = (async () => {
        for await (const item of channel) {
          taken.push(item);
          for (let turn = pauses[taken.length] ?? 0; turn > 0; turn--) await Promise.resolve();
        }
      })();
      for (const burst of bursts) {
        for (const item of burst) channel.push(item);
        await Promise.resolve();
      }
      channel.end();
      await reading;
      assert.deepEqual(taken, bursts.flat());
    }),
  );
});

test("a channel above its capacity retains the items that onOverflow leaves, and counts them correctly", async () => {
  let sheds = 0;
  const channel = new Channel<number>({
    cost: (item) => item,
    capacity: 10,
    onOverflow: (queue) => {
      sheds++;
      return queue.splice(0, queue.length - 1).reduce((sum, item) => sum + item, 0);
    },
  });
  for (const item of [4, 4, 4, 4]) channel.push(item);
  assert.equal(sheds, 1);
  channel.push(4);
  assert.equal(sheds, 2);
  channel.end();
  assert.deepEqual(await take(channel), [4]);
});

test("an aborted wait loses no item", async () => {
  const channel = new Channel<string>();
  const giveUp = new AbortController();
  const waiting = channel.next(giveUp.signal);
  giveUp.abort(new Error("no longer wanted"));
  await assert.rejects(waiting, /no longer wanted/);
  channel.push("kept");
  assert.deepEqual(await channel.next(), { done: false, value: "kept" });
});

test("a reader that stops early ends the channel, and onReturn is called once", async () => {
  let returned = 0;
  const channel = new Channel<number>({ onReturn: () => returned++ });
  channel.push(1);
  channel.push(2);
  for await (const item of channel) {
    assert.equal(item, 1);
    break;
  }
  await channel.return();
  channel.push(3);
  assert.equal(returned, 1);
  assert.deepEqual(await take(channel), []);
});
