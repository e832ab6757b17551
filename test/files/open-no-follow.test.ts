import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, readlinkSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { describe, type TestContext, test } from "node:test";
import { scan } from "../../src/files/scan.ts";
import { setAttributes, writeAtomic } from "../../src/files/write-atomic.ts";
import { until } from "../support/system/until.ts";
import { NOT_A_DIRECTORY, NOT_FOUND, Scratch } from "./scratch.ts";

const putText = (scratch: Scratch, name: string, text = "text") =>
  writeAtomic({ path: scratch.uri(name), chunk: Buffer.from(text), followSymlinks: false });

/** Returns the descriptors of this process below the scratch directory. */
const openBelow = (scratch: Scratch) =>
  readdirSync("/proc/self/fd").filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).startsWith(scratch.root);
    } catch {
      return false;
    }
  });

function withDirectory(t: TestContext): Scratch {
  const scratch = new Scratch(t);
  scratch.directory("d/a");
  scratch.directory("outside");
  return scratch;
}

describe("requests with followSymlinks: false", { skip: process.platform !== "linux" }, () => {
  test("use a directory that was renamed and recreated right after the last request", async (t) => {
    const scratch = withDirectory(t);
    await putText(scratch, "d/a/one");
    renameSync(scratch.path("d/a"), scratch.path("d/b"));
    await assert.rejects(putText(scratch, "d/a/two"), NOT_FOUND);
    mkdirSync(scratch.path("d/a"));
    await putText(scratch, "d/a/two");
    assert.deepEqual(readdirSync(scratch.path("d/a")), ["two"]);
    assert.deepEqual(readdirSync(scratch.path("d/b")), ["one"]);
  });

  test("reject a link that replaces a directory right after the last request, even a link to that directory", async (t) => {
    const scratch = withDirectory(t);
    await putText(scratch, "d/a/one");
    renameSync(scratch.path("d/a"), scratch.path("outside/a"));
    symlinkSync(scratch.path("outside/a"), scratch.path("d/a"));
    await assert.rejects(putText(scratch, "d/a/two"), NOT_A_DIRECTORY);
    assert.deepEqual(readdirSync(scratch.path("outside/a")), ["one"]);
  });

  test("reject a link that replaces a parent directory", async (t) => {
    const scratch = withDirectory(t);
    await putText(scratch, "d/a/one");
    rmSync(scratch.path("d"), { recursive: true });
    scratch.directory("outside/a");
    symlinkSync(scratch.path("outside"), scratch.path("d"));
    await assert.rejects(putText(scratch, "d/a/two"), NOT_A_DIRECTORY);
    await assert.rejects(
      setAttributes({ path: scratch.uri("d/a"), mode: 0o700, followSymlinks: false }),
      NOT_A_DIRECTORY,
    );
    await assert.rejects(scan({ path: scratch.uri("d/a"), followSymlinks: false }), NOT_A_DIRECTORY);
    assert.deepEqual(readdirSync(scratch.path("outside/a")), []);
  });

  test("write thousands of files into many directories concurrently and close every descriptor afterwards", async (t) => {
    const scratch = withDirectory(t);
    const names = Array.from({ length: 2_000 }, (_, at) => `d/a/${at % 50}/${at}`);
    for (let at = 0; at < 50; at++) scratch.directory(`d/a/${at}`);
    await Promise.all(names.map((name) => putText(scratch, name, name)));
    for (const name of names) assert.equal(readFileSync(scratch.path(name), "utf8"), name);
    // Exceeds the maximum number of uses of one descriptor.
    for (let at = 0; at < 600; at++) await putText(scratch, "d/a/0/same");
    await until("no open descriptor", () => openBelow(scratch).length === 0);
  });
});
