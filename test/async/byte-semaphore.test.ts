import assert from "node:assert/strict";
import { test } from "node:test";
import { ByteSemaphore } from "../../src/async/byte-semaphore.ts";

const never = new AbortController().signal;

test("requests beyond the limit wait in order, and a request above the whole limit runs alone", async () => {
  const turns = new ByteSemaphore(100);
  const told: string[] = [];
  const take = async (name: string, bytes: number) => {
    const release = await turns.acquire(bytes, never);
    told.push(name);
    return release;
  };
  const first = await take("first", 60);
  const second = take("second", 60);
  const small = take("small", 10);
  const huge = take("huge", 500);
  await Promise.resolve();
  assert.deepEqual(told, ["first"]);
  assert.ok(turns.hasWaiters);
  first();
  (await second)();
  (await small)();
  const releaseHuge = await huge;
  assert.equal(turns.bytes, 500);
  releaseHuge();
  // Releasing twice frees no more than was taken.
  releaseHuge();
  assert.equal(turns.bytes, 0);
  assert.deepEqual(told, ["first", "second", "small", "huge"]);
  assert.equal(turns.hasWaiters, false);
});

test("an aborted waiter does not block others", async () => {
  const turns = new ByteSemaphore(100);
  const release = await turns.acquire(60, never);
  const leaving = new AbortController();
  const large = turns.acquire(90, leaving.signal);
  const small = turns.acquire(30, never);
  leaving.abort();
  await assert.rejects(large, { name: "AbortError" });
  (await small)();
  release();
  assert.equal(turns.bytes, 0);
  await assert.rejects(turns.acquire(1, AbortSignal.abort()), { name: "AbortError" });
});
