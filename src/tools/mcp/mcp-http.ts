import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { toError } from "../../base/error-message.ts";
import { bracketHost } from "../../base/ip-address.ts";
import type { Tool } from "../tool.ts";
import { McpCalls } from "./mcp-calls.ts";
import { McpHttpClients, type McpServers } from "./mcp-http-clients.ts";
import { serverFactory } from "./mcp-server.ts";

/** Path of the endpoint, as in the examples of the MCP specification. */
const PATH = "/mcp";

/**
 * Calls `listener` once when the token of a request expires, is revoked or is removed. Returns the function that removes the
 * listener, or null if the token has ended already.
 */
export type CredentialEnd = (listener: () => void) => (() => void) | null;

export type HttpAuthResult =
  | { type: "admitted"; principal: string; onEnd?: CredentialEnd | undefined }
  | { type: "refused"; status: number; reason: string };

export interface HttpListenOptions {
  host: string;
  port: number;
  /** Authenticates a request by its headers. Called first for every request. */
  authenticate: (request: IncomingMessage) => Promise<HttpAuthResult>;
  onError?: (error: Error) => void;
}

export interface McpHttpOptions extends HttpListenOptions {
  name: string;
  version: string;
  /** Returns the tools of a principal, whose clients share them and their exec sessions. Called once per principal. */
  toolsFor: (principal: string) => readonly Tool[];
}

export interface McpHttpServer {
  url: string;
  close(): Promise<void>;
}

/** Serves tools over Streamable HTTP. Loads the MCP library on demand. */
export async function serveMcpHttp(options: McpHttpOptions): Promise<McpHttpServer> {
  const { name, version, toolsFor } = options;
  const library = await import("@modelcontextprotocol/server");
  return listenHttp(library, options, (principal, onError) => {
    const calls = new McpCalls(library, onError);
    const newServer = serverFactory(library, { tools: toolsFor(principal), name, version }, calls);
    return { newServer, close: () => calls.close() };
  });
}

/**
 * Serves Streamable HTTP: with sessions for clients with MCP of 2025, stateless for newer ones. Calls `serversFor` once
 * per principal.
 */
export async function listenHttp(
  library: typeof import("@modelcontextprotocol/server"),
  options: HttpListenOptions,
  serversFor: (principal: string, onError: (error: unknown) => void) => McpServers,
): Promise<McpHttpServer> {
  const clients = new Map<string, McpHttpClients>();
  const clientsOf = (principal: string) => {
    const known = clients.get(principal);
    if (known) return known;
    const created = new McpHttpClients(library, serversFor(principal, onError), onError);
    clients.set(principal, created);
    return created;
  };
  const onError = (error: unknown) => options.onError?.(toError(error));
  const http = createServer((incoming, outgoing) => {
    answer(options, clientsOf, incoming, outgoing).catch((error: unknown) => {
      // A disconnect during the response is not an error of this server.
      if (!outgoing.destroyed) onError(error);
      if (!outgoing.headersSent) outgoing.writeHead(500);
      outgoing.end();
    });
  });
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject);
    http.listen(options.port, options.host, resolve);
  });
  http.on("error", onError);
  const address = http.address();
  const port = typeof address === "object" && address ? address.port : options.port;
  return {
    url: `http://${bracketHost(options.host)}:${port}${PATH}`,
    async close() {
      const closed = new Promise<void>((resolve) => http.close(() => resolve()));
      await Promise.all([...clients.values()].map((client) => client.close()));
      http.closeAllConnections();
      await closed;
    },
  };
}

async function answer(
  { authenticate }: HttpListenOptions,
  clientsOf: (principal: string) => McpHttpClients,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const admission = await authenticate(incoming);
  if (admission.type === "refused") return refuse(outgoing, admission.status, admission.reason);
  if (new URL(incoming.url ?? "/", "http://server").pathname !== PATH)
    return refuse(outgoing, 404, `not found; the MCP endpoint is ${PATH}`);
  const disconnected = new AbortController();
  outgoing.on("close", () => disconnected.abort());
  const { principal, onEnd = NEVER_ENDS } = admission;
  const stop = onEnd(() => outgoing.destroy());
  if (!stop) return refuse(outgoing, 401, "the token has ended");
  outgoing.on("close", stop);
  const response = await clientsOf(principal).answer(toRequest(incoming, disconnected.signal), onEnd);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (!response.body) {
    outgoing.end();
    return;
  }
  outgoing.flushHeaders();
  // Unlike `Readable.from`, it cancels the body at once when the client disconnects.
  await pipeline(Readable.fromWeb(response.body), outgoing);
}

/** The end of requests without a token. */
const NEVER_ENDS: CredentialEnd = () => () => undefined;

function refuse(outgoing: ServerResponse, status: number, reason: string): void {
  if (status === 401) outgoing.setHeader("www-authenticate", "Bearer");
  outgoing.writeHead(status, { "content-type": "text/plain" });
  outgoing.end(`${reason}\n`);
}

function toRequest(incoming: IncomingMessage, signal: AbortSignal): Request {
  const headers = new Headers();
  for (let at = 0; at + 1 < incoming.rawHeaders.length; at += 2)
    headers.append(incoming.rawHeaders[at] ?? "", incoming.rawHeaders[at + 1] ?? "");
  const { method = "GET" } = incoming;
  const hasBody = method !== "GET" && method !== "HEAD";
  return new Request(`http://server${incoming.url ?? "/"}`, {
    method,
    headers,
    signal,
    body: hasBody ? Readable.toWeb(incoming) : null,
    duplex: "half",
  });
}
