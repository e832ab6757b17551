import assert from "node:assert/strict";
import { test } from "node:test";
import { processExists } from "../../../src/fanout/ledger/process-exists.ts";

test("processExists also finds a process of another user", () => {
  assert.equal(processExists(process.pid), true);
  assert.equal(processExists(1), true);
  assert.equal(processExists(2 ** 30), false);
});
