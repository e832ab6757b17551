import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runInNewContext } from "node:vm";
import { checkInputData, toInputBytes } from "../../../src/exec/options/input-bytes.ts";
import { findNearestName } from "../../../src/exec/options/nearest-name.ts";
import {
  abortSignal,
  amount,
  anyObject,
  callback,
  checkArgument,
  checkOptions,
  count,
  described,
  describeValue,
  duration,
  either,
  flag,
  listOf,
  mapOf,
  milliseconds,
  number,
  type OptionKind,
  objectWith,
  optionsOf,
  required,
  secretSource,
  secretText,
  smallCount,
  text,
  variantsOf,
} from "../../../src/exec/options/option-schema.ts";
import {
  checkCall,
  checkEvents,
  checkKill,
  checkRead,
  checkResize,
  checkSignal,
  checkStart,
  checkTerminate,
  checkWait,
  checkWrite,
} from "../../../src/exec/options/process-checks.ts";

const SIZE = { rows: 1, cols: 1 };
const BAD = { unknown: 1 };

describe("process checks", () => {
  test("accept valid arguments", () => {
    checkStart({ processId: "p", argv: ["x"], cwd: "/", env: { A: "b", C: undefined }, tty: false });
    checkCall("signal", {});
    checkEvents(undefined);
    checkEvents({ afterSeq: 1, lossless: true });
    checkRead({ afterSeq: 1 });
    checkWait({});
    checkWrite("x", {});
    checkResize(SIZE, {});
    checkSignal("SIGTERM", {});
    checkKill("SIGTERM", {});
    checkTerminate(undefined, {});
    checkTerminate({ type: "graceful", timeoutMs: 5 }, {});
  });

  test("name the operation and the argument that they reject", () => {
    const calls: [() => void, string][] = [
      [() => checkStart(null), "start: invalid `params`: got null"],
      [() => checkStart({}), "start: missing `processId`"],
      [() => checkCall("signal", BAD), "signal: unknown option `unknown`"],
      [() => checkEvents(BAD), "events: unknown option `unknown`"],
      [() => checkRead(5), "read: invalid `params`: got 5"],
      [() => checkWait(5), "wait: invalid `params`: got 5"],
      [() => checkWrite(5, {}), "write: invalid `data`: got 5"],
      [() => checkWrite("x", BAD), "write: unknown option `unknown`"],
      [() => checkResize({ rows: 1 }, {}), "resize: missing `size.cols`"],
      [() => checkResize(SIZE, BAD), "resize: unknown option `unknown`"],
      [() => checkSignal(5, {}), "signal: invalid `name`: got 5, expected a signal name such as SIGTERM"],
      [() => checkSignal("SIGTERM", BAD), "signal: unknown option `unknown`"],
      [() => checkKill(5, {}), "kill: invalid `signal`: got 5"],
      [() => checkKill("SIGTERM", BAD), "kill: unknown option `unknown`"],
      [() => checkTerminate({ type: "graceful" }, {}), "terminate: missing `mode.timeoutMs`"],
      [() => checkTerminate(undefined, BAD), "terminate: unknown option `unknown`"],
    ];
    for (const [call, message] of calls)
      assert.throws(call, (error) => error instanceof Error && error.message.startsWith(message), message);
  });
});

describe("input data", () => {
  test("is a string, a view or a buffer, also of another realm", () => {
    const bytes = Uint8Array.of(1, 2, 3, 4);
    const foreign: ArrayBuffer = runInNewContext("Uint8Array.of(1, 2, 3, 4).buffer");
    const shared = new SharedArrayBuffer(4);
    new Uint8Array(shared).set(bytes);
    for (const data of ["ä", bytes, new DataView(bytes.buffer, 1, 2), bytes.buffer, foreign, shared])
      checkInputData("write", "data", data);
    for (const data of [5, null, undefined, {}, [1]])
      assert.throws(
        () => checkInputData("write", "data", data),
        /write: (invalid|missing) `data`.*expected a string, a/,
      );
    assert.deepEqual([...toInputBytes("ä")], [0xc3, 0xa4]);
    assert.equal(toInputBytes(bytes), bytes);
    assert.deepEqual([...toInputBytes(new DataView(bytes.buffer, 1, 2))], [2, 3]);
    assert.deepEqual([...toInputBytes(bytes.buffer)], [1, 2, 3, 4]);
    assert.deepEqual([...toInputBytes(foreign)], [1, 2, 3, 4]);
  });

  test("is copied from shared memory only", () => {
    const shared = new Uint8Array(new SharedArrayBuffer(1));
    const own = new Uint8Array(1);
    const [sharedBytes, ownBytes] = [toInputBytes(shared), toInputBytes(own.buffer)];
    shared[0] = 1;
    own[0] = 1;
    assert.deepEqual([sharedBytes[0], ownBytes[0]], [0, 1]);
  });
});

describe("option kinds", () => {
  const accepts = (kind: OptionKind, value: unknown) => kind.findProblem(value) === null;
  const kinds: [string, OptionKind, unknown[], unknown[]][] = [
    ["text", text, ["", "a"], [1, null]],
    ["secretText", secretText, ["a"], [1]],
    ["secretSource", secretSource, ["a", () => "a"], [1]],
    ["flag", flag, [true, false], [0, "true"]],
    ["callback", callback, [() => 1], [{}]],
    ["count", count, [0, 1], [-1, 0.5, 2 ** 53, "1"]],
    ["milliseconds", milliseconds, [0, 1], [-1, 0.5, 2 ** 53]],
    ["duration", duration, [0, 0.5, Number.POSITIVE_INFINITY], [-1, Number.NaN, "1"]],
    ["amount", amount, [0, 0.5], [-1, Number.NaN, "1"]],
    ["number", number, [-1, 0.5], [Number.NaN, "1"]],
    ["smallCount", smallCount, [0, 65_535], [-1, 65_536, 0.5]],
    ["anyObject", anyObject, [{}, []], [null, 1]],
    ["abortSignal", abortSignal, [AbortSignal.abort()], [{}, null, { aborted: true }, { addEventListener: () => 1 }]],
    ["objectWith", objectWith("a pair", "a", "b"), [{ a: () => 1, b: () => 1 }], [{ a: () => 1 }, null, 1]],
    ["mapOf", mapOf(text, "a map"), [{ a: "b", c: undefined }], [{ a: 1 }, [], null]],
    ["described", described(text, "a path"), ["a"], [1]],
  ];
  for (const [name, kind, valid, invalid] of kinds)
    test(`${name} accepts its values and no others`, () => {
      for (const value of valid) assert.equal(accepts(kind, value), true, describeValue(value));
      for (const value of invalid) assert.equal(accepts(kind, value), false, describeValue(value));
    });

  test("keep secrets out of errors", () => {
    for (const kind of [secretText, secretSource])
      assert.throws(
        () => checkArgument("connect", "token", 12_345, kind),
        /connect: invalid `token`: got a number, expected a string/,
      );
  });

  test("describe values", () => {
    const described = [
      null,
      [],
      {},
      Object.create(null),
      new Map(),
      new (class {})(),
      1n,
      undefined,
      true,
      "x".repeat(40),
    ];
    assert.deepEqual(described.map(describeValue), [
      ...["null", "an array", "an object", "an object", "an instance of Map", "an object", "1n", "undefined", "true"],
      `"${"x".repeat(40)}"`,
    ]);
  });

  test("name the path of a value in nested objects, lists and variants", () => {
    const variants = variantsOf({ a: { list: listOf(text, "a list") }, b: {} });
    const nested = optionsOf<{ one: unknown }>(() => ({
      one: required(either("a text or an object", text, variants)),
    }));
    const check = (value: unknown) => () => checkOptions("do", value, nested);
    assert.doesNotThrow(check({ one: { type: "a", list: ["x"] } }));
    assert.throws(check({ one: { type: "a", list: ["x", 1] } }), { message: /^do: invalid `one.list.1`: got 1/ });
    assert.throws(check({ one: 5 }), { message: "do: invalid `one`: got 5, expected a text or an object" });
    assert.throws(check({ one: {} }), { message: 'do: missing `one.type`; expected "a" or "b"' });
    assert.throws(check({ one: { type: 1 } }), { message: 'do: invalid `one.type`: got 1, expected "a" or "b"' });
    assert.throws(() => checkArgument("do", "it", 5, variants), {
      message: 'do: invalid `it`: got 5, expected an object with type "a" or "b"',
    });
    assert.throws(() => checkOptions("do", 5, nested, "params"), { message: /^do: invalid `params`: got 5/ });
  });
});

describe("findNearestName", () => {
  test("accepts a third of the characters as typing errors, at least two, and prefers the smallest distance", () => {
    const find = (name: string, ...known: string[]) => findNearestName(name, known);
    assert.equal(find("abcd", "abxy"), "abxy");
    assert.equal(find("abcd", "axyz"), null);
    assert.equal(find("abcdefghi", "abcdefxyz"), "abcdefxyz");
    assert.equal(find("abcdefghi", "abcdewxyz"), null);
    assert.equal(find("abcd", "abxy", "abcx"), "abcx");
    assert.equal(find("abcd", "abcx", "abcy"), "abcx");
    assert.equal(find("abcd", "bcd", "abxcd"), "bcd");
    // An abbreviation has at least three characters.
    assert.equal(find("abc", "abcdefghijkl"), "abcdefghijkl");
    assert.equal(find("ab", "abcdefghijkl"), null);
    assert.equal(find("abcdefghijkl", "abc"), "abc");
    assert.equal(find("", "ab"), "ab");
    assert.equal(find("bac", "abc"), "abc");
  });
});
