import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { parseProcStat } from "../../src/base/proc-stat.ts";

describe("parseProcStat", () => {
  test("names the fields of a line", () => {
    const line =
      "4211 (make) S 4200 4211 4190 34816 4211 4194304 900 12 3 0 17 5 2 1 20 0 1 0 88123 2500000 700 1844\n";
    assert.deepEqual(parseProcStat(line), {
      comm: "make",
      state: "S",
      parentPid: 4200,
      processGroup: 4211,
      session: 4190,
      userTicks: 17,
      systemTicks: 5,
      childUserTicks: 2,
      childSystemTicks: 1,
      startTime: 88123,
      residentPages: 700,
    });
  });

  test("accepts spaces and parentheses in the name of the executable", () => {
    const line = "7 (a) R 1 (b)) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 55 0 0\n";
    assert.deepEqual(
      { comm: parseProcStat(line)?.comm, state: parseProcStat(line)?.state },
      { comm: "a) R 1 (b)", state: "Z" },
    );
  });

  test("rejects an incomplete line", () => {
    for (const text of ["", "7 (sh", "7 (sh) S 1 7 7"]) assert.equal(parseProcStat(text), null);
  });

  test("reads the line of this process", () => {
    assert.equal(parseProcStat(readFileSync("/proc/self/stat", "latin1"))?.parentPid, process.ppid);
  });
});
