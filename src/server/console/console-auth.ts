import type { Clock, Timer } from "../../async/clock.ts";
import type { SignedInDevice } from "../../protocol/console/console-device-schemas.ts";
import { AccessList } from "../auth/access-list.ts";
import type { Authenticator } from "../auth/authenticator.ts";
import type { Principal } from "../auth/principal.ts";
import { randomBytes } from "../auth/random-bytes.ts";
import { parseBearerToken } from "../auth/websocket-auth.ts";
import type { RequestHead } from "../listen/http-request-head.ts";

/** Time to open a login URL in a browser. */
export const LOGIN_TOKEN_VALID_MS = 15 * 60_000;
/** Half a day, so that users sign in once per working day. */
export const CONSOLE_SESSION_VALID_MS = 12 * 3600_000;
/** Maximum console sessions of one principal. One more signs out the oldest. */
const MAX_SESSIONS_PER_PRINCIPAL = 100;
/** Maximum console sessions of the server. One more signs out the oldest. */
const MAX_SESSIONS = 1000;
/** Maximum unused login tokens of the server. One more voids the oldest. */
const MAX_LOGIN_TOKENS = 100;
const MAX_DEVICE_CHARS = 200;
const SECRET_BYTES = 24;
/** Distinguishes the secret of a console session from other tokens. */
const SECRET_PREFIX = "console-";

/** WebSocket subprotocol that a console page offers. The server selects no other. */
export const SUBPROTOCOL = "procwire.v1";
const TOKEN_SUBPROTOCOL = "procwire.token.";

interface LoginToken {
  principal: Principal;
  expiresAtMs: number;
}

interface ConsoleSession {
  readonly id: number;
  readonly principal: Principal;
  /** `user-agent` of the browser that signed in. */
  readonly device: string;
  /** By the wall clock, for display. */
  readonly signedInAtMs: number;
  lastUsedAtMs: number;
  readonly expiresAtMs: number;
  /** Closes the session's WebSockets. */
  readonly closeConnections: Set<(reason: string) => void>;
  readonly expiry: Timer;
  /** Removes the session from the accesses of the server, and the listener of the principal's credential. */
  readonly release: () => void;
}

/**
 * Authenticates browsers. A page cannot send an `authorization` header with a WebSocket, so it exchanges a token for the
 * secret of a console session, which it sends as a subprotocol. The page keeps the secret in its origin's storage, because
 * browsers share cookies between all ports of a host. The secrets live in memory only and are never logged.
 */
export class ConsoleAuth {
  readonly #clock: Clock;
  readonly #accesses: AccessList;
  readonly #loginTokens = new Map<string, LoginToken>();
  /** Keyed by secret, oldest first. */
  readonly #sessions = new Map<string, ConsoleSession>();
  #sessionCount = 0;

  /** Adds its sessions to the accesses of the server. */
  constructor(clock: Clock, accesses = new AccessList()) {
    this.#clock = clock;
    this.#accesses = accesses;
  }

  /** Returns a token that can be exchanged for a console session once. */
  newLoginToken(principal: Principal): string {
    const [oldest] = this.#loginTokens.size >= MAX_LOGIN_TOKENS ? largestOwner(this.#loginTokens) : [];
    if (oldest) this.#loginTokens.delete(oldest[0]);
    const token = newSecret();
    this.#loginTokens.set(token, { principal, expiresAtMs: this.#clock.monotonic() + LOGIN_TOKEN_VALID_MS });
    return token;
  }

  /** Exchanges a login token or a WebSocket token for the secret of a console session. Resolves to null if it is invalid. */
  async signIn(token: string, auth: Authenticator, device = ""): Promise<string | null> {
    const principal = this.#redeem(token) ?? (await this.#principalOf(token, auth));
    return principal && this.#newSession(principal, device.slice(0, MAX_DEVICE_CHARS));
  }

  /** Ends a console session and closes its WebSockets. */
  signOut(secret: string): void {
    this.#end(secret, "signed out");
  }

  /** Ends the console session with this number. Returns false if the principal has none. */
  signOutDevice(principal: Principal, id: number): boolean {
    const found = this.#sessionsOf(principal).find(([, session]) => session.id === id);
    if (found) this.#end(found[0], "signed out on another device");
    return found !== undefined;
  }

  /** Ends all console sessions of the principal and voids its login tokens. */
  signOutEverywhere(principal: Principal): void {
    for (const [secret] of this.#sessionsOf(principal)) this.#end(secret, "signed out everywhere");
    for (const [token, login] of this.#loginTokens)
      if (login.principal.id === principal.id) this.#loginTokens.delete(token);
  }

  devices(principal: Principal, secret: string | undefined): SignedInDevice[] {
    return this.#sessionsOf(principal).map(
      ([key, { id, device, signedInAtMs, lastUsedAtMs, expiresAtMs }]): SignedInDevice => ({
        ...{ id, device, signedInAtMs, lastUsedAtMs, expiresAtMs },
        isCurrent: key === secret,
      }),
    );
  }

  /** Returns the principal of a console session, or null if the secret is unknown or expired. */
  principalOf(secret: string | undefined): Principal | null {
    const session = secret === undefined ? undefined : this.#sessions.get(secret);
    if (!session) return null;
    session.lastUsedAtMs = this.#clock.now();
    return session.principal;
  }

  /** Calls `close` when the session of the secret ends. Returns the function that stops it, or null without a session. */
  onEnd(secret: string, close: (reason: string) => void): (() => void) | null {
    const session = this.#sessions.get(secret);
    if (!session) return null;
    session.closeConnections.add(close);
    return () => session.closeConnections.delete(close);
  }

  async #principalOf(token: string, auth: Authenticator): Promise<Principal | null> {
    if (auth.type === "none") return null;
    const result = await auth.authorize(`Bearer ${token}`);
    return result.type === "admitted" ? result.principal : null;
  }

  #redeem(token: string): Principal | null {
    const login = this.#loginTokens.get(token);
    this.#loginTokens.delete(token);
    return login && login.expiresAtMs > this.#clock.monotonic() ? login.principal : null;
  }

  /** Returns the secret of a new console session, or null if the principal's credential has ended or grants none. */
  #newSession(principal: Principal, device: string): string | null {
    const { credential } = principal;
    const secret = `${SECRET_PREFIX}${newSecret()}`;
    const grants = credential?.scope?.grants;
    if (grants && !grants.includes("console") && !grants.includes("console/login")) return null;
    const release = credential ? credential.onEnd((reason) => this.#end(secret, reason)) : () => undefined;
    if (!release) return null;
    const own = this.#sessionsOf(principal);
    const [oldest] = own.length >= MAX_SESSIONS_PER_PRINCIPAL ? own : largestOwner(this.#sessions);
    if (oldest && (own.length >= MAX_SESSIONS_PER_PRINCIPAL || this.#sessions.size >= MAX_SESSIONS))
      this.#end(oldest[0], "signed out by newer console sessions");
    const now = this.#clock.now();
    const validMs = Math.min(CONSOLE_SESSION_VALID_MS, (credential?.expiresAtMs ?? Number.POSITIVE_INFINITY) - now);
    const expiresAtMs = now + validMs;
    const removeAccess = this.#accesses.add({
      ...{ kind: "console", principal, peer: "", device, sinceMs: now, expiresAtMs },
      lastUsedAtMs: () => this.#sessions.get(secret)?.lastUsedAtMs ?? now,
      close: (reason) => this.#end(secret, reason),
    });
    this.#sessions.set(secret, {
      ...{ id: ++this.#sessionCount, principal, device, signedInAtMs: now, lastUsedAtMs: now, expiresAtMs },
      closeConnections: new Set(),
      expiry: this.#clock.after(CONSOLE_SESSION_VALID_MS, () => this.#end(secret, "the console session has expired"), {
        keepAlive: false,
      }),
      release: () => {
        release();
        removeAccess();
      },
    });
    return secret;
  }

  #sessionsOf(principal: Principal): [string, ConsoleSession][] {
    return [...this.#sessions].filter(([, session]) => session.principal.id === principal.id);
  }

  #end(secret: string, reason: string): void {
    const session = this.#sessions.get(secret);
    if (!session) return;
    this.#sessions.delete(secret);
    session.expiry.cancel();
    session.release();
    for (const close of session.closeConnections) close(reason);
  }
}

/** Returns the entries of the principal that has most, so that many entries of one principal end no other's. */
function largestOwner<T extends { principal: Principal }>(entries: ReadonlyMap<string, T>): [string, T][] {
  const owners = Map.groupBy(entries, ([, { principal }]) => principal.id);
  return [...owners.values()].reduce((largest, own) => (own.length > largest.length ? own : largest), []);
}

/** Returns the secret of a console session in an `authorization` header, or undefined. */
export function consoleSecretIn(authorization: string | undefined): string | undefined {
  const token = parseBearerToken(authorization);
  return token !== undefined && isConsoleSecret(token) ? token : undefined;
}

export function isConsoleSecret(token: string): boolean {
  return token.startsWith(SECRET_PREFIX);
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

function newSecret(): string {
  return Buffer.from(randomBytes(SECRET_BYTES)).toString("base64url");
}
