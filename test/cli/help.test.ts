import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { manPage } from "../../scripts/docs/man-page.ts";
import { type Command, UsageError } from "../../src/cli/command.ts";
import { connectHelp } from "../../src/cli/help/connect-help.ts";
import { renderCommandList, renderHelp } from "../../src/cli/help/help-page.ts";
import { COMMAND_SUMMARIES, subcommandSummaries, summaryOf } from "../../src/cli/help/summaries.ts";
import { COMMANDS } from "../../src/cli/main.ts";
import { CONNECT_OPTIONS } from "../../src/cli/options/connect-options.ts";
import { parseOptions } from "../../src/cli/options/parse-options.ts";
import { listedFlags } from "../../src/cli/options/pick-flags.ts";
import { runMain } from "../support/servers/run-main.ts";

/** All commands and subcommands, by their words. */
const commands = new Map<string, Command>();
for (const [name, load] of Object.entries(COMMANDS)) {
  const { command } = await load();
  commands.set(name, command);
  for (const [subcommand, open] of Object.entries(command.subcommands ?? {}))
    commands.set(`${name} ${subcommand}`, await open());
}

/** Splits a command line into words, as a shell does, and returns those of the procwire command in it. */
function procwireWords(line: string): string[] {
  const joined = line.replaceAll("\\\n", " ");
  const start = joined.indexOf("procwire ");
  const words = Array.from(
    joined.slice(start + "procwire ".length).matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g),
    ([, single, double, plain]) => single ?? double ?? plain ?? "",
  );
  const end = words.findIndex((word) => /^(?:[|&<>]|2>|--$)|\)$/.test(word));
  return (end < 0 ? words : words.slice(0, end)).map((word) => word.replace(/\)$/, ""));
}

/** Returns the command of these words and the arguments after them. */
function findCommand(words: readonly string[]): { command: Command; args: string[] } {
  const two = commands.get(words.slice(0, 2).join(" "));
  if (two) return { command: two, args: words.slice(2) };
  const command = commands.get(words[0] ?? "") ?? assert.fail(`unknown command: ${words.join(" ")}`);
  return { command, args: words.slice(1) };
}

describe("help pages", () => {
  for (const [words, { name, help, options }] of commands) {
    test(`${words}: has at most 80 columns, options in groups and three examples that parse`, () => {
      assert.equal(name, words);
      const page = renderHelp(name, help);
      for (const line of page.split("\n")) assert.ok(line.length <= 80, line);
      assert.match(page, new RegExp(`^Usage: procwire ${words}`));

      const listed = listedFlags(help.options);
      const accepted = Object.keys(options).filter((flag) => !help.connection || !Object.hasOwn(CONNECT_OPTIONS, flag));
      assert.deepEqual(listed.toSorted(), accepted.toSorted(), "the page lists the options that the parser accepts");
      for (const [title, rows] of Object.entries(help.options)) {
        assert.ok(title !== "Options" && title !== "", "a group has a title that says what it groups");
        assert.ok(rows.length <= 12, `${title} is too long`);
      }
      assert.equal(page.includes("\nConnection options: see `procwire help connect`.\n"), help.connection === true);

      assert.ok(help.examples.length >= 3, "three examples");
      for (const [line] of help.examples) {
        const found = findCommand(procwireWords(line));
        parseOptions({ args: found.args, options: found.command.options, allowPositionals: true });
      }
    });
  }

  test("all options of the connection are on `help connect`", () => {
    const page = connectHelp();
    for (const line of page.split("\n")) assert.ok(line.length <= 80, line);
    for (const flag of Object.keys(CONNECT_OPTIONS)) assert.match(page, new RegExp(`^  --${flag}\\b`, "m"));
  });

  test("an example with an unknown option would fail", () => {
    const { command, args } = findCommand(procwireWords("procwire ps --nonsense"));
    assert.throws(() => parseOptions({ args, options: command.options }), UsageError);
  });

  test("the summary of a command is the same in help, manual page, completion and docs/commands.md", async () => {
    const list = renderCommandList();
    for (const line of list.split("\n")) assert.ok(line.length <= 80, line);
    const document = readFileSync("docs/commands.md", "utf8");
    const manual = (await manPage()).replaceAll("\\-", "-");
    for (const [words, { name, help }] of commands) {
      const summary = summaryOf(name);
      assert.notEqual(summary, "", words);
      const sentence = `\n\n${summary.charAt(0).toUpperCase()}${summary.slice(1)}.\n\n`;
      assert.ok(renderHelp(name, help).includes(sentence), words);
      assert.ok(manual.includes(sentence), `manual page: ${words}`);
      assert.ok(document.includes(`| \`procwire ${words}\` | ${summary} |\n`), `docs/commands.md: ${words}`);
      if (!words.includes(" ")) assert.ok(list.includes(`\n  ${words.padEnd(10)}  ${summary}\n`), words);
    }
    const documented = document.match(/^\| `procwire [a-z ]+` \|/gm)?.length;
    assert.equal(documented, commands.size);
    assert.deepEqual([...COMMAND_SUMMARIES.keys()].toSorted(), Object.keys(COMMANDS).toSorted());
  });

  test("`COMMAND SUBCOMMAND --help` and `help COMMAND SUBCOMMAND` print the page of the subcommand", async () => {
    const subcommands = Array.from(commands.keys()).filter((words) => words.includes(" "));
    assert.equal(
      subcommands.length,
      Object.keys(COMMANDS).flatMap((name) => Object.keys(subcommandSummaries(name))).length,
    );
    const outcomes = await runMain(
      subcommands.flatMap((words) => [
        [...words.split(" "), "--help"],
        ["help", ...words.split(" ")],
      ]),
      { cwd: "/" },
    );
    for (const [index, words] of subcommands.entries()) {
      const { name, help } = commands.get(words) ?? assert.fail(words);
      const expected = { code: 0, stdout: renderHelp(name, help), stderr: "" };
      for (const outcome of outcomes.slice(index * 2, index * 2 + 2)) assert.deepEqual(outcome, expected, words);
    }
  });
});
