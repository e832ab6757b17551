import assert from "node:assert/strict";
import { test } from "node:test";
import { attachmentsOf } from "../../../src/fanout/row/attachments.ts";

test("a cell without a path or URL attaches nothing", async () => {
  const row = { absent: undefined, null: null, empty: "", blank: " " };
  assert.deepEqual(await attachmentsOf(row, Object.keys(row)), []);
});
