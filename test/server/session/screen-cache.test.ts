import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { MemoryBudget } from "../../../src/async/memory-budget.ts";
import { ScreenCache } from "../../../src/server/session/screen-cache.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { FakeProcess } from "../../support/servers/fake-host.ts";

const MAX_RENDERERS = 32;
const GIB = 1024 ** 3;

function createProcess(processId: string, tty = true): FakeProcess {
  const process = new FakeProcess({ processId, argv: ["x"], cwd: "/", env: {}, tty }, new ManualClock(), {});
  if (tty) process.log.append("pty", Buffer.from(processId));
  return process;
}

describe("ScreenCache", () => {
  test("charges each renderer to the memory budget, and frees it when its process closes", async () => {
    const memory = new MemoryBudget(GIB);
    const cache = new ScreenCache(memory);
    assert.equal(await cache.render(createProcess("pipes", false)), null);
    assert.equal(memory.bytes, 0);
    const process = createProcess("a");
    assert.equal((await cache.render(process))?.seq, 1);
    const charged = memory.bytes;
    assert.ok(charged > 0);
    await cache.render(process);
    assert.equal(memory.bytes, charged, "the renderer is kept");
    process.finish();
    assert.equal(memory.bytes, 0);
  });

  test("frees the renderer of a process that closes before, while or after it is rendered once", async () => {
    const memory = new MemoryBudget(GIB);
    const cache = new ScreenCache(memory);
    const open = createProcess("open");
    await cache.render(open);
    open.finish();
    assert.equal(memory.bytes, 0);
    const closed = createProcess("closed");
    closed.finish();
    const screen = await cache.render(closed);
    assert.match(Buffer.from(screen?.data ?? "").toString(), /closed/);
    assert.equal(memory.bytes, 0);
    const closing = createProcess("closing");
    const rendered = cache.render(closing);
    // The cache renders one process at a time, so this rendering begins after the one above.
    await Promise.resolve();
    closing.finish();
    await rendered;
    assert.equal(memory.bytes, 0);
  });

  test("keeps the 32 renderers that were used last", async () => {
    const memory = new MemoryBudget(GIB);
    const cache = new ScreenCache(memory);
    const processes = Array.from({ length: MAX_RENDERERS }, (_, index) => createProcess(`p${index}`));
    for (const process of processes) {
      const before = memory.bytes;
      await cache.render(process);
      assert.ok(memory.bytes > before);
    }
    const full = memory.bytes;
    const [first, second] = processes;
    assert.ok(first && second);
    await cache.render(first);
    const last = createProcess("last");
    await cache.render(last);
    assert.equal(memory.bytes, full, "one renderer replaces another one");
    second.finish();
    assert.equal(memory.bytes, full, "the least recently used renderer was freed");
    first.finish();
    assert.ok(memory.bytes < full);
  });

  test("frees renderers while the memory budget is exhausted, the least recently used first", async () => {
    const memory = new MemoryBudget(GIB);
    const cache = new ScreenCache(memory);
    const [older, newer] = [createProcess("older"), createProcess("newer")];
    await cache.render(older);
    const one = memory.bytes;
    await cache.render(newer);
    memory.charge(GIB - memory.bytes);
    memory.charge(1);
    const freed = GIB + 1 - memory.bytes;
    assert.ok(freed >= one, `${freed} bytes were freed`);
    const left = memory.bytes;
    older.finish();
    assert.equal(memory.bytes, left, "its renderer was freed before");
  });

  test("frees no more renderers than a new one needs, and renders their processes again", async () => {
    const whole = new MemoryBudget(GIB);
    await new ScreenCache(whole).render(createProcess("a"));
    const one = whole.bytes;
    // The third renderer exceeds the budget by a half. Freeing one leaves exactly seven eighths of the budget.
    const memory = new MemoryBudget(4 * one);
    memory.charge(1.5 * one);
    const cache = new ScreenCache(memory);
    const processes = ["a", "b", "c"].map((processId) => createProcess(processId));
    for (const process of processes) await cache.render(process);
    assert.equal(memory.bytes, 3.5 * one);
    const [first] = processes;
    assert.ok(first);
    const screen = await cache.render(first);
    assert.match(Buffer.from(screen?.data ?? "").toString(), /a/);
    assert.equal(memory.bytes, 3.5 * one);
  });
});
