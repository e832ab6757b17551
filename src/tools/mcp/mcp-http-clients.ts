import { randomUUID } from "node:crypto";
import type {
  McpHttpHandler,
  McpRequestContext,
  Server,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import type { CredentialEnd } from "./mcp-http.ts";

/** Maximum MCP sessions. Beyond it, the least recently used is closed; its exec sessions continue. */
const MAX_SESSIONS = 256;

interface ClientSession {
  /** Stops listening to the end of the token of the latest request. */
  stopListening: () => void;
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

  /** Answers a request. An MCP session ends with the token of its latest request. */
  async answer(request: Request, onEnd: CredentialEnd): Promise<Response> {
    const id = request.headers.get("mcp-session-id");
    if (id !== null) return this.#answerInSession(id, request, onEnd);
    if (!(await this.#library.isLegacyRequest(request))) return this.#statelessHandler.fetch(request);
    return this.#openSession(request, onEnd);
  }

  async close(): Promise<void> {
    this.#servers.close();
    const servers = [...this.#sessions.keys()].map((id) => this.#remove(id)?.server.close());
    await Promise.all([this.#statelessHandler.close(), ...servers]);
  }

  async #answerInSession(id: string, request: Request, onEnd: CredentialEnd): Promise<Response> {
    const session = this.#sessions.get(id);
    if (!session) return new Response("unknown session\n", { status: 404 });
    this.#sessions.delete(id);
    this.#sessions.set(id, session);
    session.stopListening();
    session.stopListening = this.#endWith(id, onEnd);
    return session.transport.handleRequest(request);
  }

  /** Opens an MCP session. An invalid request receives an error and leaves no session. */
  async #openSession(request: Request, onEnd: CredentialEnd): Promise<Response> {
    const server = this.#servers.newServer({ era: "legacy" });
    const transport = new this.#library.WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => {
        const session: ClientSession = { transport, server, stopListening: () => undefined };
        this.#sessions.set(id, session);
        session.stopListening = this.#endWith(id, onEnd);
        const [oldest] = this.#sessions;
        if (this.#sessions.size > MAX_SESSIONS && oldest) this.#close(oldest[0]);
      },
      onsessionclosed: (id) => void this.#remove(id),
    });
    await server.connect(transport);
    return transport.handleRequest(request);
  }

  /** Closes the session when the token ends. Returns the function that stops it. */
  #endWith(id: string, onEnd: CredentialEnd): () => void {
    const stop = onEnd(() => this.#close(id));
    if (!stop) this.#close(id);
    return stop ?? (() => undefined);
  }

  #close(id: string): void {
    this.#remove(id)?.server.close().catch(this.#onError);
  }

  #remove(id: string): ClientSession | undefined {
    const session = this.#sessions.get(id);
    this.#sessions.delete(id);
    session?.stopListening();
    return session;
  }
}
