import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { parseOptions } from "../../../src/cli/options/parse-options.ts";

const options = {
  tail: { type: "string", short: "n" },
  label: { type: "string", multiple: true },
  follow: { type: "boolean", short: "f" },
  "no-wait": { type: "boolean" },
} as const;

describe("parseOptions", () => {
  const mistakes: [args: string[], message: string][] = [
    [["file"], "unexpected argument `file`"],
    [["it's"], "unexpected argument `it's`"],
    [["--follow", "--", "--tail"], "unexpected argument `--tail`"],
    [["--"], ""],
    [["--tail"], "`-n, --tail` requires a value"],
    [["-n"], "`-n, --tail` requires a value"],
    [["--label"], "`--label` requires a value"],
    [["--tail", "-5"], "`--tail` requires a value; write `--tail=VALUE` if the value starts with a dash"],
    [["-n", "-5"], "`-n` requires a value; write `--tail=VALUE` if the value starts with a dash"],
    [["-fn", "--follow"], "`-n` requires a value; write `--tail=VALUE` if the value starts with a dash"],
    [["--tail", "-"], ""],
    [["--tail=-5", "--label=a 'b' --c", "-n-5", "--label="], ""],
    [["--follow=yes"], "`-f, --follow` takes no value"],
    [["--no-wait=it's"], "`--no-wait` takes no value"],
    [["--tial", "5"], "unknown option `--tial`; did you mean `--tail`?"],
    [["--it's"], "unknown option `--it's`"],
    [["--nonsense=x"], "unknown option `--nonsense`"],
    [["-fx"], "unknown option `-x`"],
    [["-fx", "file", "--tail"], "unknown option `-x`"],
    [["file", "-x"], "unexpected argument `file`"],
    [["-x", "it's"], "unknown option `-x`"],
  ];
  for (const [args, message] of mistakes)
    test(`${message === "" ? "accepts" : "rejects"} ${args.join(" ")}`, () => {
      const parse = () => parseOptions({ args, options });
      if (message === "") parse();
      else assert.throws(parse, { name: "UsageError", message });
    });

  test("names the first mistake, also with arguments and negative options", () => {
    const parse = (args: string[]) => parseOptions({ args, options, allowPositionals: true, allowNegative: true });
    parse(["file", "--no-follow", "--no-wait"]);
    assert.throws(() => parse(["file", "--no-tial", "-x"]), { message: "unknown option `--no-tial`" });
    assert.throws(() => parse(["file", "--no-tail"]), { name: "UsageError" });
  });

  test("rethrows an error of the options themselves", () => {
    const broken = { args: [], options: { "": { type: "number" as "string" } } };
    assert.throws(() => parseOptions(broken), { code: "ERR_INVALID_ARG_TYPE" });
  });
});
