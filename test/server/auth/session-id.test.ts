import assert from "node:assert/strict";
import { test } from "node:test";
import { newSessionId } from "../../../src/server/auth/session-id.ts";

test("newSessionId returns a new UUID of version 4 each time", () => {
  const ids = Array.from({ length: 100 }, newSessionId);
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  assert.equal(new Set(ids).size, ids.length);
});
