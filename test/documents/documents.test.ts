import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { type ServeChild, serve } from "../support/servers/serve.ts";
import { runSnippet, snippetsOf } from "../support/system/document-snippets.ts";

describe("the programs in the documents print the documented output", { timeout: 600_000 }, () => {
  let server: ServeChild;
  before(async () => {
    server = await serve();
  });
  after(() => server.stop());

  for (const document of ["client.md", "browser.md", "copy.md", "forward.md", "mcp-clients.md"]) {
    for (const [index, { code, prints }] of snippetsOf(document).entries()) {
      test(`${document}, program ${index + 1}`, () => {
        assert.equal(runSnippet(code, { url: server.url }), prints);
      });
    }
  }

  test("mcp-clients.md shows the command that its program starts", () => {
    const text = readFileSync(new URL("../../docs/mcp-clients.md", import.meta.url), "utf8");
    const [, json = ""] = /```json\n([\s\S]*?)```/.exec(text) ?? [];
    const { procwire } = JSON.parse(json).mcpServers;
    const { command, args } = procwire as { command: string; args: string[] };
    assert.ok(text.includes(`{ command: "${command}", args: ${JSON.stringify(args)} }`));
  });
});
