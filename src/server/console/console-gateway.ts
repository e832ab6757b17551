import type { Socket } from "node:net";
import type { Clock } from "../../async/clock.ts";
import { LazyResource } from "../../async/lazy-resource.ts";
import type { AcceptedSocket } from "../../connection/accepted-socket.ts";
import type { AccessList } from "../auth/access-list.ts";
import type { Principal } from "../auth/principal.ts";
import type { AuthResult } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";
import { ConsoleAuth, isConsoleSecret, LOGIN_TOKEN_VALID_MS, offeredToken } from "./console-auth.ts";
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

type SharedOptions = "auth" | "health" | "rejectForeignOrigin" | "metrics" | "onRefused" | "timeouts" | "audit" | "log";

export interface ConsoleGatewayDeps extends Pick<ConsoleHttpOptions, SharedOptions> {
  /** Checks a share token. Returns null if the token is not a share token. */
  share: (token: string) => AuthResult | null;
  /** Called for a WebSocket upgrade on a kept-alive connection. `accepted` is its original socket. */
  upgrade: (head: RequestHead, stream: Socket, rest: Buffer, accepted: AcceptedSocket) => void;
}

/** The gateway's part for browsers: checks their origins and credentials, and serves HTTP through node:http. */
export class ConsoleGateway {
  readonly access: ConsoleAuth;
  readonly #options: ConsoleOptions;
  readonly #deps: ConsoleGatewayDeps;
  readonly #origins: ReadonlySet<string>;
  readonly #httpSockets = new WeakMap<Socket, AcceptedSocket>();
  /** HTTP support, imported by its first use, because most servers only serve WebSockets. */
  readonly #server = new LazyResource(() => this.#open());

  constructor(options: ConsoleOptions, deps: ConsoleGatewayDeps, clock: Clock, accesses: AccessList) {
    this.access = new ConsoleAuth(clock, accesses);
    this.#options = options;
    this.#deps = deps;
    this.#origins = new Set(options.allowOrigins);
  }

  /** Returns a login URL of the console. */
  loginUrl(base: string, principal: Principal): string {
    return `${base}/${this.newLogin(principal).fragment}`;
  }

  /** Returns the fragment of a login URL. Its token works once. Browsers do not send a fragment, so no server logs it. */
  newLogin(principal: Principal): { fragment: string; validMs: number } {
    return { fragment: `#token=${this.access.newLoginToken(principal)}`, validMs: LOGIN_TOKEN_VALID_MS };
  }

  /** True if there is a console, whose users must sign in. */
  get hasPage(): boolean {
    return this.#options.directory !== null;
  }

  isAllowedOrigin(origin: string): boolean {
    return this.#origins.has(origin);
  }

  /** Authenticates a WebSocket request of a web page. The secret of a console session counts only on this server's page. */
  async authenticate(head: RequestHead, isOwnPage: boolean): Promise<AuthResult> {
    const { auth } = this.#deps;
    const token = offeredToken(head);
    if (token !== null) {
      const share = this.#deps.share(token);
      if (share) return share;
      if (isConsoleSecret(token)) return (isOwnPage ? this.#admitSession(token) : null) ?? SIGN_IN;
    }
    const authorization = token === null ? head.headers.get("authorization") : `Bearer ${token}`;
    if (auth.type === "none" || authorization === undefined) return SIGN_IN;
    return auth.authorize(authorization);
  }

  #admitSession(secret: string): AuthResult | null {
    const principal = this.access.principalOf(secret);
    return principal && { type: "admitted", principal, onEnd: (close) => this.access.onEnd(secret, close) };
  }

  /**
   * Serves a connection whose first request is not a WebSocket upgrade. `received` returns all bytes received so far.
   */
  async serve(accepted: AcceptedSocket, received: () => Buffer): Promise<void> {
    const server = await this.#server.get();
    const stream = accepted.detachToNode(received());
    if (!stream) return;
    this.#httpSockets.set(stream, accepted);
    stream.on("error", () => undefined);
    server.serve(stream);
    stream.resume();
  }

  close(): void {
    void this.#server.close((server) => server.close());
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
      jobs,
      authorize: async (authorization) => {
        const result = auth.type === "none" ? null : await auth.authorize(authorization);
        return result?.type === "admitted" ? result.principal : null;
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
  reason:
    "sign in on this server's page (`procwire console` prints a login URL), or send a token as the sub-protocol `procwire.token.BASE64URL`",
  isGuess: false,
};
