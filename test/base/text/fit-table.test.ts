import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cutText, fitTable, type TableColumn, textWidth } from "../../../src/base/text/fit-table.ts";

interface Row {
  name: string;
  note: string;
  command: string;
}

const COLUMNS: TableColumn<Row>[] = [
  { title: "NAME", cell: ({ name }) => name, minWidth: 4 },
  { title: "NOTE", cell: ({ note }) => note, isOptional: true },
  { title: "COMMAND", cell: ({ command }) => command, minWidth: 7 },
];
const ROWS = [
  { name: "api", note: "first", command: "make test" },
  { name: "database", note: "second", command: "a long command line" },
];

describe("a table", () => {
  test("is aligned and complete if it fits", () => {
    assert.deepEqual(fitTable(COLUMNS, ROWS, null), [
      "NAME      NOTE    COMMAND",
      "api       first   make test",
      "database  second  a long command line",
    ]);
    assert.deepEqual(fitTable(COLUMNS, [], 80), ["NAME  NOTE  COMMAND"]);
  });

  test("omits optional columns, then cuts the widest ones", () => {
    assert.deepEqual(fitTable(COLUMNS, ROWS, 30), [
      "NAME      COMMAND",
      "api       make test",
      "database  a long command line",
    ]);
    assert.deepEqual(fitTable(COLUMNS, ROWS, 20), ["NAME      COMMAND", "api       make test", "database  a long co…"]);
    assert.deepEqual(fitTable(COLUMNS, ROWS, 13), ["NAME  COMMAND", "api   make t…", "dat…  a long…"]);
  });

  test("omits columns by rank if cut columns do not fit, and cuts the lines at last", () => {
    const [name, note, command] = COLUMNS as [TableColumn<Row>, TableColumn<Row>, TableColumn<Row>];
    const columns = [name, { ...note, isOptional: false, rank: 1 }, { ...command, rank: 2 }];
    assert.deepEqual(fitTable(columns, ROWS, 21)[2], "dat…  second  a long…");
    assert.deepEqual(fitTable(columns, ROWS, 20)[2], "database  a long co…");
    assert.deepEqual(fitTable(columns, ROWS, 12)[2], "database");
    assert.deepEqual(fitTable(columns, ROWS, 3)[2], "da…");
  });

  test("never exceeds the width, with wide characters too", () => {
    const rows = [{ name: "名前".repeat(9), note: "", command: "e\u0301".repeat(50) + "😀".repeat(20) }];
    for (let width = 1; width < 120; width++)
      for (const line of fitTable(COLUMNS, rows, width)) assert.ok(textWidth(line) <= width, `${width}: ${line}`);
    assert.equal(cutText("名前名前", 4), "名…");
    assert.equal(textWidth("e\u0301"), 1);
  });
});
