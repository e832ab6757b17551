import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { MAX_JSON_DEPTH, MAX_JSON_VALUES, parseJsonText } from "../../src/protocol/json-text.ts";

/** A tree whose text may repeat keys, so that both outcomes are common. */
type Tree =
  | { kind: "literal"; text: string }
  | { kind: "string"; text: string }
  | { kind: "array"; items: Tree[] }
  | { kind: "object"; members: [string, Tree][] };

// No key is a lone backslash: V8's JSON.parse mistakes the key `\"` for it if an earlier object had such a key.
const key = fc.constantFrom("id", "a", "b", "\\u0069d", '\\"', "a\\u0000", "", "__proto__");
const blank = fc.constantFrom("", " ", "\n", "\t \r");
const { tree } = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { depthSize: "small", maxDepth: 4 },
    fc.record({
      kind: fc.constant("literal" as const),
      text: fc.constantFrom("1", "1.0", "-0", "1e3", "true", "null", "12345678901234567890"),
    }),
    fc.record({
      kind: fc.constant("string" as const),
      text: fc.constantFrom("", "x", '\\"', "\\\\", '\\\\\\"', "{", "]", ",", ":", "é", "\\ud83d"),
    }),
    fc.record({ kind: fc.constant("array" as const), items: fc.array(tie("tree"), { maxLength: 4 }) }),
    fc.record({
      kind: fc.constant("object" as const),
      members: fc.array(fc.tuple(key, tie("tree")), { maxLength: 4 }),
    }),
  ),
}));

function textOf(tree: Tree, gap: string): string {
  switch (tree.kind) {
    case "literal":
      return tree.text;
    case "string":
      return `"${tree.text}"`;
    case "array":
      return `[${gap}${tree.items.map((item) => textOf(item, gap)).join(`${gap},`)}${gap}]`;
    case "object":
      return `{${tree.members
        .map(([name, value]) => `${gap}"${name}"${gap}:${gap}${textOf(value, gap)}`)
        .join(",")}${gap}}`;
  }
}

/** The slow reference: walks the tree that made the text. */
function repeatsKey(tree: Tree): boolean {
  switch (tree.kind) {
    case "array":
      return tree.items.some(repeatsKey);
    case "object": {
      const names = tree.members.map(([name]) => String(JSON.parse(`"${name}"`)));
      return new Set(names).size < names.length || tree.members.some(([, value]) => repeatsKey(value));
    }
    default:
      return false;
  }
}

function literalOfId(tree: Tree): string | null {
  if (tree.kind !== "object") return null;
  const member = tree.members.find(([name]) => JSON.parse(`"${name}"`) === "id");
  return member?.[1].kind === "literal" ? member[1].text : null;
}

describe("parseJsonText", () => {
  test("returns the value of JSON.parse and the literal of the id, and rejects duplicate keys at any depth", () => {
    fc.assert(
      fc.property(tree, blank, (root, gap) => {
        const text = gap + textOf(root, gap) + gap;
        const parsed = parseJsonText(text);
        if (repeatsKey(root)) {
          assert.ok(!parsed.ok && parsed.problem.startsWith("duplicate JSON object key `"), text);
        } else {
          assert.deepEqual(parsed, { ok: true, value: JSON.parse(text), idLiteral: literalOfId(root) });
        }
      }),
      { numRuns: 3000 },
    );
  });

  test("never throws, and accepts only text that JSON.parse accepts", () => {
    const token = fc.constantFrom("{", "}", "[", "]", ",", ":", '"', "\\", "1", "true", " ", "a", '"id"', "\n");
    const soup = fc.array(token, { maxLength: 12 }).map((parts) => parts.join(""));
    fc.assert(
      fc.property(fc.oneof(soup, fc.string()), (text) => {
        const parsed = parseJsonText(text);
        if (parsed.ok) assert.deepEqual(parsed.value, JSON.parse(text));
        else if (!parsed.problem.startsWith("duplicate")) assert.throws(() => JSON.parse(text));
      }),
      { numRuns: 5000 },
    );
  });

  test(`accepts ${MAX_JSON_DEPTH} levels of nesting and no more`, () => {
    const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
    assert.ok(parseJsonText(nested(MAX_JSON_DEPTH)).ok);
    const parsed = parseJsonText(nested(MAX_JSON_DEPTH + 1));
    assert.ok(!parsed.ok && parsed.problem.startsWith("recursion limit exceeded"));
  });

  test(`accepts ${MAX_JSON_VALUES} values and no more`, () => {
    const flat = (values: number) => `[${"0,".repeat(values - 2)}0]`;
    assert.ok(parseJsonText(flat(MAX_JSON_VALUES)).ok);
    const parsed = parseJsonText(flat(MAX_JSON_VALUES + 1));
    assert.ok(
      !parsed.ok &&
        parsed.problem.startsWith("JSON-RPC message exceeds the limit of 262144 JSON values at line 1 column "),
    );
  });

  test("checks the limits before it builds a value", () => {
    // Twenty million brackets would be gigabytes of arrays; the check stops at the first hundred.
    const parsed = parseJsonText("[".repeat(20_000_000) + "]".repeat(20_000_000));
    assert.ok(!parsed.ok && parsed.problem.startsWith("recursion limit exceeded"));
  });
});
