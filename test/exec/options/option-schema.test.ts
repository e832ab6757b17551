import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { findNearestName } from "../../../src/exec/options/nearest-name.ts";
import {
  checkArgument,
  checkOptions,
  count,
  decodedBy,
  either,
  flag,
  listOf,
  nullOr,
  optionsOf,
  required,
  text,
  variantsOf,
} from "../../../src/exec/options/option-schema.ts";
import { enumOf } from "../../../src/protocol/schema.ts";

interface Example {
  name: string;
  count?: number | null;
  nested?: { flag: boolean };
}

const schema = optionsOf<Example>(() => ({
  name: required(text),
  count: nullOr(count),
  nested: optionsOf<{ flag: boolean }>(() => ({ flag: required(flag) })),
}));

const rejects = (options: unknown, message: string) =>
  assert.throws(() => checkOptions("example", options, schema), { code: "EINVAL", message: `example: ${message}` });

describe("option schemas", () => {
  test("accept absent, undefined and null values where the type does", () => {
    for (const options of [{ name: "" }, { name: "a", count: undefined }, { name: "a", count: null }])
      assert.equal(checkOptions("example", options, schema), undefined);
  });

  test("reject what a wire schema rejects with the text of a server", () => {
    const kind = decodedBy(text, enumOf("near", "far"));
    const options = optionsOf<{ place: string }>(() => ({ place: required(kind) }));
    const check = (place: unknown) => () => checkOptions("example", { place }, options);
    assert.doesNotThrow(check("near"));
    assert.throws(check(1), { code: "EINVAL", message: "example: invalid `place`: got 1, expected a string" });
    assert.throws(check("here"), { code: "EINVAL", message: "unknown variant `here`, expected `near` or `far`" });
  });

  test("name the field, the value and the accepted form", () => {
    rejects({}, "missing `name`; expected a string");
    rejects({ name: undefined }, "missing `name`; expected a string");
    rejects({ name: "a", count: -1 }, "invalid `count`: got -1, expected a non-negative integer");
    rejects({ name: "a", count: 2n }, "invalid `count`: got 2n, expected a non-negative integer");
    rejects({ name: "a", nested: [] }, "invalid `nested`: got an array, expected an object");
    rejects({ name: "a", nested: { flag: "y" } }, 'invalid `nested.flag`: got "y", expected true or false');
    rejects({ name: Symbol("s") }, "invalid `name`: got a symbol, expected a string");
    rejects({ name: new Map() }, "invalid `name`: got an instance of Map, expected a string");
    rejects({ name: Object.create(null) }, "invalid `name`: got an object, expected a string");
    rejects({ name: 5, count: "x".repeat(50) }, "invalid `name`: got 5, expected a string");
    rejects(
      { name: "a", count: "x".repeat(50) },
      `invalid \`count\`: got "${"x".repeat(40)}"…, expected a non-negative integer`,
    );
    rejects(() => 1, "invalid `options`: got a function, expected an object");
  });

  test("suggest the nearest name for an unknown option, or list all names", () => {
    rejects({ name: "a", cuont: 1 }, "unknown option `cuont`; did you mean `count`?");
    rejects({ name: "a", nested: { flag: true, Flag: 1 } }, "unknown option `nested.Flag`; did you mean `flag`?");
    rejects({ name: "a", verbose: 1 }, "unknown option `verbose`; expected one of `name`, `count`, `nested`");
  });

  test("check elements of lists and variants of unions", () => {
    const command = either("a program or a list", text, listOf(text, "a list"));
    const mode = variantsOf({ force: {}, graceful: { timeoutMs: required(count) } });
    const check = (value: unknown, kind: typeof command) => () => checkArgument("do", "it", value, kind);
    assert.equal(check("ls", command)(), undefined);
    assert.throws(check(["ls", 5], command), { message: "do: invalid `it.1`: got 5, expected a string" });
    assert.throws(check(5, command), { message: "do: invalid `it`: got 5, expected a program or a list" });
    assert.equal(check({ type: "force" }, mode)(), undefined);
    assert.throws(check({ type: "kind" }, mode), {
      message: 'do: invalid `it.type`: got "kind", expected "force" or "graceful"',
    });
    assert.throws(check({ type: "force", timeoutMs: 5 }, mode), {
      message: "do: unknown option `it.timeoutMs`; expected one of `type`",
    });
  });
});

describe("findNearestName", () => {
  test("finds typing errors, other cases and abbreviations, and nothing else", () => {
    const names = ["timeoutMs", "env", "cwd", "maxBytes"];
    const found = ["timeout", "TimeoutMS", "environment", "cdw", "maxbyte", "shell", "e"].map((name) =>
      findNearestName(name, names),
    );
    assert.deepEqual(found, ["timeoutMs", "timeoutMs", "env", "cwd", "maxBytes", null, "env"]);
  });
});
