import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { noCodex } from "./codex-run.ts";
import { CALLS, type CallCase, EVENTS, type EventCase, runCalls, runEvents } from "./tool-texts.ts";

/**
 * Compares the texts that a model and a program read from the real `codex exec` and from `procwire exec` for the same
 * calls. Every difference must be listed with its reason, and every listed difference must occur. `UPDATE=1` rewrites
 * the table.
 */

const TABLE = fileURLToPath(new URL("./tool-texts.md", import.meta.url));

interface Row {
  what: string;
  real: string;
  ours: string;
  because: string | undefined;
}

describe("the same calls on the real Codex and on procwire", { skip: noCodex, concurrency: false }, () => {
  const rows: Row[] = [];

  test("models read the same texts", async () => {
    const [real, ours] = [await runCalls("codex"), await runCalls("procwire")];
    for (const [index, { name, args, because }] of CALLS.entries()) {
      const shown = typeof args === "string" ? args : JSON.stringify(args);
      const row = { what: `${name} ${shown}`, real: real[index] ?? "", ours: ours[index] ?? "", because };
      rows.push(row);
    }
    check(rows, CALLS);
  });

  test("programs read the same events", async () => {
    const events: Row[] = [];
    for (const one of EVENTS) {
      const [real, ours] = [await runEvents("codex", one), await runEvents("procwire", one)];
      events.push({ what: one.what, real: real.join("\n"), ours: ours.join("\n"), because: one.because });
    }
    rows.push(...events);
    check(events, EVENTS);
  });

  test("the table matches the observed texts", () => {
    const table = formatTable(rows);
    if (process.env.UPDATE) writeFileSync(TABLE, table);
    assert.equal(readFileSync(TABLE, "utf8"), table, "run it with UPDATE=1 and look at what changed");
  });
});

function check(rows: readonly Row[], cases: readonly (CallCase | EventCase)[]): void {
  for (const [index, { what, real, ours }] of rows.entries()) {
    if (cases[index]?.because === undefined) assert.equal(ours, real, what);
    else assert.notEqual(ours, real, `${what}: the listed difference is gone`);
  }
}

function formatTable(rows: readonly Row[]): string {
  const same = rows.filter(({ real, ours }) => real === ours);
  const others = rows.filter(({ real, ours }) => real !== ours);
  return [
    "# Texts that models and programs read: Codex 0.166.0 and procwire",
    "",
    "Written by `UPDATE=1 npm run test:interop`; the run fails on a difference that is not listed here with its reason. Removed",
    "before comparing: ids, times, and procwire's own lines before `Output:`.",
    "",
    `## The same (${same.length})`,
    "",
    ...same.map(({ what }) => `- ${inline(what)}`),
    "",
    `## Different (${others.length})`,
    ...others.flatMap(({ what, real, ours, because }) => [
      "",
      `### ${inline(what)}`,
      "",
      `Because ${because}.`,
      "",
      "```text",
      `codex:    ${real.replaceAll("\n", "\n          ")}`,
      `procwire: ${ours.replaceAll("\n", "\n          ")}`,
      "```",
    ]),
    "",
  ].join("\n");
}

function inline(text: string): string {
  return `\`${text.replaceAll("`", "'").replaceAll("\n", "\\n")}\``;
}
