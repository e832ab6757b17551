import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { readEnvironmentsToml } from "../../src/index.ts";
import { type ServeChild, scratchDirectory, serve } from "../support/servers/serve.ts";
import { runSnippets, snippetsOf } from "../support/system/document-snippets.ts";

describe("the programs in the documents print the documented output", { timeout: 600_000 }, () => {
  let server: ServeChild;
  before(async () => {
    server = await serve();
  });
  after(() => server.stop());

  for (const document of ["client.md", "browser.md", "copy.md", "forward.md", "mcp-clients.md"]) {
    test(document, () => {
      const snippets = snippetsOf(document);
      const outputs = runSnippets(
        snippets.map(({ code }) => code),
        { url: server.url },
      );
      for (const [index, { prints }] of snippets.entries())
        if (prints !== null) assert.equal(outputs[index], prints, `program ${index + 1}`);
    });
  }

  test("mcp-clients.md shows the command that its program starts", () => {
    const text = readFileSync(new URL("../../docs/mcp-clients.md", import.meta.url), "utf8");
    const [, json = ""] = /```json\n([\s\S]*?)```/.exec(text) ?? [];
    const { procwire } = JSON.parse(json).mcpServers;
    const { command, args } = procwire as { command: string; args: string[] };
    assert.ok(text.includes(`{ command: "${command}", args: ${JSON.stringify(args)} }`));
  });

  test("codex.md shows a valid environments.toml", async () => {
    const text = readFileSync(new URL("../../docs/codex.md", import.meta.url), "utf8");
    const [, toml = ""] = /```toml\n([\s\S]*?)```/.exec(text) ?? [];
    using scratch = scratchDirectory();
    const path = join(scratch.path, "environments.toml");
    writeFileSync(path, toml);
    const { environments, defaultId } = await readEnvironmentsToml(path);
    assert.deepEqual([defaultId, environments.map(({ id }) => id)], ["build", ["build", "pipe"]]);
  });

  test("client.md lists every error code", () => {
    const text = readFileSync(new URL("../../docs/client.md", import.meta.url), "utf8");
    const source = readFileSync(new URL("../../src/protocol/exec-server-error.ts", import.meta.url), "utf8");
    const [, union = ""] = /export type ExecServerErrorCode =([^;]*);/.exec(source) ?? [];
    const codes = Array.from(union.matchAll(/"([A-Z]+)"/g), ([, code]) => code);
    const [, table = ""] = /^\| code \|.*\n([\s\S]*)/m.exec(text) ?? [];
    assert.ok(codes.length > 10);
    assert.deepEqual(
      codes.filter((code) => !table.includes(`\`${code}\``)),
      [],
    );
  });
});
