import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { apiDocument } from "../../scripts/api-doc.ts";
import * as client from "../../src/client/browser.ts";
import * as library from "../../src/index.ts";

describe("the API reference", { timeout: 120_000 }, () => {
  const document = apiDocument();

  it("has every value that the package exports", () => {
    const headings = new Set([...document.matchAll(/^### (\w+)$/gm)].map(([, name]) => name));
    const aliases = new Set(["ExecServerTransportParseError"]);
    for (const name of [...Object.keys(library), ...Object.keys(client)])
      assert.ok(headings.has(name) || aliases.has(name), `no heading for ${name}`);
  });

  it("has signatures and comments of members, and nothing that is internal", () => {
    assert.match(
      document,
      /^- `spawn\(command: Command, options\?: SpawnOptions.*\): Promise<SpawnedProcess>`: Starts a program/m,
    );
    assert.match(document, /^### copyFiles$/m);
    assert.doesNotMatch(document, /^- `(resumed|failed)\(/m);
  });
});
