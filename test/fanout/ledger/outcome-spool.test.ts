import assert from "node:assert/strict";
import { mkdir, mkdtemp, readdir, readFile, realpath, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, suite, test } from "node:test";
import { NO_USAGE } from "../../../src/agent/token-usage.ts";
import { OutcomeSpool, type SpooledOutcome } from "../../../src/fanout/ledger/outcome-spool.ts";
import { makePipe } from "../../support/servers/serve.ts";

const JOB = "a1b2c3d4";
const OUTCOME: SpooledOutcome = {
  type: "reported",
  attempt: { rowIndex: 0, token: "t", startedAtMs: null },
  report: { result: "{}", usage: NO_USAGE, stop: false, transcript: "[]" },
};

suite("OutcomeSpool", () => {
  let root: string;
  let out: string;
  let outside: string;
  let warnings: string[];

  beforeEach(async () => {
    root = await realpath(await mkdtemp(path.join(tmpdir(), "procwire-spool-")));
    out = path.join(root, "out");
    outside = path.join(root, "outside");
    for (const directory of [out, outside]) await mkdir(directory);
    warnings = [];
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  const createSpool = () => new OutcomeSpool({ jobId: JOB, report: (message) => warnings.push(message) });

  test("writes to the directory that it opened before the first command, not to a replacement", async () => {
    using spool = createSpool();
    spool.open(path.join(out, "out.csv"));
    const moved = path.join(root, "moved");
    await rename(out, moved);
    await symlink(outside, out);
    spool.add(OUTCOME);
    assert.deepEqual(await readdir(outside), []);
    const [name = ""] = await readdir(moved);
    assert.deepEqual(JSON.parse(await readFile(path.join(moved, name), "utf8")), OUTCOME);
    assert.ok(warnings.includes(`outcomes are spooled to ${path.join(moved, name)}`), warnings.join("\n"));
    spool.remove();
    assert.deepEqual(await readdir(moved), []);
  });

  test("reports a directory whose outcomes cannot be read, and not a missing one", async () => {
    await rm(out, { recursive: true });
    createSpool().pending(path.join(out, "out.csv"));
    assert.deepEqual(warnings, []);
    await writeFile(out, "");
    assert.deepEqual(createSpool().pending(path.join(out, "out.csv")), []);
    const [warning = "", ...more] = warnings;
    assert.match(warning, /^cannot read .*\/out: .*ENOTDIR.*; its rows are executed again$/);
    assert.deepEqual(more, []);
  });

  test("leaves its file to the next run if the ledger never stored the outcome", async () => {
    const outputPath = path.join(out, "out.csv");
    {
      using spool = createSpool();
      spool.open(outputPath);
      spool.add(OUTCOME);
    }
    const pending = createSpool().pending(outputPath);
    assert.deepEqual(
      pending.map(({ outcomes }) => outcomes),
      [[OUTCOME]],
    );
  });

  test("does not wait for a named pipe that has the name of a spool file", () => {
    makePipe(path.join(out, `.procwire-reports-${JOB}-1-x.jsonl`));
    assert.deepEqual(createSpool().pending(path.join(out, "out.csv")), []);
    assert.match(warnings.join("\n"), /not a regular file of this user; its rows are executed again/);
  });
});
