import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { PROCWIRE, scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const read = (path: string) => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");
const [, documented = ""] = /^```ini\n(\[Unit\][\s\S]*?)^```$/m.exec(read("docs/deploy.md")) ?? [];
const UNITS = {
  "examples/systemd/procwire.service": read("examples/systemd/procwire.service"),
  "the unit in docs/deploy.md": documented,
};
const hasVerifier = spawnSync("systemd-analyze", ["--version"]).status === 0;

describe("the systemd units", { timeout: 600_000 }, () => {
  for (const [name, unit] of Object.entries(UNITS)) {
    test(`use only flags that procwire serve accepts: ${name}`, () => {
      const [, words = ""] = /^ExecStart=\/usr\/bin\/procwire serve (.*)$/m.exec(unit) ?? [];
      const flags: string[] = words.match(/--[a-z-]+/g) ?? [];
      assert.ok(flags.includes("--listen"), unit);
      const help = execFileSync(PROCWIRE, ["serve", "--help"], { encoding: "utf8" });
      for (const flag of flags) assert.match(help, new RegExp(`${flag}\\b`));
    });

    test(`pass systemd-analyze without a warning: ${name}`, {
      skip: skipUnless(hasVerifier, "there is no systemd-analyze"),
    }, () => {
      using scratch = scratchDirectory();
      const path = join(scratch.path, "procwire.service");
      // Only the path of the executable differs.
      writeFileSync(path, unit.replaceAll("/usr/bin/procwire", PROCWIRE));
      const { status, stderr } = spawnSync("systemd-analyze", ["verify", path], { encoding: "utf8" });
      const ours = stderr.split("\n").filter((line) => line.includes("procwire"));
      assert.deepEqual({ status, ours }, { status: 0, ours: [] });
    });
  }
});
