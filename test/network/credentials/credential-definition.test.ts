import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  formatCredential,
  parseCredential,
  parseCredentialTables,
} from "../../../src/protocol/network/credential-definition.ts";

const KEY = {
  name: "API_KEY",
  domain: "api.example",
  allowsPlainHttp: false,
  header: "x-api-key",
  source: { type: "file", path: "/etc/a:b=c" },
} as const;

describe("parseCredential", () => {
  test("parses both sources, wildcards, addresses and plain HTTP", () => {
    assert.deepEqual(parseCredential("API_KEY=API.example:X-Api-Key:file:/etc/a:b=c"), KEY);
    const plain = parseCredential("T=http://[::1]:Authorization:env:TOKEN");
    assert.deepEqual(plain, {
      ...{ name: "T", domain: "::1", allowsPlainHttp: true, header: "authorization" },
      source: { type: "env", variable: "TOKEN" },
    });
    assert.equal(parseCredential("T=*.api.example:Cookie:env:T").domain, "*.api.example");
    for (const definition of [KEY, plain]) assert.deepEqual(parseCredential(formatCredential(definition)), definition);
  });

  for (const [text, problem] of [
    ["API_KEY", /is not a credential; give NAME=DOMAIN/],
    ["1X=api.example:A:env:T", /name `1X` is not a variable name/],
    ["X=*:A:env:T", /would give the secret to every host/],
    ["X=https://api.example:A:env:T", /X=https/],
    ["X=api.example:a b:env:T", /header `a b` is not a header name/],
    ["X=api.example:Host:env:T", /header `Host` belongs to the connection/],
    ["X=api.example:A:file:relative", /has a relative path/],
    ["X=api.example:A:vault:T", /source `vault:T` is unknown/],
    ["X=api.example:A:env:A-B", /source `env:A-B` is unknown/],
  ] as const)
    test(`rejects ${text}`, () => {
      assert.throws(() => parseCredential(text), problem);
    });
});

describe("parseCredentialTables", () => {
  const table = { name: "API_KEY", domain: "api.example", header: "X-Api-Key", source: "file:/etc/a:b=c" };
  test("parses the tables of a rules file", () => {
    assert.deepEqual(parseCredentialTables([table]), [KEY]);
  });

  for (const [tables, problem] of [
    [{}, /must be a list of tables/],
    [[1], /credential 1: not a table/],
    [[{ ...table, value: "x" }], /credential 1: unknown key `value`/],
    [[{ ...table, header: 1 }], /credential 1: `header` must be a string/],
    [[table, table], /credential `API_KEY` is defined twice/],
  ] as const)
    test(`rejects ${JSON.stringify(tables)}`, () => {
      assert.throws(() => parseCredentialTables(tables), problem);
    });
});
