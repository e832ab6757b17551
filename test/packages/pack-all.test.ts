import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { clientTarball, tarball } from "../../scripts/build/pack-all.ts";
import { PLATFORMS } from "../../scripts/build/platforms.ts";

/** The output of `pack:all`, which `npm run test:packages` runs before these tests. */
const recorded = process.env.PACK_ALL_OUTPUT;
const skip = recorded === undefined ? "run npm run test:packages: it records the output of pack:all" : false;

describe("the output of pack:all", { skip }, () => {
  const output: { stdout: string; stderr: string } = JSON.parse(recorded ?? "{}");

  test("is a line on stderr for each step while it runs", () => {
    const steps = output.stderr.split("\n").filter((line) => line.startsWith("pack:all: "));
    const packages = ["procwire", "procwire-client", ...PLATFORMS.map(({ name }) => `@procwire/${name}`)];
    // Platforms are compiled at the same time and end in any order.
    const compiled = steps.filter((line) => line.startsWith("pack:all: compiled "));
    assert.deepEqual(
      compiled.map((line) => line.replace(/compiled \S+/, "compiled NAME")),
      PLATFORMS.map((_platform, at) => `pack:all: compiled NAME (${at + 1} of ${PLATFORMS.length})`),
    );
    assert.deepEqual(
      steps.filter((line) => !compiled.includes(line)),
      [
        "pack:all: build dist/",
        `pack:all: compile the native files of ${PLATFORMS.length} platforms`,
        ...packages.map((name) => `pack:all: pack ${name}`),
      ],
    );
  });

  test("names each file of the release on stdout, and nothing else", () => {
    const listed = output.stdout.trimEnd().split("\n");
    const tarballs = [tarball(null), clientTarball(), ...PLATFORMS.map((platform) => tarball(platform))];
    const bill = tarball(null).replace(/\.tgz$/, ".cdx.json");
    assert.deepEqual(listed, [...tarballs, bill].sort());
    assert.ok(listed.every((path) => existsSync(path)));
  });
});
