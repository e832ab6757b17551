import { randomUUID } from "node:crypto";
import type {
  McpHttpHandler,
  McpRequestContext,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";

/** Maximum MCP sessions. Beyond it, the least recently used is closed; its exec sessions continue. */
const MAX_SESSIONS = 256;

interface ClientSession {
  transport: WebStandardStreamableHTTPServerTransport;
  server: Server;
}

/** MCP servers for the clients of one principal: one server per client, with shared state. */
export interface McpServers {
  newServer(context: Pick<McpRequestContext, "era">): Server;
  /** Called when the principal has no more clients. */
  close(): void;
}

/** The HTTP clients of one principal. */
export class McpHttpClients {
  readonly #library: typeof import("@modelcontextprotocol/server");
  readonly #servers: McpServers;
  readonly #statelessHandler: McpHttpHandler;
  /** Least recently used first. */
  readonly #sessions = new Map<string, ClientSession>();
  readonly #onError: (error: unknown) => void;

  constructor(
    library: typeof import("@modelcontextprotocol/server"),
    servers: McpServers,
    onError: (error: unknown) => void,
  ) {
    this.#library = library;
    this.#servers = servers;
    this.#onError = onError;
    const newServer = (context: McpRequestContext) => servers.newServer(context);
    this.#statelessHandler = library.createMcpHandler(newServer, { legacy: "reject", onerror: onError });
  }

  async answer(request: Request): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    if (id !== null) return this.#answerInSession(id, request);
    if (!(await this.#library.isLegacyRequest(request))) return this.#statelessHandler.fetch(request);
    return this.#openSession(request);
  }

  async close(): Promise<void> {
    this.#servers.close();
    const servers = [...this.#sessions.values()].map(({ server }) => server.close());
    await Promise.all([this.#statelessHandler.close(), ...servers]);
  }

  async #answerInSession(id: string, request: Request): Promise<Response> {
    const session = this.#sessions.get(id);
    if (!session) return new Response("unknown session\n", { status: 404 });
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    return session.transport.handleRequest(request);
  }

  /** Opens an MCP session. An invalid request receives an error and leaves no session. */
  async #openSession(request: Request): Promise<Response> {
    const server = this.#servers.newServer({ era: "legacy" });
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
