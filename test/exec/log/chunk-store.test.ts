import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Gap } from "../../../src/exec/exec-process.ts";
import { CHUNK_ENTRY_BYTES, ChunkStore, UNCOUNTED_ENTRY_BYTES } from "../../../src/exec/log/chunk-store.ts";
import { Random } from "../../simulation/random.ts";

/** Chunk sizes, with a skipped sequence number for an exit. */
const pushes = fc.array(fc.record({ size: fc.integer({ min: 1, max: 9 }), skipped: fc.constantFrom(0, 0, 0, 1) }), {
  maxLength: 40,
});

test("ChunkStore knows the offset of every sequence number after any eviction", () => {
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
      for (const { size } of evicted) assert.equal(evictedSize(store), size);

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

test("ChunkStore remembers the offsets of the last 2,048 to 4,096 evicted chunks", () => {
  const remembered = 2048;
  const store = new ChunkStore();
  let total = 0;
  const evictThrough = (seq: number) => {
    while (total < seq) {
      store.push({ seq: ++total, stream: "stdout", chunk: new Uint8Array(2) }, 0);
      store.evictFirst();
    }
  };
  /** Compares the chunks that a gap counts for some positions with the distance to the end, up to `oldest`. */
  const check = (oldest: number) => {
    assert.equal(store.evictedBytesAfter(0), 2 * total);
    for (const back of [0, 1, 100, oldest - 1, oldest, oldest + 1, total - 1]) {
      // The gap of an older cursor counts from the oldest remembered offset: too small rather than too large.
      assert.equal(
        store.evictedBytesAfter(total - back),
        2 * Math.min(back, oldest),
        `${back} of ${total} chunks back`,
      );
      assert.equal(store.offsetAt(total - back), 2 * (total - Math.min(back, oldest)));
    }
  };
  evictThrough(2 * remembered);
  check(total);
  evictThrough(2 * remembered + 1);
  check(remembered);
  evictThrough(3 * remembered + 1);
  check(2 * remembered);
  evictThrough(3 * remembered + 2);
  check(remembered);
});

test("ChunkStore has the same chunks, times, offsets and gaps as a list after thousands of evictions", () => {
  const random = new Random(1);
  const store = new ChunkStore();
  const all: { seq: number; size: number; bytes: number; gap: Gap | null }[] = [];
  let [seq, evicted] = [0, 0];
  const total = (from: number, to: number) => all.slice(from, to).reduce((sum, { bytes }) => sum + bytes, 0);
  const check = (after: number) => {
    const kept = all.slice(evicted);
    const index = all.findIndex((entry) => entry.seq > after);
    const before = index < 0 ? all.length : index;
    const expected = all.slice(Math.max(before, evicted));
    assert.deepEqual([store.count, store.first()?.seq], [kept.length, kept[0]?.seq]);
    assert.equal(
      store.retainedBytes,
      kept.reduce((sum, { size }) => sum + size, 0),
    );
    assert.equal(store.evictedThroughSeq, all[evicted - 1]?.seq ?? 0);
    assert.equal(store.firstAfter(after)?.seq, expected[0]?.seq);
    assert.equal(store.offsetAt(after), total(0, before));
    assert.equal(store.evictedBytesAfter(after), total(before, evicted));
    const found = store.after(after);
    assert.deepEqual(
      found.map((chunk) => [chunk.seq, chunk.chunk.length, store.gapAt(chunk)]),
      expected.map((entry) => [entry.seq, entry.size, entry.gap]),
    );
    for (const chunk of found) assert.equal(store.timeOf(chunk.seq), chunk.seq * 10);
    const pageBytes = random.int(0, 40);
    const page = store.after(after, pageBytes);
    assert.deepEqual(page, found.slice(0, page.length));
    const [pageSize, next] = [page.reduce((sum, { chunk }) => sum + chunk.length, 0), found[page.length]];
    assert.ok(pageSize <= pageBytes || page.filter(({ chunk }) => chunk.length > 0).length === 1);
    assert.ok(!next || pageSize + next.chunk.length > pageBytes, "the page is full");
  };
  for (let step = 0; step < 4000; step++) {
    seq += random.int(1, 2);
    const size = random.int(1, 9);
    if (random.chance(0.1)) {
      const gap = { fromSeq: seq, toSeq: seq + random.int(0, 3), bytes: size };
      seq = gap.toSeq;
      store.pushGap(gap, seq * 10);
      all.push({ seq, size: 0, bytes: size, gap });
    } else {
      store.push({ seq, stream: "stdout", chunk: new Uint8Array(size) }, seq * 10);
      all.push({ seq, size, bytes: size, gap: null });
    }
    while (all.length - evicted > 30 || (evicted < all.length && random.chance(0.4))) {
      assert.equal(evictedSize(store), all[evicted]?.size);
      evicted++;
    }
    if (step % 20 === 0 || (step > 1000 && step < 1100)) check(random.int(Math.max(0, seq - 100), seq + 2));
  }
  assert.ok(evicted > 3000);
});

test("ChunkStore does not know the size of evicted output with a gap of unknown size", () => {
  const store = new ChunkStore();
  store.push({ seq: 1, stream: "stdout", chunk: new Uint8Array(5) }, 0);
  store.pushGap({ fromSeq: 2, toSeq: 4, bytes: null }, 0);
  store.push({ seq: 5, stream: "stdout", chunk: new Uint8Array(7) }, 0);
  for (let count = 0; count < 3; count++) store.evictFirst();
  assert.deepEqual([evictedSize(store), store.totalBytes], [0, 12]);
  const sizes = (toSeq: number) => [0, 1, 3, 4].map((seq) => store.evictedBytesThrough(seq, toSeq));
  assert.deepEqual(sizes(5), [null, null, null, 7]);
  assert.deepEqual(sizes(4).slice(0, 3), [null, null, null]);
  assert.equal(store.evictedBytesThrough(0, 3), 5);
});

test("ChunkStore frees all bytes on clear", () => {
  const store = new ChunkStore();
  store.push({ seq: 1, stream: "stdout", chunk: new Uint8Array(5) }, 0);
  store.push({ seq: 2, stream: "stdout", chunk: new Uint8Array(6) }, 0);
  store.evictFirst();
  assert.equal(store.retainedBytes, 6);
  assert.deepEqual(store.clear(), []);
  assert.equal(store.retainedBytes, 0);
  assert.deepEqual(store.after(0), []);
  assert.deepEqual(store.clear(), []);
  assert.deepEqual([store.totalBytes, store.offsetAt(0), store.offsetAt(2)], [11, 0, 11]);
  const unevicted = new ChunkStore();
  unevicted.push({ seq: 1, stream: "stdout", chunk: new Uint8Array(5) }, 0);
  unevicted.clear();
  assert.deepEqual([unevicted.offsetAt(0), unevicted.offsetAt(1)], [0, 5]);
});

test("ChunkStore returns the memory of evicted chunks unless a reader may use it", () => {
  const store = new ChunkStore();
  const chunks = Array.from({ length: 6 }, () => new Uint8Array(8192));
  chunks.forEach((chunk, index) => void store.push({ seq: index + 1, stream: "stdout", chunk }, 0));
  assert.equal(store.firstAfter(0, true)?.chunk, chunks[0]);
  assert.equal(store.evictFirst(), chunks[0]);
  assert.equal(store.firstAfter(1)?.chunk, chunks[1]);
  assert.equal(store.evictFirst(), null);
  assert.equal(store.evictFirst(), chunks[2]);
  assert.equal(store.after(3, 8192).length, 1);
  assert.equal(store.evictFirst(), null);
  assert.deepEqual(store.clear(), chunks.slice(4));
});

test("ChunkStore packs chunks below 4 KiB into blocks that grow from 512 bytes to 16 KiB", () => {
  const blocks = new Set<Uint8Array>();
  // The store gives a block the class of its first chunk.
  class Chunk extends Uint8Array {
    override set(bytes: ArrayLike<number>, offset?: number): void {
      blocks.add(this);
      super.set(bytes, offset);
    }
  }
  const store = new ChunkStore();
  for (let seq = 1; seq <= 500; seq++) store.push({ seq, stream: "stdout", chunk: new Chunk(128) }, 0);
  for (let seq = 501; seq <= 503; seq++) store.push({ seq, stream: "stdout", chunk: new Chunk(4096) }, 0);
  const sizes = [...blocks].map((block) => block.length);
  assert.deepEqual(sizes, [512, 1024, 2048, 4096, 8192, 16_384, 16_384, 16_384]);
});

test("ChunkStore copies packed chunks for each reader, and counts the memory of their entries", () => {
  const store = new ChunkStore();
  const buffers = new Set<unknown>();
  for (let seq = 1; seq <= 10_000; seq++) store.push({ seq, stream: "stdout", chunk: Uint8Array.of(seq) }, 0);
  for (const { chunk } of store.after(0)) buffers.add(chunk.buffer);
  // A view would hold a whole block.
  assert.equal(buffers.size, 10_000);
  assert.equal(store.memoryBytes, 10_000 * (1 + CHUNK_ENTRY_BYTES) - UNCOUNTED_ENTRY_BYTES);
});

/** Drops the oldest chunk and returns its size. */
function evictedSize(store: ChunkStore): number {
  const before = store.retainedBytes;
  store.evictFirst();
  return before - store.retainedBytes;
}
