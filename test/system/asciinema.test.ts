/** Opens recordings of procwire with asciinema 2 of Debian, which needs a terminal. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { run } from "../../src/exec/run/run-program.ts";
import { createLocalBackend } from "../../src/host/create-local-backend.ts";
import { runCli } from "../support/servers/run-cli.ts";
import { scratchDirectory } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const isThere = spawnSync("asciinema", ["--version"]).error === undefined;
const skip = skipUnless(isThere, "asciinema is missing; `npm run setup:debian -- asciinema` installs it");

test("asciinema plays a recording of version 2, and procwire plays a recording of asciinema", { skip }, async () => {
  using directory = scratchDirectory();
  const cwd = directory.path;
  await using backend = createLocalBackend();
  const asciinema = async (...args: string[]) => {
    const env = { HOME: cwd, LANG: "C.UTF-8", TERM: "xterm", SHELL: "/bin/sh" };
    const { exitCode, stdout } = await run(backend, ["asciinema", ...args], { cwd, env, tty: true });
    assert.equal(exitCode, 0, stdout);
    return stdout;
  };
  const path = join(cwd, "two.cast");
  const recorded = await runCli(["record", "--format", "asciicast-v2", path, "--", "echo", "häppy"], { cwd });
  assert.equal(recorded.code, 0, recorded.stderr);
  assert.match(await asciinema("cat", path), /häppy\r\n/);
  const own = join(cwd, "own.cast");
  await asciinema("rec", "--quiet", "--command", "echo wörld", own);
  const replayed = await runCli(["replay", "--speed", "1000", own], { cwd });
  assert.deepEqual([replayed.code, replayed.stdout], [0, "wörld\r\n"], replayed.stderr);
});
