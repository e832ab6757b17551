import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "csv-parse/sync";
import fc from "fast-check";
import { csvLine } from "../../../src/fanout/output/csv-line.ts";

test("cells are quoted only for commas, quotes and line ends", () => {
  assert.equal(
    csvLine(["plain", "", " spaced ", "a,b", 'q"q', "l\nl", "c\rc"]),
    'plain,, spaced ,"a,b","q""q","l\nl","c\rc"\n',
  );
});

test("any record is read back unchanged", () => {
  const cell = fc.string({ unit: fc.constantFrom("a", ",", '"', "\n", "\r", "=", "é", " ") });
  fc.assert(
    fc.property(fc.array(fc.array(cell, { minLength: 2, maxLength: 4 }), { minLength: 1, maxLength: 6 }), (rows) => {
      const text = rows.map((row) => csvLine(row)).join("");
      const read = parse(text, { record_delimiter: "\n", relax_column_count: true });
      assert.deepEqual(read, rows);
    }),
  );
});

test("formulas are escaped only on request, and nothing else changes", () => {
  const cells = ["=1+1", "+1", "-5", "@x", "\tx", "a=b", "＝1", ""];
  assert.equal(csvLine(cells), "=1+1,+1,-5,@x,\tx,a=b,＝1,\n");
  assert.equal(csvLine(cells, { escapeFormulas: true }), "'=1+1,'+1,'-5,'@x,'\tx,a=b,'＝1,\n");
});
