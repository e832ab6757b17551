import type { Socket } from "node:net";
import type { AcceptedSocket } from "../../connection/accepted-socket.ts";
import type { Principal } from "../auth/principal.ts";
import { type AuthResult, authorize } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";
import { ConsoleAuth, cookieName, offeredToken, readCookie } from "./console-auth.ts";
import type { ConsoleHttpOptions, ConsoleHttpServer } from "./console-http-server.ts";
import type { JobsQueryHandler } from "./jobs-http-api.ts";

export interface ConsoleOptions {
  /** Directory of the console's files. Null serves no console, only metrics. */
  directory: string | null;
  /** Other origins whose pages may connect with a token, such as `https://console.example`. */
  allowOrigins?: readonly string[];
  /** Handles the console's queries about fan-out jobs. */
  jobs?: JobsQueryHandler | undefined;
}

type SharedOptions = "auth" | "health" | "rejectForeignOrigin" | "metrics" | "onRefused" | "timeouts" | "log";

export interface ConsoleGatewayDeps extends Pick<ConsoleHttpOptions, SharedOptions> {
  /** Checks a share token. Returns null if the token is not a share token. */
  share: (token: string) => AuthResult | null;
  /** Called for a WebSocket upgrade on a kept-alive connection. `accepted` is its original socket. */
  upgrade: (head: RequestHead, stream: Socket, rest: Buffer, accepted: AcceptedSocket) => void;
}

/** The gateway's part for browsers: checks their origins and credentials, and serves HTTP through node:http. */
export class ConsoleGateway {
  readonly access = new ConsoleAuth();
  readonly #options: ConsoleOptions;
  readonly #deps: ConsoleGatewayDeps;
  readonly #origins: ReadonlySet<string>;
  readonly #httpSockets = new WeakMap<Socket, AcceptedSocket>();
  #cookieName = cookieName(0);
  #server: Promise<ConsoleHttpServer> | null = null;

  constructor(options: ConsoleOptions, deps: ConsoleGatewayDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#origins = new Set(options.allowOrigins);
  }

  /** Sets the port, which is known only after listening. */
  setPort(port: number): void {
    this.#cookieName = cookieName(port);
  }

  /** Returns the login URL of the console, or null. Its token works once, in the fragment, which no server logs. */
  loginUrl(base: string, principal: Principal): string | null {
    if (!this.hasPage) return null;
    return `${base}/#token=${this.access.newLoginToken(principal)}`;
  }

  /** True if there is a console, whose users must sign in. */
  get hasPage(): boolean {
    return this.#options.directory !== null;
  }

  isAllowedOrigin(origin: string): boolean {
    return this.#origins.has(origin);
  }

  /** Authenticates a WebSocket request of a web page. The cookie counts only on a page of this server and without a token. */
  async authenticate(head: RequestHead, isOwnPage: boolean): Promise<AuthResult> {
    const { auth } = this.#deps;
    const token = offeredToken(head);
    const share = token === null ? null : this.#deps.share(token);
    if (share) return share;
    const cookie = isOwnPage && token === null ? readCookie(head.headers.get("cookie"), this.#cookieName) : undefined;
    const principal = this.access.principalOf(cookie);
    if (principal) return { type: "admitted", principal };
    const authorization = token === null ? head.headers.get("authorization") : `Bearer ${token}`;
    if (auth.type === "none" || authorization === undefined) return SIGN_IN;
    return authorize(auth, authorization, Date.now());
  }

  /**
   * Serves a connection whose first request is not a WebSocket upgrade. `received` returns all bytes received so far.
   */
  async serve(accepted: AcceptedSocket, received: () => Buffer): Promise<void> {
    const server = await this.#load();
    const stream = accepted.detachToNode(received());
    if (!stream) return;
    this.#httpSockets.set(stream, accepted);
    stream.on("error", () => undefined);
    server.serve(stream);
    stream.resume();
  }

  close(): void {
    void this.#server?.then((server) => server.close());
  }

  /** Loads HTTP support on first use, because most servers only serve WebSockets. */
  #load(): Promise<ConsoleHttpServer> {
    this.#server ??= this.#open().catch((error: unknown) => {
      this.#server = null;
      throw error;
    });
    return this.#server;
  }

  async #open(): Promise<ConsoleHttpServer> {
    const { ConsoleHttpServer } = await import("./console-http-server.ts");
    const { StaticFiles } = await import("./static-files.ts");
    const { auth, upgrade } = this.#deps;
    const { directory, jobs } = this.#options;
    return new ConsoleHttpServer({
      ...this.#deps,
      access: this.access,
      files: directory === null ? null : new StaticFiles(directory),
      cookieName: this.#cookieName,
      jobs,
      isOperator: async (authorization) => {
        if (auth.type === "none") return false;
        const result = await authorize(auth, authorization, Date.now());
        return result.type === "admitted" && result.principal.role === "operator";
      },
      upgrade: (head, stream, rest) => {
        const accepted = this.#httpSockets.get(stream);
        if (accepted) upgrade(head, stream, rest, accepted);
        else stream.destroy();
      },
    });
  }
}

const SIGN_IN: AuthResult = {
  type: "refused",
  reason: "sign in on this server's page, or send a token as the sub-protocol `procwire.token.BASE64URL`",
  isGuess: false,
};
