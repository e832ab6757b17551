import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { methods } from "../../src/protocol/methods.ts";
import {
  array,
  boolean,
  bytes,
  DecodeError,
  enumOf,
  extended,
  type Infer,
  map,
  noParams,
  nullable,
  nullish,
  object,
  optional,
  type Schema,
  string,
  taggedUnion,
  u16,
  u64,
} from "../../src/protocol/schema.ts";

function problem(schema: Schema<unknown>, value: unknown): string {
  try {
    schema.decode(value);
  } catch (error) {
    assert.ok(error instanceof DecodeError, String(error));
    return error.message;
  }
  assert.fail(`${JSON.stringify(value)} was accepted`);
}

const start = {
  processId: "p",
  argv: ["true"],
  cwd: "file:///tmp",
  env: {},
  tty: false,
};
const startSchema: Schema<unknown> = methods["process/start"].params;

describe("decode errors with the texts of the reference server", () => {
  const cases: [value: unknown, text: string, method?: keyof typeof methods][] = [
    [{ ...start, processId: undefined }, "missing field `processId`"],
    [{ ...start, argv: undefined }, "missing field `argv`"],
    [{ ...start, cwd: undefined }, "missing field `cwd`"],
    [{ ...start, env: undefined }, "missing field `env`"],
    [{ ...start, tty: undefined }, "missing field `tty`"],
    [{ ...start, argv: [1] }, "invalid type: number, expected a string"],
    [{ ...start, env: { A: 1 } }, "invalid type: number, expected a string"],
    [{ ...start, tty: "yes" }, 'invalid type: string "yes", expected a boolean'],
    [{ ...start, processId: 5 }, "invalid type: number, expected a string"],
    [{ ...start, envPolicy: { inherit: "all" } }, "missing field `ignoreDefaultExcludes`"],
    [{ ...start, metadata: { threadId: "nope" } }, "invalid UUID `nope`"],
    [null, "invalid type: null, expected struct WireExecParams"],
    [7, "invalid type: number, expected struct WireExecParams"],
    [null, "invalid type: null, expected struct InitializeParams", "initialize"],
    [{}, "missing field `clientName`", "initialize"],
    [{ clientName: 5 }, "invalid type: number, expected a string", "initialize"],
    [[], "invalid type: sequence, expected unit", "environment/status"],
    [{ a: 1 }, "invalid type: map, expected unit", "environment/status"],
    ["s", 'invalid type: string "s", expected unit', "environment/status"],
    [{ processId: "p", afterSeq: -1 }, "invalid number", "process/read"],
    [{ processId: "p", afterSeq: 1.5 }, "invalid number", "process/read"],
    [{ processId: "p", maxBytes: "5" }, 'invalid type: string "5", expected usize', "process/read"],
    [{ processId: "p", signal: 9 }, "invalid type: number, expected string or map", "process/signal"],
    [{ processId: "p", signal: null }, "invalid type: null, expected string or map", "process/signal"],
    [{ processId: "p", chunk: "eg==", writeId: "" }, "writeId must not be empty", "process/write"],
    [{ processId: "p", writeId: "a" }, "missing field `chunk`", "process/write"],
    [{ processId: "p", chunk: "!!!", writeId: "a" }, "Invalid symbol 33, offset 0.", "process/write"],
  ];
  for (const [value, text, method = "process/start"] of cases) {
    test(`${method} ${JSON.stringify(value)}: ${text}`, () => {
      const params: Schema<unknown> = methods[method].params;
      assert.equal(problem(params, value), text);
    });
  }

  test("list the known variants for an unknown variant", () => {
    assert.equal(problem(enumOf("a"), "x"), "unknown variant `x`, expected `a`");
    assert.equal(problem(enumOf("a", "b"), "x"), "unknown variant `x`, expected `a` or `b`");
    const shape = taggedUnion("T", { one: { n: u64 }, two: {} });
    assert.equal(problem(shape, { type: "three" }), "unknown variant `three`, expected one of `one`, `two`");
    assert.equal(problem(shape, {}), "missing field `type`");
    assert.equal(problem(shape, { type: "one" }), "missing field `n`");
  });
});

describe("decoding", () => {
  const members = object("Members", () => ({
    nullable: nullable(string),
    optional: optional(string),
    nullish: nullish(string),
    extended: extended(string),
  }));

  test("distinguishes optional, nullable and nullish members", () => {
    const full = { nullable: "a", optional: "b", nullish: "c", extended: "d" };
    assert.deepEqual(members.decode(full), full);
    assert.deepEqual(members.decode({ nullable: null }), { nullable: null });
    assert.deepEqual(members.decode({ nullable: null, nullish: null }), { nullable: null });
    assert.equal(problem(members, {}), "missing field `nullable`");
    for (const name of ["optional", "extended"])
      assert.equal(problem(members, { nullable: null, [name]: null }), "invalid type: null, expected a string");
    assert.deepEqual(members.encode({ nullable: null, nullish: undefined }), { nullable: null });
  });

  test("encodes extended members only for extended clients, at every depth", () => {
    const inner = { nullable: null, extended: "d" };
    const wrapped = object("Wrapped", () => ({
      list: array(members),
      by: map(members),
      maybe: nullish(members),
      none: nullable(members),
      union: taggedUnion("Union", { one: { members } }),
    }));
    const value = { list: [inner], by: { a: inner }, maybe: inner, none: inner };
    const full: Infer<typeof wrapped> = { ...value, union: { type: "one", members: inner } };
    assert.deepEqual(wrapped.encode(full, true), full);
    assert.deepEqual(wrapped.encode(full), full);
    const bare = { nullable: null };
    assert.deepEqual(wrapped.encode(full, false), {
      ...{ list: [bare], by: { a: bare }, maybe: bare, none: bare, union: { type: "one", members: bare } },
    });
  });

  test("accepts absent and null for a nullish member, and ignores unknown members", () => {
    const plain = startSchema.decode(start);
    assert.deepEqual(startSchema.decode({ ...start, arg0: null, envPolicy: null, bogus: 1 }), plain);
  });

  test("accepts a struct by position", () => {
    assert.deepEqual(methods["process/read"].params.decode(["ex", null, null, null]), { processId: "ex" });
    assert.deepEqual(methods["process/read"].params.decode(["ex", 3]), { processId: "ex", afterSeq: 3 });
    const write = methods["process/write"].params.decode(["p", "aGk=", "w"]);
    assert.deepEqual(
      { ...write, chunk: Buffer.from(write.chunk).toString() },
      {
        processId: "p",
        chunk: "hi",
        writeId: "w",
      },
    );
    assert.match(problem(methods["process/write"].params, ["p"]), /^invalid length 1, expected struct WriteParams/);
  });

  test("keeps a member called __proto__ as data", () => {
    const env = map(string).decode(JSON.parse('{"__proto__":"x","constructor":"y"}'));
    assert.deepEqual(Object.entries(env), [
      ["__proto__", "x"],
      ["constructor", "y"],
    ]);
    assert.equal(Object.getPrototypeOf({}).x, undefined);
  });

  test("enforces the bounds of numbers", () => {
    for (const value of [0, 0xffff]) assert.equal(u16.decode(value), value);
    for (const value of [-1, 0x10000, Number.MAX_SAFE_INTEGER + 1]) assert.equal(problem(u16, value), "invalid number");
    assert.equal(u64.decode(Number.MAX_SAFE_INTEGER), Number.MAX_SAFE_INTEGER);
  });

  test("decodes absent, null and empty params to an empty object", () => {
    for (const value of [undefined, null, {}]) assert.deepEqual(noParams.decode(value), {});
  });
});

test("a schema decodes every encoded value to the same value", () => {
  const schema = object("All", () => ({
    text: string,
    flag: boolean,
    blob: bytes,
    list: array(u16),
    by: map(string),
    maybe: optional(string),
    either: nullish(string),
    none: nullable(u64),
    kind: enumOf("x", "y"),
    shape: taggedUnion("Shape", { dot: {}, line: { from: u64, to: optional(u64) } }),
  }));
  const value = fc.record(
    {
      text: fc.string(),
      flag: fc.boolean(),
      blob: fc.uint8Array(),
      list: fc.array(fc.integer({ min: 0, max: 0xffff })),
      by: fc.dictionary(fc.string(), fc.string()),
      maybe: fc.string(),
      either: fc.string(),
      none: fc.option(fc.nat()),
      kind: fc.constantFrom("x" as const, "y" as const),
      shape: fc.oneof(
        fc.record({ type: fc.constant("dot" as const) }),
        fc.record(
          { type: fc.constant("line" as const), from: fc.nat(), to: fc.nat() },
          { requiredKeys: ["type", "from"] },
        ),
      ),
    },
    { requiredKeys: ["text", "flag", "blob", "list", "by", "none", "kind", "shape"], noNullPrototype: true },
  );
  fc.assert(
    fc.property(value, (one) => {
      const wire: unknown = JSON.parse(JSON.stringify(schema.encode(one)));
      const back = schema.decode(wire);
      const plain = (all: Infer<typeof schema>) => ({
        ...all,
        blob: [...all.blob],
        by: Object.entries(all.by),
        shape: { ...all.shape },
      });
      assert.deepEqual(plain(back), plain(one));
    }),
  );
});
