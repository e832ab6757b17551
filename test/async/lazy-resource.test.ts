import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LazyResource } from "../../src/async/lazy-resource.ts";

describe("LazyResource", () => {
  test("opens the resource once for concurrent uses", async () => {
    let opened = 0;
    const resource = new LazyResource(async () => ++opened);
    assert.deepEqual(await Promise.all([resource.get(), resource.get()]), [1, 1]);
    assert.equal(await resource.get(), 1);
  });

  test("opens the resource again after a failed opening", async () => {
    const openings = [() => Promise.reject(new Error("no descriptor is free")), async () => "open"];
    const resource = new LazyResource(() => (openings.shift() ?? assert.fail())());
    await assert.rejects(resource.get(), { message: "no descriptor is free" });
    assert.equal(await resource.get(), "open");
  });

  test("closes only a resource that was opened", async () => {
    const closed: string[] = [];
    const unused = new LazyResource(async () => "unused");
    await unused.close((name) => closed.push(name));
    const failing = new LazyResource(() => Promise.reject<string>(new Error("failed")));
    const opening = failing.get();
    await failing.close((name) => closed.push(name));
    await assert.rejects(opening);
    const used = new LazyResource(async () => "used");
    void used.get();
    await used.close((name) => closed.push(name));
    assert.deepEqual(closed, ["used"]);
  });
});
