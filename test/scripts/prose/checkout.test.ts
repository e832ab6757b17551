import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { scanCheckout } from "../../../scripts/prose/checkout.ts";
import { RULES } from "../../../scripts/prose/rules.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";

/** A repository with one commit of `a.md` and `b.md`. */
function repository() {
  const scratch = scratchDirectory();
  const git = (...args: string[]) =>
    execFileSync("git", ["-C", scratch.path, "-c", "user.name=a", "-c", "user.email=a@example.com", ...args]);
  const write = (file: string, ...lines: string[]) => writeFileSync(join(scratch.path, file), `${lines.join("\n")}\n`);
  git("init", "--quiet", "--initial-branch=main");
  write("a.md", "A folder.", "", "Some text.");
  write("b.md", "A folder.");
  write(".gitignore", "ignored.md");
  write("ignored.md", "A folder.");
  git("add", ".");
  git("commit", "--quiet", "--message=first");
  return { path: scratch.path, git, write, [Symbol.dispose]: () => scratch[Symbol.dispose]() };
}

const places = (...scan: Parameters<typeof scanCheckout>) =>
  scanCheckout(...scan).findings.map(({ file, line, rule }) => `${file}:${line} ${rule}`);

test("the prose check scans tracked and untracked files, without ignored and deleted ones", () => {
  using checkout = repository();
  checkout.write("c.md", "A folder.");
  rmSync(join(checkout.path, "b.md"));
  assert.deepEqual(places(checkout.path), ["a.md:1 folder", "c.md:1 folder"]);
  const { files, words } = scanCheckout(checkout.path);
  assert.deepEqual({ files, words }, { files: 2, words: 6 });
});

test("the prose check scans lines added since a commit, committed or not", () => {
  using checkout = repository();
  checkout.git("checkout", "--quiet", "-b", "topic");
  checkout.write("a.md", "A folder.", "", "++ text", "", "A folder.", "", "People.");
  checkout.git("commit", "--quiet", "--all", "--message=second");
  checkout.write("b.md", "A folder.", "", "People.");
  checkout.write("c.md", "A folder.");
  assert.deepEqual(places(checkout.path, { changed: "main" }), [
    "a.md:5 folder",
    "a.md:7 person",
    "b.md:3 person",
    "c.md:1 folder",
  ]);
});

test("the prose check scans selected files and rules", () => {
  using checkout = repository();
  checkout.write("b.md", "A folder and people.");
  assert.deepEqual(places(checkout.path, { path: /^b/ }), ["b.md:1 person", "b.md:1 folder"]);
  const rules = RULES.filter(({ id }) => id === "person");
  assert.deepEqual(places(checkout.path, { rules }), ["b.md:1 person"]);
});
