import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { noSandbox } from "../../sandbox/sandbox-fixture.ts";
import { ENTRY } from "../../support/servers/run-cli.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { connectHttp, startHttp } from "./http-mcp.ts";
import { startMcp } from "./start-mcp.ts";

/** Runs the examples of docs/mcp.md unchanged. */

const PAGE = readFileSync(new URL("../../../docs/mcp.md", import.meta.url), "utf8");

function block(language: string): string {
  const found = new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\``, "ms").exec(PAGE)?.[1];
  assert.ok(found, `docs/mcp.md has no ${language} block`);
  return found;
}

const RULES = block("toml");
/** The arguments of each line after `procwire mcp`. */
const STARTS = block("sh")
  .trim()
  .split("\n")
  .map((line) => {
    assert.match(line, /^procwire mcp /);
    return line.split(" ").slice(2);
  });

async function connectStdio(args: readonly string[], cwd: string): Promise<Client> {
  const client = new Client({ name: "test", version: "1" });
  const env = { PATH: process.env.PATH ?? "", HOME: cwd, SHELL: "/bin/bash" };
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [ENTRY, ...args], cwd, env }));
  return client;
}

async function runs(client: Client, cmd: string): Promise<boolean> {
  const { isError } = await client.callTool({ name: "exec_command", arguments: { cmd } });
  return !isError;
}

describe("docs/mcp.md", { timeout: 600_000 }, () => {
  test("its configuration starts a server whose commands run", { skip: noSandbox }, async () => {
    using directory = scratchDirectory();
    const { mcpServers } = JSON.parse(block("json"));
    const { command, args } = mcpServers.procwire;
    assert.equal(command, "procwire");
    const client = await connectStdio(args, directory.path);
    assert.ok(await runs(client, "echo hello >file && cat file"));
    await client.close();
  });

  for (const args of STARTS)
    test(`\`procwire mcp ${args.join(" ")}\` starts, and a command runs`, {
      skip: args.includes("--sandbox") && noSandbox,
    }, async () => {
      using directory = scratchDirectory();
      writeFileSync(join(directory.path, "rules.toml"), RULES);
      if (args[0] === "--http") {
        await using server = await startHttp(...args.slice(2));
        const client = await connectHttp(server.url);
        assert.ok(await runs(client, "echo hello"));
        await client.close();
        return;
      }
      const client = await connectStdio(["mcp", ...args], directory.path);
      assert.ok(await runs(client, "echo hello"));
      await client.close();
    });

  test("its rules decide about each command as its table states", async () => {
    const rows = [...PAGE.matchAll(/^\| `(.+)` \| (\w+) \| (\w+) \|$/gm)];
    assert.ok(rows.length >= 8);
    using directory = scratchDirectory();
    const rules = join(directory.path, "rules.toml");
    writeFileSync(rules, RULES);
    let promptCount = 0;
    const asking = { capabilities: { elicitation: { form: {} } } };
    await using plain = await startMcp(["--rules", rules]);
    await using asks = await startMcp(["--rules", rules, "--ask"], asking, () => {
      promptCount++;
      return { action: "accept", content: { decision: "allow once" } };
    });
    for (const [, cmd = "", without, withAsk] of rows) {
      const first = await plain.call("exec_command", { cmd });
      assert.equal(first.isError ? "refused" : "runs", without, `${cmd}: ${first.text}`);
      const before = promptCount;
      const second = await asks.call("exec_command", { cmd });
      const outcome = promptCount > before ? "asks" : second.isError ? "refused" : "runs";
      assert.equal(outcome, withAsk, `${cmd}: ${second.text}`);
    }
  });
});
