import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ChunkStore } from "../../../src/exec/log/chunk-store.ts";

/** Chunk sizes, with a skipped sequence number for an exit. */
const pushes = fc.array(fc.record({ size: fc.integer({ min: 1, max: 9 }), skipped: fc.constantFrom(0, 0, 0, 1) }), {
  maxLength: 40,
});

test("knows the offset of every sequence number after any eviction", () => {
  fc.assert(
    fc.property(pushes, fc.nat(), fc.nat({ max: 60 }), fc.nat({ max: 30 }), (chunks, evictions, afterSeq, maxBytes) => {
      const store = new ChunkStore();
      const kept: { seq: number; size: number }[] = [];
      let seq = 0;
      for (const { size, skipped } of chunks) {
        seq += 1 + skipped;
        store.push({ seq, stream: "stdout", chunk: new Uint8Array(size).fill(seq) }, 0);
        kept.push({ seq, size });
      }
      const evicted = kept.splice(0, evictions % (kept.length + 1));
      for (const { size } of evicted) assert.equal(store.evictFirst(), size);

      const total = (all: { seq: number; size: number }[]) => all.reduce((bytes, { size }) => bytes + size, 0);
      assert.equal(store.count, kept.length);
      assert.equal(store.retainedBytes, total(kept));
      assert.equal(store.totalBytes, total(kept) + total(evicted));
      assert.equal(store.evictedThroughSeq, evicted.at(-1)?.seq ?? 0);
      assert.equal(store.first()?.seq, kept[0]?.seq);
      assert.equal(store.firstAfter(afterSeq)?.seq, kept.find((chunk) => chunk.seq > afterSeq)?.seq);
      assert.equal(store.offsetAt(afterSeq), total([...evicted, ...kept].filter((chunk) => chunk.seq <= afterSeq)));
      assert.equal(store.evictedBytesAfter(afterSeq), total(evicted.filter((chunk) => chunk.seq > afterSeq)));
      assert.deepEqual(
        store.after(afterSeq).map((chunk) => chunk.seq),
        kept.filter((chunk) => chunk.seq > afterSeq).map((chunk) => chunk.seq),
      );
      const some = store.after(afterSeq, maxBytes).map((chunk) => chunk.chunk.length);
      const bytes = some.reduce((sum, size) => sum + size, 0);
      assert.ok(some.length === 1 || bytes <= maxBytes || bytes === 0);
    }),
    { numRuns: 3000 },
  );
});

test("remembers the offsets of the last 16,384 evicted chunks only", () => {
  const store = new ChunkStore();
  const total = 100_000;
  for (let seq = 1; seq <= total; seq++) {
    store.push({ seq, stream: "stdout", chunk: new Uint8Array(2) }, 0);
    store.evictFirst();
  }
  assert.equal(store.evictedBytesAfter(0), 2 * total);
  for (const back of [1, 100, 16_384]) assert.equal(store.evictedBytesAfter(total - back), 2 * back);
  // The gap of an older cursor counts from the oldest remembered offset: too small rather than too large.
  const old = store.evictedBytesAfter(10);
  assert.ok(old >= 2 * 16_384 && old <= 2 * total);
});

test("frees all bytes on clear", () => {
  const store = new ChunkStore();
  store.push({ seq: 1, stream: "stdout", chunk: new Uint8Array(5) }, 0);
  store.push({ seq: 2, stream: "stdout", chunk: new Uint8Array(6) }, 0);
  store.evictFirst();
  assert.equal(store.clear(), 6);
  assert.equal(store.retainedBytes, 0);
  assert.deepEqual(store.after(0), []);
  assert.equal(store.clear(), 0);
});
