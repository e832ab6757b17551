import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { API_GROUPS, apiDocument, CLIENT_GROUPS } from "../../scripts/docs/api-doc.ts";
import * as client from "../../src/client/browser.ts";

describe("API reference", { timeout: 600_000 }, () => {
  const document = apiDocument();
  const headings = new Set([...document.matchAll(/^### (\w+)$/gm)].map(([, name]) => name));
  const members = [...document.matchAll(/^- `([^`]*)`/gm)].map(([, text = ""]) => text);

  test("has a heading for every name that procwire exports", () => {
    const names = Object.values(API_GROUPS).flat();
    assert.deepEqual(
      names.filter((name) => !headings.has(name)),
      [],
    );
  });

  test("has a heading for every value that procwire/client exports", () => {
    assert.deepEqual(
      Object.keys(client).filter((name) => !headings.has(name)),
      [],
    );
  });

  test("lists the groups in order, and has no name without a group", () => {
    const sections = [...document.matchAll(/^## (.+)$/gm)].map(([, title]) => title);
    assert.deepEqual(sections, [
      "procwire",
      ...Object.keys(API_GROUPS),
      "procwire/client",
      ...Object.keys(CLIENT_GROUPS),
      "procwire/agents",
      "procwire/ai",
    ]);
  });

  test("shows members with signature and comment", () => {
    assert.match(
      document,
      /^- `spawn\(command: CommandInput, options\?: SpawnOptions.*\): Promise<SpawnedProcess>`: \w/m,
    );
  });

  test("shows no private and no @internal member", () => {
    assert.ok(members.length > 300, `only ${members.length} members`);
    assert.deepEqual(
      members.filter((text) => /^(static )?#|^(onResumed|onFailed)\(/.test(text)),
      [],
    );
  });

  test("shows how to create an environment", () => {
    assert.match(document, /^- `static create\(target: string \| EnvironmentTarget, .*\): Promise<Environment>`: \w/m);
  });

  test("shows no truncated type, no schema internals and no value that is not exported", () => {
    const types = [...document.matchAll(/^(?:- |Type: )?`([^`]*)`/gm)].map(([, text = ""]) => text);
    assert.deepEqual(
      types.filter((text) => text.includes("/*") || text.startsWith("|")),
      [],
      "comments of union members are next to their types",
    );
    assert.ok(types.length > 400);
    assert.deepEqual(
      types.filter((text) =>
        /…$|\.\.\. \d+ more|InferFields|Flat<|ObjectSchema<|\btypeof\b|^\w+: \{ \w+(, \w+)+ \}$/.test(text),
      ),
      [],
    );
  });
});
