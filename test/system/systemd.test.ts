import assert from "node:assert/strict";
import { execFile, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { PROCWIRE, scratchDirectory } from "../support/servers/serve.ts";
import { NO_SUPERVISOR } from "../support/servers/supervised-server.ts";
import { documentedCommands } from "../support/system/document-commands.ts";
import { skipUnless } from "../support/system/skip-unless.ts";

const fixture = (name: string) => join(import.meta.dirname, "..", "fixtures", "systemd", name);
const isReady = process.getuid?.() === 0 && spawnSync("systemd", ["--version"]).status === 0;

/**
 * Returns the shipped unit with the paths of this checkout, and without the three `Protect` lines that a user's systemd
 * does not support.
 */
function unitHere(): string {
  const unit = readFileSync(join(import.meta.dirname, "../../examples/systemd/procwire.service"), "utf8");
  return unit
    .replaceAll("/usr/bin/procwire", PROCWIRE)
    .replace("unix:///run/procwire/", "unix://%t/procwire/")
    .replaceAll(/^Protect.*\n/gm, "")
    .replace("[Unit]\n", "[Unit]\nDefaultDependencies=no\n")
    .replace("[Service]\n", `[Service]\nEnvironment=PATH=${dirname(process.execPath)}:/usr/bin:/bin\n`);
}

test("the systemd unit is active once it listens, ignores forged states, restarts hot on reload, and leaves no process when it stops", {
  timeout: 600_000,
  skip: NO_SUPERVISOR || skipUnless(isReady, "this needs root and systemd"),
}, async () => {
  using directory = scratchDirectory();
  const path = join(directory.path, "procwire.service");
  writeFileSync(path, unitHere());
  const [readUnits, enable, reload, ...more] = documentedCommands(
    "docs/persistent-processes.md",
    "systemctl daemon-reload",
  );
  assert.deepEqual(more, []);
  const commands = [`${readUnits}; ${enable}`, reload ?? ""];
  const run = [path, fixture("live.sh"), PROCWIRE, ...commands];
  const { stdout } = await promisify(execFile)(fixture("run-unit.sh"), run);
  assert.deepEqual(stdout.trim().split("\n"), [
    "started: active, listening",
    // Another process than the main process sends this state, and systemd ignores it.
    "forged: '', active",
    "reloaded: another server",
    "handing over: reloading",
    "the same: main process, up",
    "killed: up, active",
    "stopped: inactive, success, 0 left",
  ]);
});
