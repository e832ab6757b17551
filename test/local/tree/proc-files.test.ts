import assert from "node:assert/strict";
import { test } from "node:test";
import { listOrEmpty, readOrEmpty, readProcStat } from "../../../src/local/tree/proc-files.ts";

const NO_PID = 2 ** 30;

test("readOrEmpty returns an empty text for a file that does not exist", () => {
  assert.equal(readOrEmpty(`/proc/${process.pid}/comm`).endsWith("\n"), true);
  assert.equal(readOrEmpty(`/proc/${NO_PID}/comm`), "");
});

test("listOrEmpty returns no names for a directory that does not exist", () => {
  assert.ok(listOrEmpty(`/proc/${process.pid}`).includes("comm"));
  assert.deepEqual(listOrEmpty(`/proc/${NO_PID}/fd`), []);
});

test("readProcStat returns null for a process that does not exist", () => {
  assert.equal(readProcStat(process.pid)?.parentPid, process.ppid);
  assert.equal(readProcStat(NO_PID), null);
});
