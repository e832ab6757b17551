import { type Clock, systemClock } from "../../async/clock.ts";
import type { Principal } from "../auth/principal.ts";
import { randomBytes } from "../auth/random-bytes.ts";
import { authorize, type WebSocketAuth } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";

/** Time to open the printed login URL in a browser. */
export const LOGIN_TOKEN_VALID_MS = 15 * 60_000;
/** Half a day, so that users sign in once per working day. */
export const COOKIE_VALID_MS = 12 * 3600_000;
/** Maximum console sessions. One more signs out the oldest. */
const MAX_COOKIES = 1000;
const MAX_LOGIN_TOKENS = 100;
const SECRET_BYTES = 24;

/** WebSocket subprotocol that a console page offers. The server selects no other. */
export const SUBPROTOCOL = "procwire.v1";
const TOKEN_SUBPROTOCOL = "procwire.token.";

interface ConsoleSession {
  principal: Principal;
  expiresAtMs: number;
}

/**
 * Authenticates browsers. A page cannot send an `authorization` header with a WebSocket, so it exchanges a token for
 * a cookie, or sends the token as a subprotocol. The secrets live in memory only and are never logged.
 */
export class ConsoleAuth {
  readonly #clock: Clock;
  readonly #loginTokens = new Map<string, ConsoleSession>();
  readonly #cookies = new Map<string, ConsoleSession>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Returns a token that can be exchanged for a cookie once. */
  newLoginToken(principal: Principal): string {
    return this.#issue(this.#loginTokens, MAX_LOGIN_TOKENS, principal, LOGIN_TOKEN_VALID_MS);
  }

  /** Exchanges a login token or a WebSocket token for a cookie value. Resolves to null if it is invalid. */
  async signIn(token: string, auth: WebSocketAuth): Promise<string | null> {
    const principal = this.#redeem(token) ?? (await this.#principalOf(token, auth));
    return principal && this.#issue(this.#cookies, MAX_COOKIES, principal, COOKIE_VALID_MS);
  }

  signOut(cookie: string): void {
    this.#cookies.delete(cookie);
  }

  /** Returns the principal of a console session, or null if the cookie is unknown or expired. */
  principalOf(cookie: string | undefined): Principal | null {
    return cookie === undefined ? null : this.#findValid(this.#cookies, cookie);
  }

  async #principalOf(token: string, auth: WebSocketAuth): Promise<Principal | null> {
    if (auth.type === "none") return null;
    const result = await authorize(auth, `Bearer ${token}`, this.#clock.now());
    return result.type === "admitted" ? result.principal : null;
  }

  #redeem(token: string): Principal | null {
    const principal = this.#findValid(this.#loginTokens, token);
    this.#loginTokens.delete(token);
    return principal;
  }

  #issue(sessions: Map<string, ConsoleSession>, maxSessions: number, principal: Principal, validMs: number): string {
    const [oldest] = sessions.keys();
    if (oldest !== undefined && sessions.size >= maxSessions) sessions.delete(oldest);
    const secret = Buffer.from(randomBytes(SECRET_BYTES)).toString("base64url");
    sessions.set(secret, { principal, expiresAtMs: this.#clock.monotonic() + validMs });
    return secret;
  }

  #findValid(sessions: Map<string, ConsoleSession>, secret: string): Principal | null {
    const session = sessions.get(secret);
    if (!session) return null;
    if (session.expiresAtMs > this.#clock.monotonic()) return session.principal;
    sessions.delete(secret);
    return null;
  }
}

/** Returns the cookie's name. It contains the port, because browsers share cookies between the ports of a host. */
export function cookieName(port: number): string {
  return `procwire_${port}`;
}

export function readCookie(header: string | undefined, name: string): string | undefined {
  const pairs = header?.split(";") ?? [];
  const found = pairs.map((pair) => pair.trim()).find((pair) => pair.startsWith(`${name}=`));
  return found?.slice(name.length + 1);
}

export function parseSubprotocols(head: RequestHead): string[] {
  return (head.headers.get("sec-websocket-protocol") ?? "")
    .split(",")
    .map((word) => word.trim())
    .filter((word) => word !== "");
}

/** Returns the token in the subprotocol header, or null. It is base64url: a subprotocol allows no blanks or commas. */
export function offeredToken(head: RequestHead): string | null {
  const offered = parseSubprotocols(head).find((word) => word.startsWith(TOKEN_SUBPROTOCOL));
  if (offered === undefined) return null;
  return Buffer.from(offered.slice(TOKEN_SUBPROTOCOL.length), "base64url").toString("latin1");
}
