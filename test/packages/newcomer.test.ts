import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { describe, test } from "node:test";
import { skipUnless } from "../support/system/skip-unless.ts";

const hasPrograms = spawnSync("tmux", ["-V"]).status === 0 && existsSync("/usr/bin/chromium");

describe("a newcomer", { skip: skipUnless(hasPrograms, "tmux or chromium is not installed") }, () => {
  test("walks through README and guides of the packed tarballs, in a terminal and in a browser", async (t) => {
    const walk = spawn(process.execPath, ["scripts/test/newcomer.ts"], { stdio: ["ignore", "pipe", "pipe"] });
    let shown = "";
    for (const stream of [walk.stdout, walk.stderr])
      stream.setEncoding("utf8").on("data", (text: string) => {
        shown += text;
      });
    const [code] = await once(walk, "close");
    for (const line of shown.trimEnd().split("\n")) t.diagnostic(line);
    assert.equal(code, 0, shown);
    assert.ok((shown.match(/^ok /gm)?.length ?? 0) > 20, "the walk has more than 20 steps");
  });
});
