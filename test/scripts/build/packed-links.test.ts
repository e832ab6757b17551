import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { withPackedLinks } from "../../../scripts/build/packed-links.ts";

const packed = new Set(["README.md", "docs/client.md", "docs/console.png"]);
const rewritten = (text: string, path: string) =>
  withPackedLinks(text, path, packed, "https://host.example/procwire/blob/v1.2.3");

describe("links of packed documents", () => {
  test("stay relative if the package contains the target", () => {
    for (const text of ["[client](docs/client.md#errors)", "![console](docs/console.png)", "[below](#limits)"])
      assert.equal(rewritten(text, "README.md"), text);
    assert.equal(rewritten("[readme](../README.md)", "docs/client.md"), "[readme](../README.md)");
  });

  test("stay absolute", () => {
    const text = "[site](https://site.example/a.md)";
    assert.equal(rewritten(text, "README.md"), text);
  });

  test("lead to the repository if the package lacks the target", () => {
    assert.equal(
      rewritten("[why](../docs/decisions/0001.md#context)", "docs/client.md"),
      "[why](https://host.example/procwire/blob/v1.2.3/docs/decisions/0001.md#context)",
    );
  });
});
