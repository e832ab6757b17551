import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { describe, test } from "node:test";
import { tarball } from "../../scripts/build/pack-all.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const hasGroff = spawnSync("groff", ["--version"]).status === 0;

describe("the manual page in the package", {
  skip: skipUnless(hasGroff, "THE MANUAL PAGE IS NOT TESTED: groff is not installed"),
}, () => {
  test("renders in groff without a warning, and lists every option", () => {
    const page = execFileSync("tar", ["-xzOf", tarball(null), "package/man/procwire.1"], {
      encoding: "utf8",
    });
    const { stdout, stderr } = spawnSync("groff", ["-man", "-Tutf8", "-P-c", "-ww", "-k"], {
      input: page,
      encoding: "utf8",
    });
    assert.equal(stderr, "");
    // Bold is printed as a letter struck twice.
    const text = stdout.replace(/.\x08/g, "");
    assert.match(text, /procwire +- Processes over a wire/);
    for (const option of ["--listen", "--tty", "--connect", "--instruction"]) assert.ok(text.includes(option), option);
  });
});
