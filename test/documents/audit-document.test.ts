import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { auditTables } from "../../scripts/docs/audit-texts.ts";

describe("docs/operate.md", () => {
  test("lists the fields and events of the audit log, and the methods without a line", () => {
    const text = readFileSync(new URL("../../docs/operate.md", import.meta.url), "utf8");
    for (const table of auditTables()) assert.ok(text.includes(table), `docs/operate.md needs this table:\n${table}`);
  });
});
