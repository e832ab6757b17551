import type { Socket } from "node:net";
import type { AcceptedSocket } from "../../connection/accepted-socket.ts";
import { authorize, type Verdict, type WebSocketAuth } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";
import type { Principal } from "../principal.ts";
import { cookieNameOf, WebAccess } from "./console-auth.ts";
import type { WebServer, WebServerOptions } from "./console-http-server.ts";
import type { AskJobs } from "./jobs-http-api.ts";

export interface WebOptions {
  /** Where the page's files are; null: there is no page, only figures. */
  folder: string | null;
  /** Pages of other origins that may connect with a token, such as `https://console.example`. */
  allowOrigins?: readonly string[];
  /** Tells the page of fan-out jobs. */
  jobs?: AskJobs | undefined;
}

export interface WebDoorDeps {
  auth: WebSocketAuth;
  /** Judges a share token; null for what is none. */
  share: (token: string) => Verdict | null;
  health: WebServerOptions["health"];
  refuse: WebServerOptions["refuse"];
  metrics?: (() => string) | undefined;
  /** A WebSocket on a connection that carried requests before; `accepted` is that connection as it came in. */
  upgrade: (head: RequestHead, stream: Socket, rest: Buffer, accepted: AcceptedSocket) => void;
  onRefused: WebServerOptions["onRefused"];
  timeouts?: WebServerOptions["timeouts"];
  log: (message: string) => void;
}

/** The part of a door that browsers come in by: it knows their origins and passes, and has HTTP answered by node:http. */
export class WebDoor {
  readonly access = new WebAccess();
  readonly #options: WebOptions;
  readonly #deps: WebDoorDeps;
  readonly #origins: ReadonlySet<string>;
  readonly #handedOver = new WeakMap<Socket, AcceptedSocket>();
  #cookieName = cookieNameOf(0);
  #server: Promise<WebServer> | null = null;

  constructor(options: WebOptions, deps: WebDoorDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#origins = new Set(options.allowOrigins);
  }

  /** The port it is reached by, once that is known. */
  listensOn(port: number): void {
    this.#cookieName = cookieNameOf(port);
  }

  /** Where a person opens the page. The token in it works once; a fragment is sent to no server and stands in no log. */
  loginUrl(base: string, principal: Principal): string | null {
    if (!this.hasPage) return null;
    return `${base}/#token=${this.access.newLoginToken(principal)}`;
  }

  /** Whether there is a page, whose visitors have to sign in. */
  get hasPage(): boolean {
    return this.#options.folder !== null;
  }

  mayConnect(origin: string): boolean {
    return this.#origins.has(origin);
  }

  /** Judges a WebSocket that a page asks for. `isOwnPage`: the page is this server's, so its cookie counts. */
  async judge(head: RequestHead, isOwnPage: boolean): Promise<Verdict> {
    const { auth } = this.#deps;
    const credentials = this.access.credentials(head, this.#cookieName, isOwnPage);
    switch (credentials.type) {
      case "cookie":
        return { type: "admitted", principal: credentials.principal };
      case "token": {
        const share = this.#deps.share(credentials.token);
        if (share) return share;
        if (auth.type === "none") return SIGN_IN;
        return authorize(auth, `Bearer ${credentials.token}`, Date.now());
      }
      case "none": {
        const authorization = head.headers.get("authorization");
        return auth.type === "none" || authorization === undefined
          ? SIGN_IN
          : authorize(auth, authorization, Date.now());
      }
    }
  }

  /** Has a connection answered whose first request is no WebSocket. `received` gives all its bytes so far. */
  async serve(accepted: AcceptedSocket, received: () => Buffer): Promise<void> {
    const server = await this.#load();
    const stream = accepted.handOver(received());
    if (!stream) return;
    this.#handedOver.set(stream, accepted);
    stream.on("error", () => undefined);
    server.serve(stream);
    stream.resume();
  }

  close(): void {
    void this.#server?.then((server) => server.close());
  }

  /** HTTP is loaded by the first request that needs it: most servers only have WebSockets. */
  #load(): Promise<WebServer> {
    this.#server ??= this.#open().catch((error: unknown) => {
      this.#server = null;
      throw error;
    });
    return this.#server;
  }

  async #open(): Promise<WebServer> {
    const { WebServer } = await import("./console-http-server.ts");
    const { WebFiles } = await import("./static-files.ts");
    const { auth, health, refuse, metrics, upgrade, onRefused, timeouts, log } = this.#deps;
    return new WebServer({
      access: this.access,
      auth,
      files: this.#options.folder === null ? null : new WebFiles(this.#options.folder),
      cookieName: this.#cookieName,
      jobs: this.#options.jobs,
      metrics,
      isOperator: async (authorization) => {
        if (auth.type === "none") return false;
        const verdict = await authorize(auth, authorization, Date.now());
        return verdict.type === "admitted" && verdict.principal.role === "operator";
      },
      health,
      refuse,
      upgrade: (head, stream, rest) => {
        const accepted = this.#handedOver.get(stream);
        if (accepted) upgrade(head, stream, rest, accepted);
        else stream.destroy();
      },
      onRefused,
      timeouts,
      log,
    });
  }
}

const SIGN_IN: Verdict = {
  type: "refused",
  reason: "sign in on this server's page, or send a token as the sub-protocol `procwire.token.BASE64URL`",
  isGuess: false,
};
