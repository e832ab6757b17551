import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type {
  McpHttpHandler,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import type { Tool } from "../tool.ts";
import { McpCalls } from "./mcp-calls.ts";
import { serverFactory, toError } from "./mcp-server.ts";

/** Clients that opened a session and never closed it are forgotten beyond this many; their terminals live on. */
const MAX_SESSIONS = 256;
/** Where clients ask; the name the protocol's own examples use. */
const PATH = "/mcp";

export type Admission =
  | { type: "admitted"; principal: string }
  | { type: "refused"; status: number; reason: string };

export interface McpHttpOptions {
  host: string;
  port: number;
  name: string;
  version: string;
  /** Who asks, from the head of a request; asked before anything else. */
  admit: (request: IncomingMessage) => Promise<Admission>;
  /** Those of one principal share their tools, and with them their terminals. Called once for each. */
  toolsFor: (principal: string) => readonly Tool[];
  onError?: (error: Error) => void;
}

export interface McpHttpServing {
  url: string;
  close(): Promise<void>;
}

/**
 * Serves tools over Streamable HTTP: with sessions to clients of 2025, a request at a time to newer ones. The library is
 * loaded here.
 */
export async function serveMcpHttp(options: McpHttpOptions): Promise<McpHttpServing> {
  const library = await import("@modelcontextprotocol/server");
  const clients = new Map<string, PrincipalClients>();
  const clientsOf = (principal: string) => {
    const known = clients.get(principal);
    if (known) return known;
    const fresh = new PrincipalClients(library, options, options.toolsFor(principal));
    clients.set(principal, fresh);
    return fresh;
  };
  const onError = (error: unknown) => options.onError?.(toError(error));
  const http = createServer((incoming, outgoing) => {
    answer(options, clientsOf, incoming, outgoing).catch((error: unknown) => {
      // A client that goes away in the middle is no fault of ours.
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
  const host = options.host.includes(":") ? `[${options.host}]` : options.host;
  return {
    url: `http://${host}:${port}${PATH}`,
    async close() {
      const closed = new Promise<void>((resolve) => http.close(() => resolve()));
      await Promise.all([...clients.values()].map((client) => client.close()));
      http.closeAllConnections();
      await closed;
    },
  };
}

async function answer(
  { admit }: McpHttpOptions,
  clientsOf: (principal: string) => PrincipalClients,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
): Promise<void> {
  const admission = await admit(incoming);
  if (admission.type === "refused") return refuse(outgoing, admission.status, admission.reason);
  if (new URL(incoming.url ?? "/", "http://server").pathname !== PATH)
    return refuse(outgoing, 404, `there is nothing here; tools are at ${PATH}`);
  const gone = new AbortController();
  outgoing.on("close", () => gone.abort());
  const response = await clientsOf(admission.principal).answer(toRequest(incoming, gone.signal));
  outgoing.writeHead(response.status, Object.fromEntries(response.headers));
  if (!response.body) {
    outgoing.end();
    return;
  }
  outgoing.flushHeaders();
  await pipeline(Readable.from(response.body), outgoing);
}

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

interface ClientSession {
  transport: WebStandardStreamableHTTPServerTransport;
  server: Server;
}

/** The clients of one principal. */
class PrincipalClients {
  readonly #library: typeof import("@modelcontextprotocol/server");
  readonly #calls: McpCalls;
  readonly #newServer: ReturnType<typeof serverFactory>;
  readonly #modern: McpHttpHandler;
  /** Least recently used first. */
  readonly #sessions = new Map<string, ClientSession>();
  readonly #onError: (error: unknown) => void;

  constructor(
    library: typeof import("@modelcontextprotocol/server"),
    { name, version, onError }: McpHttpOptions,
    tools: readonly Tool[],
  ) {
    this.#library = library;
    this.#onError = (error) => onError?.(toError(error));
    this.#calls = new McpCalls(library, this.#onError);
    this.#newServer = serverFactory(library, { tools, name, version }, this.#calls);
    this.#modern = library.createMcpHandler(this.#newServer, {
      legacy: "reject",
      onerror: this.#onError,
    });
  }

  async answer(request: Request): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    if (id !== null) return this.#inSession(id, request);
    if (!(await this.#library.isLegacyRequest(request))) return this.#modern.fetch(request);
    return this.#newSession(request);
  }

  async close(): Promise<void> {
    this.#calls.close();
    const servers = [...this.#sessions.values()].map(({ server }) => server.close());
    await Promise.all([this.#modern.close(), ...servers]);
  }

  async #inSession(id: string, request: Request): Promise<Response> {
    const session = this.#sessions.get(id);
    if (!session) return new Response("unknown session\n", { status: 404 });
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    return session.transport.handleRequest(request);
  }

  /** One that is not opened properly is answered with what is wrong, and forgotten. */
  async #newSession(request: Request): Promise<Response> {
    const server = this.#newServer({ era: "legacy" });
    const transport = new this.#library.WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => {
        this.#sessions.set(id, { transport, server });
        const [oldest] = this.#sessions;
        if (this.#sessions.size <= MAX_SESSIONS || !oldest) return;
        this.#sessions.delete(oldest[0]);
        oldest[1].server.close().catch(this.#onError);
      },
      onsessionclosed: (id) => void this.#sessions.delete(id),
    });
    await server.connect(transport);
    return transport.handleRequest(request);
  }
}
