import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import fc from "fast-check";
import { checkIdColumn, ItemIds } from "../../../src/fanout/input/item-ids.ts";
import { jsonElements } from "../../../src/fanout/input/json-objects.ts";
import {
  formatFromExtension,
  openTable,
  type TableFormat,
  type TableParseOptions,
} from "../../../src/fanout/input/table.ts";
import type { Row } from "../../../src/fanout/job.ts";

const directory = await mkdtemp(path.join(tmpdir(), "procwire-table-"));
after(() => rm(directory, { recursive: true, force: true, maxRetries: 10 }));
let files = 0;

async function read(
  content: string | Uint8Array,
  format: TableFormat = "csv",
  ending = "",
  parseOptions: TableParseOptions = {},
) {
  const file = path.join(directory, `t${files++}${ending}`);
  await writeFile(file, content);
  const table = openTable(file, format, "IN", parseOptions);
  const rows: Row[] = [];
  for await (const row of table.rows()) rows.push(row);
  return { headers: table.headers, rows };
}

test("quotes, doubled quotes, line ends inside quotes, CRLF and a missing last line end are read", async () => {
  const { headers, rows } = await read('name,note\r\n"a, b","say ""hi"""\r\nc,"two\nlines"');
  assert.deepEqual(headers, ["name", "note"]);
  assert.deepEqual(rows, [
    { name: "a, b", note: 'say "hi"' },
    { name: "c", note: "two\nlines" },
  ]);
});

test("a byte order mark does not become part of the first header", async () => {
  assert.deepEqual((await read("\uFEFFname\nx\n")).headers, ["name"]);
  assert.deepEqual((await read('\uFEFF"name"\nx\n')).headers, ["name"]);
});

test("values stay unchanged: not trimmed, all strings, in header order", async () => {
  const { rows } = await read("b, a ,10,9\n 1 ,02,x,y\n");
  assert.deepEqual(rows, [{ b: " 1 ", " a ": "02", 10: "x", 9: "y" }]);
});

test("a column named __proto__ is an ordinary column", async () => {
  const { rows } = await read("__proto__,a\nx,y\n");
  assert.deepEqual(Object.entries(rows[0] ?? {}), [
    ["__proto__", "x"],
    ["a", "y"],
  ]);
});

test("records whose fields are all empty are skipped; spaces are not empty", async () => {
  const { rows } = await read("a,b\n\n,\n1,2\n , \n");
  assert.deepEqual(rows, [
    { a: "1", b: "2" },
    { a: " ", b: " " },
  ]);
});

test("a quote within an unquoted field is an ordinary character", async () => {
  assert.deepEqual((await read('a\n5" pipe\n')).rows, [{ a: '5" pipe' }]);
});

const refused: [string, string | Uint8Array, RegExp][] = [
  ["an empty file", "", /^csv input must include a header row$/],
  ["a duplicated header", "a,b,a\n", /^csv header a is duplicated$/],
  ["a short row", "a,b\n1,2\n3\n", /^csv row 3 has 1 fields but header has 2$/],
  ["a long row", "a,b\n1,2,3\n", /^csv row 2 has 3 fields but header has 2$/],
  [
    "a short row after blank rows, named by its number in the file,",
    "a,b\n\n\n1\n",
    /^csv row 4 has 1 fields but header has 2$/,
  ],
  [
    "a file that is not UTF-8",
    Buffer.from([0x61, 0x0a, 0xff, 0xfe, 0x0a]),
    /^failed to read csv input IN: stream did not contain valid UTF-8$/,
  ],
  ["a character cut off at the end", Buffer.from([0x61, 0x0a, 0xc3]), /did not contain valid UTF-8$/],
  ["a quote that is never closed", 'a\n"x\n', /^failed to parse csv input IN: .*[Qq]uote/],
];
for (const [what, content, message] of refused) {
  test(`${what} is rejected with a one-line error`, async () => {
    await assert.rejects(read(content), (error: Error) => {
      assert.equal(error.name, "InputError");
      assert.match(error.message, message);
      assert.doesNotMatch(error.message, /\n/);
      return true;
    });
  });
}

test("a header alone is a table without rows", async () => {
  assert.deepEqual(await read("a,b\n"), { headers: ["a", "b"], rows: [] });
});

test("the error for a missing file contains its name", async () => {
  const table = openTable(path.join(directory, "missing.csv"), "csv", "missing.csv");
  await assert.rejects(table.rows().next(), /^InputError: failed to read csv input missing.csv: ENOENT/);
});

test("TSV is split at tabs", async () => {
  assert.deepEqual((await read("a\tb\n1,5\t2\n", "tsv")).rows, [{ a: "1,5", b: "2" }]);
});

test("values of JSON lines keep their types, and the columns are those of all rows", async () => {
  const { headers, rows } = await read('{"a":1}\n\n{"b":[true],"a":null}\r\n', "jsonl");
  assert.deepEqual(headers, ["a", "b"]);
  assert.deepEqual(rows, [{ a: 1 }, { b: [true], a: null }]);
  await assert.rejects(read('{"a":1}\n[2]\n', "jsonl"), /^InputError: jsonl line 2 is not an object$/);
  await assert.rejects(read('{"a":1}\n{\n', "jsonl"), /^InputError: jsonl line 2 is not JSON: /);
});

test("a gzipped table is read like any other", async () => {
  assert.deepEqual((await read(gzipSync("a\nx\n"), "csv", ".csv.gz")).rows, [{ a: "x" }]);
  await assert.rejects(read(Buffer.from("not gzip"), "csv", ".csv.gz"), /failed to read csv input IN: /);
});

test("the format follows from the file name extension", () => {
  assert.equal(formatFromExtension("a/B.CSV"), "csv");
  assert.equal(formatFromExtension("x.tsv.gz"), "tsv");
  assert.equal(formatFromExtension("x.ndjson"), "jsonl");
  assert.equal(formatFromExtension("-"), null);
});

test("any table is unchanged after a write and a read", async () => {
  const cell = fc.string({ unit: fc.constantFrom("a", ",", '"', "\n", "\r", "é", " ") });
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(cell, cell), { maxLength: 5 }), async (cells) => {
      const quote = (value: string) => `"${value.replaceAll('"', '""')}"`;
      const text = `x,y\n${cells.map(([x, y]) => `${quote(x)},${quote(y)}\n`).join("")}`;
      const { rows } = await read(text);
      assert.deepEqual(
        rows,
        cells.filter(([x, y]) => x !== "" || y !== "").map(([x, y]) => ({ x, y })),
      );
    }),
    { numRuns: 30 },
  );
});

const idsOf = (idColumn: string | null, rows: Row[]) => {
  const ids = new ItemIds(idColumn);
  return rows.map((row) => ids.item(row).itemId);
};

test("without an id column rows are numbered from 1", () => {
  assert.deepEqual(idsOf(null, [{}, {}]), ["row-1", "row-2"]);
});

test("a duplicate id gets the next free suffix, a blank id becomes the row number", () => {
  const rows = ["1", "1", "1-2", "1", " ", "row-5"].map((id) => ({ id }));
  assert.deepEqual(idsOf("id", rows), ["1", "1-2", "1-2-2", "1-3", "row-5", "row-5-2"]);
});

test("line ends in an id become spaces in the item's id, not in its source", () => {
  const item = new ItemIds("id").item({ id: "a\r\nb" });
  assert.equal(item.itemId, "a b");
  assert.equal(item.sourceId, "a\r\nb");
});

test("an unknown id column is rejected", () => {
  assert.throws(() => checkIdColumn("ID", ["id"]), /id_column ID was not found in csv headers; they are id/);
  checkIdColumn(null, []);
});

test("a column of equal ids takes time linear in its rows", () => {
  const ids = new ItemIds("id");
  // A search from the beginning for each row would take minutes, and the test would time out.
  for (let row = 0; row < 100_000; row++) ids.item({ id: "same" });
  assert.equal(ids.item({ id: "same" }).itemId, "same-100001");
  assert.equal(ids.duplicates, 100_000);
});

test("a table with another delimiter and encoding is read", async () => {
  const latin1 = Buffer.from("a;b\né,1;2\n", "latin1");
  const parseOptions = { delimiter: ";", encoding: "windows-1252" };
  assert.deepEqual((await read(latin1, "csv", "", parseOptions)).rows, [{ a: "é,1", b: "2" }]);
  await assert.rejects(read(latin1), /did not contain valid UTF-8$/);
  const wide = Buffer.from("\uFEFFa\n\u00e9\n", "utf16le");
  assert.deepEqual((await read(wide, "csv", "", { encoding: "utf-16le" })).rows, [{ a: "é" }]);
  await assert.rejects(
    read(Buffer.from([0x61, 0x0a, 0xff]), "csv", "", { encoding: "shift_jis" }),
    /did not contain valid SHIFT_JIS$/,
  );
});

test("a JSON array is read object by object, for any layout and chunk boundaries", async () => {
  const rows = [{ a: 1, t: 'x]"}, {' }, { a: [[1], { b: "\\" }] }, {}];
  for (const text of [
    JSON.stringify(rows),
    JSON.stringify(rows, null, 2),
    rows.map((row) => JSON.stringify(row, null, 1)).join("\n"),
    rows.map((row) => JSON.stringify(row)).join(""),
  ]) {
    assert.deepEqual((await read(text, "json")).rows, rows);
    const letters = async function* () {
      yield* text;
    };
    const cut: unknown[] = [];
    for await (const element of jsonElements(letters(), "IN")) cut.push(JSON.parse(element));
    assert.deepEqual(cut, rows);
  }
  assert.deepEqual((await read(" [ ] ", "json")).rows, []);
  for (const [text, message] of [
    ['[{"a":1}, 2]', /^InputError: json item 2 is not an object$/],
    ['[{"a":1}, {"a":}]', /^InputError: json item 2 is not JSON: /],
    ['[{"a":1}', /^InputError: json input IN ends within a value$/],
    ['{"a":1', /^InputError: json input IN ends within a value$/],
    ['[{"a":1}] {}', /^InputError: json input IN has data after its end$/],
  ] as const) {
    await assert.rejects(read(text, "json"), message);
  }
});

test("invalid rows are skipped and counted with keepGoing", async () => {
  for (const [text, format, rows, first] of [
    ["a,b\n1,2\n3\n4,5,6\n7,8\n", "csv", ["1", "7"], "csv row 3 has 1 fields but header has 2"],
    ['{"a":"1"}\n{\n[]\n{"a":"7"}\n', "jsonl", ["1", "7"], "jsonl line 2 is not JSON: "],
    ['[{"a":"1"},2,[3],{"a":"7"}]', "json", ["1", "7"], "json item 2 is not an object"],
  ] as const) {
    const file = path.join(directory, `ragged.${format}`);
    await writeFile(file, text);
    const table = openTable(file, format, "IN", { keepGoing: true });
    const seen: unknown[] = [];
    for await (const row of table.rows()) seen.push(row.a);
    assert.deepEqual(seen, rows);
    assert.equal(table.skipped.count, 2);
    assert.ok(table.skipped.first.startsWith(first), table.skipped.first);
  }
});
