import type { ClientOptions } from "@modelcontextprotocol/client";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { ENTRY } from "../../support/servers/run-cli.ts";
import { ServeChild } from "../../support/servers/serve.ts";

/** `procwire mcp --http`, with its URL. */
export function startHttp(...args: string[]): Promise<ServeChild> {
  return startHttpWith([process.execPath, ENTRY], args);
}

/** `procwire mcp --http` by the command line of another program or user. */
export async function startHttpWith(
  [program, ...before]: readonly [string, ...string[]],
  args: readonly string[],
  options: { env?: Record<string, string> } = {},
): Promise<ServeChild> {
  const command: [string, ...string[]] = [program, ...before, "mcp", "--http", "127.0.0.1:0"];
  const server = new ServeChild(["--shell", "/bin/bash", ...args], { command, ...options });
  let stdout = "";
  await new Promise<void>((resolve, reject) => {
    server.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
      if (stdout.includes("\n")) resolve();
    });
    void server.exited.then(() => reject(new Error(server.stderr)));
  });
  server.url = stdout.trim();
  return server;
}

/** The official client, connected to it. */
export async function connectHttp(url: string, token?: string, options: ClientOptions = {}): Promise<Client> {
  const client = new Client({ name: "test", version: "1" }, options);
  const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return client;
}
