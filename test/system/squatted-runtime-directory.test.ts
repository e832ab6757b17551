/** Another user has created the runtime directory of this user. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chownSync, mkdirSync, rmSync, statSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { BRIDGE_READY_LINE } from "../../src/client/node/connect-url.ts";
import { PROCWIRE, scratchDirectory, withEnvironment } from "../support/servers/serve.ts";
import { skipUnless } from "../support/system/skip-unless.ts";
import { until } from "../support/system/until.ts";

/** Users without an entry in the password file. */
const USER = 54_321;
const OTHER_USER = 54_322;
const TAKEN = `/tmp/procwire-${USER}`;

function runAs(home: string, ...args: string[]) {
  const setpriv = ["setpriv", `--reuid=${USER}`, `--regid=${USER}`, "--clear-groups"];
  const [file = "", ...rest] = [...setpriv, PROCWIRE, ...args];
  const env = { PATH: process.env.PATH, HOME: home, SQUATTED_TEST: home };
  return spawnSync(file, rest, { encoding: "utf8", cwd: "/", env, input: "", timeout: 120_000 });
}

describe("a runtime directory that another user created", {
  timeout: 300_000,
  skip: skipUnless(process.getuid?.() === 0, "requires root, to act as two users"),
}, () => {
  for (const kind of ["directory", "symbolic link"] as const)
    test(`is named in a warning, and replaced by a private one in the home directory (${kind})`, async () => {
      using scratch = scratchDirectory();
      const home = join(scratch.path, "home");
      mkdirSync(home);
      chownSync(scratch.path, USER, USER);
      chownSync(home, USER, USER);
      rmSync(TAKEN, { recursive: true, force: true });
      if (kind === "directory") mkdirSync(TAKEN, { mode: 0o777 });
      else symlinkSync("/var/tmp", TAKEN);
      if (kind === "directory") chownSync(TAKEN, OTHER_USER, OTHER_USER);
      else spawnSync("chown", ["-h", `${OTHER_USER}`, TAKEN]);
      try {
        const ran = runAs(home, "connect", "--idle-exit", "1");
        assert.ok(ran.stdout.includes(BRIDGE_READY_LINE), ran.stderr);
        const run = join(home, ".procwire", "run");
        assert.ok(
          ran.stderr.includes(
            `runtime directory ${TAKEN} belongs to user ${OTHER_USER}, not to ${USER}; using ${run};`,
          ),
          ran.stderr,
        );
        assert.equal(statSync(run).mode & 0o777, 0o700);
        assert.equal(statSync(join(run, "server.log")).uid, USER);
      } finally {
        rmSync(TAKEN, { recursive: true, force: true });
        await until("the server to be idle and gone", () => withEnvironment(`SQUATTED_TEST=${home}`).length === 0);
      }
    });
});
