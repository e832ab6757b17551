import assert from "node:assert/strict";
import { test } from "node:test";
import { parseNpmErrorCode } from "../../../src/host/package/npm-compat.ts";

test("parseNpmErrorCode returns the code in the output of npm 10 and of earlier versions", () => {
  const npm10 = "npm error code E404\nnpm error 404 Not Found - GET https://registry.test/@procwire%2fx\n";
  assert.equal(parseNpmErrorCode(npm10), "E404");
  assert.equal(
    parseNpmErrorCode("npm warn config old\nnpm ERR! code ETARGET\nnpm ERR! notarget No match\n"),
    "ETARGET",
  );
});

test("parseNpmErrorCode returns null for other output", () => {
  for (const text of [
    "",
    "npm notice code E404",
    "npm error network code E404",
    " npm error code E404",
    "npm error code",
  ])
    assert.equal(parseNpmErrorCode(text), null, text);
});
