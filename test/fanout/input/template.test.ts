import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { checkColumns, parseTemplate } from "../../../src/fanout/input/template.ts";

const render = (instruction: string, row: Record<string, unknown>) => parseTemplate(instruction).render(row);

test("each {column} is replaced by the row's value, every time it occurs", () => {
  assert.equal(render("{a} and {b c}, {a}", { a: "1", "b c": "2" }), "1 and 2, 1");
});

test("a cell is never expanded again", () => {
  assert.equal(render("A={a} B={b}", { a: "{b}", b: "VALB" }), "A={b} B=VALB");
  assert.equal(render("{a}", { a: "{{a}}" }), "{{a}}");
});

test("doubled braces become single braces, also around a value", () => {
  assert.equal(render('{{"name": "{name}"}}', { name: "x" }), '{"name": "x"}');
  assert.equal(render("{{{name}}}", { name: "x" }), "{x}");
  assert.equal(render("{{name}}", { name: "x" }), "{name}");
});

test("placeholder names are exact, including spaces", () => {
  assert.throws(() => checkColumns(parseTemplate("{ name }"), ["name"]), /unknown placeholder \{ name \}/);
  assert.equal(render("{ name }", { " name ": "x" }), "x");
});

test("an unknown placeholder is rejected with a list of the columns", () => {
  assert.throws(() => checkColumns(parseTemplate("say {nmae}"), ["name", "age"]), {
    name: "InputError",
    message: "unknown placeholder {nmae} in the instruction; the columns are name, age; write {{ and }} for braces",
  });
  checkColumns(parseTemplate("say {name}"), ["name"]);
});

test("an unclosed placeholder is rejected", () => {
  assert.throws(() => parseTemplate("say {name"), /never closes it; write \{\{ for a brace/);
});

test("an empty instruction is rejected", () => {
  assert.throws(() => parseTemplate(" \n"), /the instruction is empty/);
});

test("values other than strings are inserted as JSON, absent values as an empty string", () => {
  assert.equal(render("{n} {o} {x}|{z}", { n: 4.5, o: { a: [1] }, x: true, z: null }), '4.5 {"a":[1]} true|');
  assert.equal(render("[{gone}]", {}), "[]");
  assert.equal(render("[{toString}]", {}), "[]");
});

test("any value is inserted unchanged", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), (a, b) => {
      assert.equal(render("<{a}|{b}>", { a, b }), `<${a}|${b}>`);
    }),
  );
});
