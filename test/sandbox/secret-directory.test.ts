/** The check of directories with secrets. */
import assert from "node:assert/strict";
import { chmodSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { findExposedSecrets } from "../../src/sandbox/secret-directory.ts";
import { scratchDirectory } from "../support/servers/serve.ts";

/** Makes directories with empty files, and returns a function that returns a path in them. */
function lay(root: string, files: Record<string, string[]>): (path: string) => string {
  for (const [directory, names] of Object.entries(files)) {
    mkdirSync(join(root, directory), { recursive: true, mode: 0o755 });
    for (const name of names) writeFileSync(join(root, directory, name), "");
  }
  return (path) => join(root, path);
}

const exposures = (paths: string[], own: string[] = [], directories: string[] = []) =>
  findExposedSecrets(paths, [...paths, ...own], directories).map(({ exposure }) => exposure);

test("a rotated audit log, a backup and a replacement that is being written are not foreign", () => {
  using scratch = scratchDirectory();
  const at = lay(scratch.path, { logs: ["audit.jsonl", "audit.jsonl.1", "audit.jsonl-20260101", ".audit.jsonl.swp"] });
  assert.deepEqual(exposures([at("logs/audit.jsonl")]), []);
});

test("the directories of certbot count as directories of secrets, also behind the links", () => {
  using scratch = scratchDirectory();
  const names = ["cert", "chain", "fullchain", "privkey"];
  const at = lay(scratch.path, { live: ["README"], archive: names.map((name) => `${name}1.pem`) });
  for (const name of names) symlinkSync(`../archive/${name}1.pem`, at(`live/${name}.pem`));
  assert.deepEqual(exposures([at("live/privkey.pem")], [at("live/fullchain.pem")]), []);
  writeFileSync(at("archive/notes"), "");
  assert.match(exposures([at("live/privkey.pem")])[0] ?? "", /archive` also contains `notes`/);
});

test("an authority of client certificates does not hide the other certificates of the host", () => {
  using scratch = scratchDirectory();
  const at = lay(scratch.path, { certs: ["clients.pem", "other.pem"] });
  assert.match(exposures([at("certs/clients.pem")])[0] ?? "", /also contains `other\.pem`/);
});

test("two secrets of one directory are reported once, and secrets below a masked directory not at all", () => {
  using scratch = scratchDirectory();
  const at = lay(scratch.path, { etc: ["token", "operator", "a", "b", "c", "d"] });
  const secrets = [at("etc/token"), at("etc/operator")];
  const [exposure = "", ...more] = exposures(secrets);
  assert.match(exposure, /also contains `a`, `b`, `c`, more, so .*; move the file/);
  assert.deepEqual(more, []);
  assert.deepEqual(exposures(secrets, [], [at("etc")]), []);
});

test("the remedy for a directory that other users can write is chmod", () => {
  using scratch = scratchDirectory();
  const at = lay(scratch.path, { etc: ["token"] });
  chmodSync(at("etc"), 0o775);
  assert.match(exposures([at("etc/token")])[0] ?? "", /can be written by other users, so .*; run `chmod go-w .*etc`$/);
});
