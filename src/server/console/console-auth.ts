import { type Clock, systemClock } from "../../async/clock.ts";
import { randomBytes } from "../auth/random-bytes.ts";
import { authorize, type WebSocketAuth } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";
import type { Principal } from "../principal.ts";

/** Time to open the printed address in a browser. */
export const LOGIN_TOKEN_VALID_MS = 15 * 60_000;
/** A working day: after it the page asks to sign in again. */
export const COOKIE_VALID_MS = 12 * 3600_000;
/** Browsers that are signed in at once; one more and the oldest has to sign in again. */
const MAX_COOKIES = 1000;
const MAX_LOGIN_TOKENS = 100;
const SECRET_BYTES = 24;

/** What a page offers as a WebSocket sub-protocol; the only one that is ever chosen. */
export const SUBPROTOCOL = "procwire.v1";
const TOKEN_SUBPROTOCOL = "procwire.token.";

interface Pass {
  principal: Principal;
  untilMs: number;
}

/** What a browser brought with its request. */
export type Credentials =
  | { type: "none" }
  | { type: "cookie"; principal: Principal }
  /** A token that is looked at like one of an `authorization` header. */
  | { type: "token"; token: string };

/**
 * Lets browsers in. A page can send no `authorization` header with a WebSocket, so it exchanges a token for a cookie, or
 * sends the token as a sub-protocol. What is kept here are the secrets of this server's life; they are never logged.
 */
export class WebAccess {
  readonly #clock: Clock;
  readonly #loginTokens = new Map<string, Pass>();
  readonly #cookies = new Map<string, Pass>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** A token that can be exchanged for a cookie once. */
  newLoginToken(principal: Principal): string {
    return this.#issue(this.#loginTokens, MAX_LOGIN_TOKENS, principal, LOGIN_TOKEN_VALID_MS);
  }

  /** Exchanges a login token, or a token that opens a WebSocket too, for a cookie's value. Null: it is no such token. */
  async signIn(token: string, auth: WebSocketAuth): Promise<string | null> {
    const principal = this.#take(token) ?? (await this.#principalOf(token, auth));
    return principal && this.#issue(this.#cookies, MAX_COOKIES, principal, COOKIE_VALID_MS);
  }

  signOut(cookie: string): void {
    this.#cookies.delete(cookie);
  }

  /** Whose cookie this is. */
  principalOf(cookie: string | undefined): Principal | null {
    return cookie === undefined ? null : this.#valid(this.#cookies, cookie);
  }

  /** `cookieName` is this server's; a cookie counts only from its own page, which the caller has made sure of. */
  credentials(head: RequestHead, cookieName: string, isOwnPage: boolean): Credentials {
    const token = offeredToken(head);
    if (token !== null) return { type: "token", token };
    const cookie = isOwnPage ? cookieOf(head.headers.get("cookie"), cookieName) : undefined;
    const principal = this.principalOf(cookie);
    return principal ? { type: "cookie", principal } : { type: "none" };
  }

  async #principalOf(token: string, auth: WebSocketAuth): Promise<Principal | null> {
    if (auth.type === "none") return null;
    const verdict = await authorize(auth, `Bearer ${token}`, this.#clock.now());
    return verdict.type === "admitted" ? verdict.principal : null;
  }

  #take(token: string): Principal | null {
    const principal = this.#valid(this.#loginTokens, token);
    this.#loginTokens.delete(token);
    return principal;
  }

  #issue(passes: Map<string, Pass>, most: number, principal: Principal, validMs: number): string {
    const [oldest] = passes.keys();
    if (oldest !== undefined && passes.size >= most) passes.delete(oldest);
    const secret = Buffer.from(randomBytes(SECRET_BYTES)).toString("base64url");
    passes.set(secret, { principal, untilMs: this.#clock.monotonic() + validMs });
    return secret;
  }

  #valid(passes: Map<string, Pass>, secret: string): Principal | null {
    const pass = passes.get(secret);
    if (!pass) return null;
    if (pass.untilMs > this.#clock.monotonic()) return pass.principal;
    passes.delete(secret);
    return null;
  }
}

/** Cookies ignore ports: two servers on one host need two names. */
export function cookieNameOf(port: number): string {
  return `procwire_${port}`;
}

export function cookieOf(header: string | undefined, name: string): string | undefined {
  const pairs = header?.split(";") ?? [];
  const found = pairs.map((pair) => pair.trim()).find((pair) => pair.startsWith(`${name}=`));
  return found?.slice(name.length + 1);
}

export function subprotocolsOf(head: RequestHead): string[] {
  return (head.headers.get("sec-websocket-protocol") ?? "")
    .split(",")
    .map((word) => word.trim())
    .filter((word) => word !== "");
}

/** Base64url of the token: a sub-protocol is a word without blanks, commas or quotes. */
function offeredToken(head: RequestHead): string | null {
  const offered = subprotocolsOf(head).find((word) => word.startsWith(TOKEN_SUBPROTOCOL));
  if (offered === undefined) return null;
  return Buffer.from(offered.slice(TOKEN_SUBPROTOCOL.length), "base64url").toString("latin1");
}
