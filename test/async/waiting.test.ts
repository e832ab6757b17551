import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { TimeoutError, withDeadline } from "../../src/async/deadline.ts";
import { KeyedQueue } from "../../src/async/keyed-queue.ts";
import { TaskSet } from "../../src/async/task-set.ts";
import { Watch } from "../../src/async/watch.ts";
import { ManualClock } from "../support/manual-clock.ts";

describe("a keyed queue", () => {
  test("runs tasks of one key in order, and tasks of different keys concurrently", async () => {
    const task = fc.record({
      key: fc.constantFrom("a", "b", "c"),
      fails: fc.boolean(),
      turns: fc.nat({ max: 4 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(task, { maxLength: 20 }), async (tasks) => {
        const queue = new KeyedQueue<string>();
        const started: Record<string, number[]> = { a: [], b: [], c: [] };
        const running = new Set<string>();
        const results = tasks.map(({ key, fails, turns }, index) =>
          queue.run(key, async () => {
            assert.ok(!running.has(key), "two tasks of one key at once");
            running.add(key);
            started[key]?.push(index);
            for (let turn = 0; turn < turns; turn++) await Promise.resolve();
            running.delete(key);
            if (fails) throw new Error(`${index}`);
            return index;
          }),
        );
        const settled = await Promise.allSettled(results);
        for (const [index, result] of settled.entries()) {
          assert.equal(result.status, tasks[index]?.fails ? "rejected" : "fulfilled");
        }
        for (const order of Object.values(started))
          assert.deepEqual(
            order,
            [...order].sort((x, y) => x - y),
          );
        await Promise.resolve();
        for (const key of ["a", "b", "c"]) assert.equal(queue.isBusy(key), false);
      }),
    );
  });

  test("starts a task in the same tick when its queue is empty", () => {
    let began = false;
    void new KeyedQueue<string>().run("a", async () => {
      began = true;
    });
    assert.equal(began, true);
  });
});

describe("a watch", () => {
  test("shows only the latest value to a late receiver", async () => {
    const watch = new Watch(0);
    const receiver = watch.subscribe();
    watch.set(1);
    watch.set(2);
    assert.equal(await receiver.changed(), 2);
    let again = false;
    void receiver.changed().then(() => {
      again = true;
    });
    await Promise.resolve();
    assert.equal(again, false);
    watch.set(3);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(again, true);
    assert.equal(receiver.current(), 3);
  });

  test("stops waiting when the signal aborts", async () => {
    const stop = new AbortController();
    const waiting = new Watch(0).subscribe().changed({ signal: stop.signal });
    stop.abort(new Error("enough"));
    await assert.rejects(waiting, /enough/);
  });
});

describe("a deadline", () => {
  test("names the awaited operation and the timeout", async () => {
    const clock = new ManualClock();
    const waiting = withDeadline(new Promise(() => undefined), 50, "the moon", clock);
    const failed = assert.rejects(waiting, (error: unknown) => {
      assert.ok(error instanceof TimeoutError);
      assert.equal(error.message, "timed out waiting for the moon after 50 ms");
      return true;
    });
    await clock.advance(50);
    await failed;
  });

  test("returns a result that arrives in time, and leaves no timer", async () => {
    const clock = new ManualClock();
    assert.equal(await withDeadline(Promise.resolve(7), 50, "seven", clock), 7);
    await assert.rejects(withDeadline(Promise.reject(new Error("own")), 50, "it", clock), /own/);
    assert.equal(clock.pendingTimers, 0);
  });
});

describe("a task set", () => {
  test("reports each failure and waits for all tasks, also those added meanwhile", async () => {
    const failures: unknown[] = [];
    const tasks = new TaskSet((error) => failures.push(error));
    let done = 0;
    tasks.run(async () => {
      await Promise.resolve();
      tasks.run(async () => {
        await Promise.resolve();
        done++;
      });
      throw new Error("one");
    });
    await tasks.settled();
    assert.equal(done, 1);
    assert.equal(failures.length, 1);
    assert.equal(tasks.size, 0);
  });
});
