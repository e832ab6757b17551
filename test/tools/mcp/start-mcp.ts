import assert from "node:assert/strict";
import { mkdtempSync, realpathSync, rmSync } from "node:fs";
import type { ClientOptions, ElicitRequestFormParams, ElicitResult } from "@modelcontextprotocol/client";
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { ENTRY } from "../../support/servers/run-cli.ts";

export type OnQuestion = (form: ElicitRequestFormParams) => ElicitResult | Promise<ElicitResult>;

/** Starts `procwire mcp` like a client's configuration, with a real client on its stdin and stdout. */
export async function startMcp(
  args: string[] = [],
  options: ClientOptions = {},
  onQuestion?: OnQuestion,
  env: Record<string, string> = {},
) {
  const directory = realpathSync(mkdtempSync("/var/tmp/procwire-mcp-"));
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [ENTRY, "mcp", "--cwd", directory, "--shell", "/bin/bash", ...args],
    env: { PATH: process.env.PATH ?? "", HOME: directory, ...env },
  });
  const client = new Client({ name: "test", version: "1" }, options);
  if (onQuestion)
    client.setRequestHandler("elicitation/create", async ({ params }) => {
      assert.ok(params.mode !== "url");
      return onQuestion(params);
    });
  await client.connect(transport);
  const call = async (
    name: string,
    given: Record<string, unknown> = {},
    options: Parameters<typeof client.callTool>[1] = {},
  ) => {
    const { content, isError } = await client.callTool({ name, arguments: given }, options);
    const [first] = content;
    assert.ok(first?.type === "text");
    return { text: first.text, isError: isError ?? false };
  };
  return {
    client,
    directory,
    call,
    pid: () => transport.pid ?? 0,
    async [Symbol.asyncDispose]() {
      await client.close();
      rmSync(directory, { recursive: true, force: true, maxRetries: 10 });
    },
  };
}
