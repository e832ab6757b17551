import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { parseLargeJson, parseLargeMessage } from "../../src/native/large-messages.ts";
import { decodeBase64, InvalidBase64 } from "../../src/protocol/base64.ts";
import { MAX_JSON_DEPTH, MAX_JSON_VALUES, parseJsonText } from "../../src/protocol/json-text.ts";
import { addon, NO_ADDON } from "./started.ts";

const KIB = 1024;
const MIB = 1024 * KIB;

async function parse(text: string | Buffer): Promise<unknown> {
  return await parseLargeJson(addon(), Buffer.from(text));
}

/** Inserts white space between the tokens of compact JSON, and escapes letters of its strings. */
function reformatted(value: unknown, spaces: string[]): string {
  let at = 0;
  const space = () => spaces[at++ % Math.max(1, spaces.length)] ?? "";
  return JSON.stringify(value, null, 1)
    .split("\n")
    .map((line) => line.trim().replace(/o/g, space() === "" ? "o" : "\\u006f"))
    .join(`${space()}\n${space()}`);
}

describe("A large message", { skip: NO_ADDON }, () => {
  test("has the value that JSON.parse returns", async () => {
    const spaces = fc.array(fc.constantFrom("", " ", "\t", "\r\n", " ".repeat(9)), { maxLength: 5 });
    const anyJson = fc.jsonValue({ maxDepth: 5, noUnicodeString: false });
    await fc.assert(
      fc.asyncProperty(anyJson, spaces, async (value, between) => {
        const text = reformatted(value, between);
        const parsed = await parseLargeJson(addon(), Buffer.from(text));
        assert.deepEqual(parsed?.ok && parsed.value, JSON.parse(text));
      }),
      { numRuns: 60 },
    );
  });

  test("is valid where JSON.parse accepts it, wherever it is cut or changed", async () => {
    const anyJson = fc.jsonValue({ maxDepth: 3 });
    const insertion = fc.constantFrom(
      "",
      '"',
      "\\",
      ",",
      ":",
      "}",
      "]",
      "0",
      "-",
      ".",
      "e",
      "\u0001",
      "\\ud800",
      "é",
      "t",
    );
    await fc.assert(
      fc.asyncProperty(anyJson, fc.nat(), fc.nat(3), insertion, async (value, at, cut, inserted) => {
        const whole = JSON.stringify(value);
        const from = at % (whole.length + 1);
        const text = Buffer.from(whole.slice(0, from) + inserted + whole.slice(from + cut)).toString();
        const [ours, general] = [await parseLargeJson(addon(), Buffer.from(text)), parseJsonText(text)];
        assert.equal(ours?.ok, general.ok, `${text}: ${ours?.ok === false ? ours.problem : ""}`);
        if (ours.ok && general.ok) assert.deepEqual(ours, general);
      }),
      { numRuns: 500 },
    );
  });

  test("may contain long strings with escapes and any characters", async () => {
    const unit = 'é"\\\n\u0001😀/';
    const text = unit.repeat(Math.ceil((2 * MIB) / Buffer.byteLength(unit)));
    const escaped = JSON.stringify({ text, list: [text] })
      .replaceAll("😀", "\\ud83d\\ude00")
      .replaceAll("/", "\\/");
    assert.deepEqual(await parse(escaped), { ok: true, value: { text, list: [text] }, idLiteral: null });
  });

  test("keeps the text of its id, and a member named __proto__", async () => {
    const parsed = await parse('{"params":{"id":7,"__proto__":1},"id":1.0}');
    assert.deepEqual(parsed, {
      ok: true,
      value: JSON.parse('{"params":{"id":7,"__proto__":1},"id":1.0}'),
      idLiteral: "1.0",
    });
  });

  test("has the base64 of params decoded, or its problem", async () => {
    for (const [bytes, damage] of [
      [9000, ""],
      [9001, ""],
      [9002, ""],
      [9000, "!"],
      [9000, "="],
      [9001, "é"],
    ] as const) {
      const base64 = Buffer.alloc(bytes, "abc").toString("base64") + damage;
      const message = JSON.stringify({ id: 1, method: "fs/writeFile", params: { dataBase64: base64, other: base64 } });
      const parsed = await parseLargeMessage(addon(), Buffer.from(message));
      assert.ok(parsed?.ok && parsed.message.type === "request");
      const { dataBase64, other } = parsed.message.params as Record<string, unknown>;
      const expected = decodeBase64(base64);
      if (expected.ok) assert.deepEqual(Buffer.from(dataBase64 as Uint8Array), Buffer.from(expected.bytes));
      else assert.deepEqual(dataBase64, new InvalidBase64(expected.problem));
      assert.equal(other, base64);
    }
  });

  test("is rejected like a small one beyond the limits and with duplicate keys", async () => {
    const texts = [
      `[${"0,".repeat(MAX_JSON_VALUES)}0]`,
      "[".repeat(MAX_JSON_DEPTH + 1),
      '{"a":{"b":1,"c":2,"\\u0062":3}}',
    ];
    for (const text of texts) {
      const [ours, general] = [await parse(text), parseJsonText(text)] as { ok: boolean; problem: string }[];
      assert.equal(general?.ok, false);
      assert.equal(ours?.problem.split(" at ")[0], general?.problem.split(" at ")[0]);
    }
    assert.deepEqual(await parse(Buffer.from([0x22, 0xc3, 0x22])), null);
    const long = {
      key: `{"${"k".repeat(MIB + 1)}":1}`,
      number: "1".repeat(5000),
      surrogate: `"${"\\ud800".repeat(20_000)}"`,
    };
    for (const [name, text] of Object.entries(long))
      assert.match(((await parse(text)) as { problem: string }).problem, new RegExp(name));
  });

  test("returns to the event loop every 4096 tokens and every MiB of strings", async () => {
    const count = async (value: unknown) => {
      let slices = 0;
      const message = Buffer.from(JSON.stringify(value));
      await parseLargeJson(addon(), message, async () => void slices++);
      return slices;
    };
    assert.equal(await count(Array.from({ length: 40_960 - 2 }, () => 0)), 10);
    // One slice per MiB of a long string, and one after it.
    assert.equal(await count("x".repeat(20 * MIB)), 21);
    assert.equal(await count(Array.from({ length: 10 }, () => "y".repeat(512 * KIB))), 5);
  });
});
