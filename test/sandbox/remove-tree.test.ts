import assert from "node:assert/strict";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, readdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setTimeout } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { removeTree } from "../../src/sandbox/remove-tree.ts";
import { scratchDirectory } from "../support/servers/serve.ts";

/** Replaces directories by a link to the target and back, until it is terminated. */
const SWAP_CODE = `
  const { renameSync, symlinkSync, unlinkSync } = require("node:fs");
  const { directories, target } = require("node:worker_threads").workerData;
  const attempt = (call, ...args) => { try { call(...args); } catch {} };
  for (;;) for (const directory of directories) {
    attempt(renameSync, directory, directory + ".aside");
    attempt(symlinkSync, target, directory);
    attempt(unlinkSync, directory);
    attempt(renameSync, directory + ".aside", directory);
  }
`;

describe("removeTree", () => {
  test("removes deep, unreadable and oddly named directories, and links but not their targets", async () => {
    using scratch = scratchDirectory();
    const tree = join(scratch.path, "tree");
    const target = join(scratch.path, "target");
    mkdirSync(target);
    writeFileSync(join(target, "file"), "");
    const deep = join(tree, ...Array.from({ length: 60 }, (_, level) => `level-${level}`));
    mkdirSync(deep, { recursive: true });
    writeFileSync(join(deep, "file"), "");
    symlinkSync(target, join(deep, "link"));
    writeFileSync(Buffer.concat([Buffer.from(`${tree}/`), Buffer.from([0x66, 0xff])]), "");
    mkdirSync(join(tree, "closed", "inner"), { recursive: true });
    for (const path of [join(tree, "closed", "inner"), join(tree, "closed"), tree]) chmodSync(path, 0);
    await removeTree(tree);
    assert.equal(existsSync(tree), false);
    assert.deepEqual(readdirSync(target), ["file"]);
  });

  test("deletes no file behind a link that replaces a directory meanwhile", async (t) => {
    using scratch = scratchDirectory();
    const target = join(scratch.path, "target");
    const names = Array.from({ length: 20 }, (_, at) => `file-${at}`).sort();
    const fill = (directory: string) => {
      mkdirSync(directory, { recursive: true });
      for (const name of names) writeFileSync(join(directory, name), "");
    };
    fill(target);
    for (let round = 0; round < 3; round++) {
      const tree = join(scratch.path, `tree-${round}`);
      const directories = names.map((name) => join(tree, name));
      directories.forEach(fill);
      const worker = new Worker(SWAP_CODE, { eval: true, workerData: { directories, target } });
      t.after(() => worker.terminate());
      await once(worker, "online");
      const removal = removeTree(tree);
      await setTimeout(100);
      await worker.terminate();
      await removal;
      assert.deepEqual(readdirSync(target).sort(), names);
    }
  });
});
