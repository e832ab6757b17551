import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { documentedCommands } from "../support/system/document-commands.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const ROOT = join(import.meta.dirname, "../..");
const ARCHIVE = join(ROOT, "release/procwire-image.tar");
const hasApt = spawnSync("apt-get", ["--version"]).status === 0;
const hasBuildah = spawnSync("buildah", ["--version"]).status === 0;

const fromArchive = (name: string) => execFileSync("tar", ["-xOf", ARCHIVE, `./${name}`], { maxBuffer: 2 ** 30 });
const blob = (digest: string) => fromArchive(`blobs/${digest.replace(":", "/")}`);
const read = (bytes: Buffer) => JSON.parse(bytes.toString());

test("the documented command builds an image whose server runs as an ordinary user and allocates terminals", {
  timeout: 600_000,
  skip: skipUnless(hasApt, "the image is filled from Debian's packages, which needs apt-get"),
}, (t) => {
  const [command = "", ...more] = documentedCommands("docs/deploy.md", "npm run image");
  assert.deepEqual(more, []);
  const { status, stdout, stderr } = spawnSync("sh", ["-c", command], { cwd: ROOT, encoding: "utf8" });
  assert.equal(status, 0, stderr);
  if (hasBuildah) assert.match(stdout, /^tested: a terminal runs in the image as its user$/m);
  else t.diagnostic("NOT TESTED: buildah is not installed");
  const [{ digest }] = read(fromArchive("index.json")).manifests;
  const manifest = read(blob(digest));
  const { config } = read(blob(manifest.config.digest));
  assert.match(config.User, /^[1-9]\d*/);
  assert.match([...(config.Entrypoint ?? []), ...(config.Cmd ?? [])].join(" "), /procwire/);
  const files = execFileSync("tar", ["-tz"], { input: blob(manifest.layers[0].digest), encoding: "utf8" });
  for (const name of ["bwrap", "bash"]) assert.match(files, new RegExp(`usr/bin/${name}$`, "m"));
});
