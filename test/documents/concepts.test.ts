import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";

const ROOT = join(import.meta.dirname, "../..");

/** The tests of each row of "When this ends, this happens": file and part of the title. */
const COVERAGE: Readonly<Record<string, readonly (readonly [file: string, title: string])[]>> = {
  connection: [
    ["test/client/recovery.test.ts", "resumes the session at once"],
    ["test/client/recovery.test.ts", "reads missed events, and the same process object continues"],
    ["test/client/recovery.test.ts", "until 25 s have passed"],
  ],
  client: [
    [
      "test/server/session/attach.test.ts",
      "continues without backpressure when its session expires, and is found by its handle",
    ],
    ["test/e2e/supervisor/supervisor.test.ts", "the next server still has a command without a client"],
  ],
  session: [
    ["test/e2e/lifetime/daemons.test.ts", "outlive the process that started them, and end with its session"],
    [
      "test/server/session/session-lifecycle.test.ts",
      "expires like every detached session, and its process becomes a background process",
    ],
    ["test/server/session/attach.test.ts", "survives the owner's session and receives the end of the process"],
  ],
  "process leader": [
    [
      "test/contract/exec-process-contract.ts",
      "orders output of the leader, exited, late output of descendants, closed",
    ],
    ["test/e2e/lifetime/daemons.test.ts", "outlive the process that started them, and end with its session"],
  ],
  server: [
    ["test/e2e/lifetime/no-orphans.test.ts", "no process survives a SIGKILL of the server"],
    ["test/e2e/lifetime/no-orphans.test.ts", "no process survives a graceful shutdown"],
    [
      "test/e2e/lifetime/lost-session.test.ts",
      "fails its processes after a SIGKILL of the server, and works in a new session",
    ],
  ],
  "server below a supervisor": [
    ["test/e2e/supervisor/supervisor.test.ts", "loses no persistent process, byte, handle or name"],
    ["test/e2e/supervisor/supervisor.test.ts", "ends processes that are not persistent, and their handles report it"],
  ],
  supervisor: [
    ["test/e2e/supervisor/supervisor.test.ts", "leaves no server and no process"],
    ["test/e2e/lifetime/lost-session.test.ts", "works in a new session after many restarts"],
  ],
  host: [
    ["test/e2e/lifetime/daemons.test.ts", "end when the server and both watchdogs are killed at once"],
    ["test/client/copy/copy-files.test.ts", "keeps the partial file on interruption, reports it, and resumes from it"],
    ["test/fanout/run/killed-runs.ts", "a job killed with -9 at random points repeats no finished row"],
  ],
};

describe("docs/concepts.md", () => {
  const text = readFileSync(join(ROOT, "docs/concepts.md"), "utf8");

  test("has a test for every row of the table of ends", () => {
    const [, table = ""] = /^## When this ends[^\n]*\n([\s\S]*?)\n\n`/m.exec(text) ?? [];
    const rows = Array.from(table.matchAll(/^\| ([^|]+?) \|/gm), ([, name]) => name).slice(1);
    assert.deepEqual(rows, Object.keys(COVERAGE));
    for (const [file, title] of Object.values(COVERAGE).flat())
      assert.ok(readFileSync(join(ROOT, file), "utf8").includes(title), `${file} has no test "${title}"`);
  });
});
