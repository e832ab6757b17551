import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseToolArguments } from "../../../src/agent/arguments/function-arguments.ts";

/** Replies of the real Codex CLI 0.166.0 to these arguments; interop/ asserts the same. */
const MISTAKES: [text: string, message: string][] = [
  ['{"cmd":5}', "invalid type: integer `5`, expected a string at line 1 column 8"],
  ["{}", "missing field `cmd` at line 1 column 2"],
  ["not json", "expected ident at line 1 column 2"],
  ['{"cmd":"x","yield_time_ms":1.5}', "invalid type: floating point `1.5`, expected u64 at line 1 column 30"],
  ['{"cmd":"x","yield_time_ms":-5}', "invalid value: integer `-5`, expected u64 at line 1 column 29"],
  ['{"cmd":"x","yield_time_ms":null}', "invalid type: null, expected u64 at line 1 column 31"],
  ['{"cmd":"x","max_output_tokens":"1"}', 'invalid type: string "1", expected usize at line 1 column 34'],
  ['{"cmd":"x","prefix_rule":"x"}', 'invalid type: string "x", expected a sequence at line 1 column 28'],
  ['{"cmd":"x","prefix_rule":[1]}', "invalid type: integer `1`, expected a string at line 1 column 27"],
  ['{"cmd":"x"', "EOF while parsing an object at line 1 column 10"],
  ['{"cmd":"x",}', "trailing comma at line 1 column 12"],
  ["", "EOF while parsing a value at line 1 column 0"],
  ['{"cmd":"x"} y', "trailing characters at line 1 column 13"],
  ['{"cmd" "x"}', "expected `:` at line 1 column 8"],
  ['{"cmd":[1]}', "invalid type: sequence, expected a string at line 1 column 7"],
  ['{"cmd":1.5}', "invalid type: number, expected a string at line 1 column 10"],
  ['{"cmd":"x","cmd":"y"}', "duplicate field `cmd` at line 1 column 16"],
  ['{\n "cmd": 5\n}', "invalid type: integer `5`, expected a string at line 2 column 9"],
  ['{"cmd":"a\nb"}', "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 9"],
  ["{cmd:1}", "key must be a string at line 1 column 2"],
  ['{"cmd":tru}', "expected ident at line 1 column 11"],
  ['{"cmd":}', "expected value at line 1 column 8"],
  ['{"cmd":"abc', "EOF while parsing a string at line 1 column 11"],
  ['{"cmd":"x" "y":1}', "expected `,` or `}` at line 1 column 12"],
  ['{"cmd":"\\q"}', "invalid escape at line 1 column 10"],
  ['{"cmd":"x","sandbox_permissions":1}', "expected value at line 1 column 34"],
  ['{"cmd":"é","tty":1}', "invalid type: integer `1`, expected a boolean at line 1 column 19"],
];

test("invalid arguments are reported to the model in the wording it knows, with their position", () => {
  for (const [text, message] of MISTAKES)
    assert.deepEqual(
      parseToolArguments("exec_command", text),
      { type: "mistaken", message: `failed to parse function arguments: ${message}` },
      text,
    );
  assert.deepEqual(parseToolArguments("write_stdin", '{"session_id":9999999999}'), {
    type: "mistaken",
    message:
      "failed to parse function arguments: invalid value: integer `9999999999`, expected i32 at line 1 column 24",
  });
});

test("unknown arguments of a tool are ignored", () => {
  const read = parseToolArguments("exec_command", '{"cmd":"ls","bogus":[{"a":null}],"login":null}');
  assert.deepEqual(read, { type: "read", value: { cmd: "ls", login: null } });
});

test("other tools get the arguments as written, and an empty object for none", () => {
  assert.deepEqual(parseToolArguments("mine", '{"a":[1]}'), { type: "read", value: { a: [1] } });
  assert.deepEqual(parseToolArguments("mine", " "), { type: "read", value: {} });
});

test("valid JSON is accepted and anything else is an error", () => {
  fc.assert(
    fc.property(fc.json(), fc.nat(), fc.boolean(), (json, place, cut) => {
      const text = cut ? json.slice(0, place % (json.length + 1)) : json;
      let expected: unknown;
      let isJson = text.trim() !== "";
      try {
        expected = JSON.parse(text);
      } catch {
        isJson = false;
      }
      const read = parseToolArguments("mine", text);
      if (text.trim() === "") return;
      assert.equal(read.type, isJson ? "read" : "mistaken", text);
      // Numbers that JavaScript would round are kept as they were written.
      if (read.type === "read") assert.deepEqual(rounded(read.value), rounded(expected));
    }),
  );
});

const rounded = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
