import { type Clock, systemClock } from "../../async/clock.ts";
import { invalidRequest } from "../../protocol/errors.ts";
import { CREDENTIAL_END_REASONS, LiveCredential } from "./credential.ts";
import { canAccess, type Principal } from "./principal.ts";
import type { RemoteKeySet } from "./remote-key-set.ts";
import type { RevokedTokens } from "./revoked-tokens.ts";
import { scopeKey } from "./token-scope.ts";
import { type AuthResult, authorize, type WebSocketAuth } from "./websocket-auth.ts";

export interface AuthenticatorOptions {
  clock?: Clock | undefined;
  /** Revoked tokens. If absent, no token can be revoked by its id. */
  revoked?: RevokedTokens | undefined;
}

/** A token in use: its header, and the principal that it had. */
interface UsedToken {
  authorization: string;
  principal: Principal;
}

/** Authenticates clients, and ends the credentials of tokens that expire, are revoked or are no longer valid. */
export class Authenticator {
  readonly #clock: Clock;
  readonly #revoked: RevokedTokens | undefined;
  readonly #used = new Map<LiveCredential, UsedToken>();
  #auth: WebSocketAuth;
  #keySet: RemoteKeySet | undefined;
  /** Incremented with each change of the policy. */
  #version = 0;

  constructor(auth: WebSocketAuth, { clock = systemClock, revoked }: AuthenticatorOptions = {}) {
    this.#auth = auth;
    this.#clock = clock;
    this.#revoked = revoked;
  }

  /** Sets the key set at the `keySetUrl` of the policy. */
  setKeySet(keySet: RemoteKeySet): void {
    this.#keySet = keySet;
  }

  get type(): WebSocketAuth["type"] {
    return this.#auth.type;
  }

  /** Checks an `authorization` header, passed as one character per byte. Never rejects. */
  async authorize(authorization: string | undefined): Promise<AuthResult> {
    const version = this.#version;
    const result = await this.#check(authorization);
    if (result.type === "refused" || authorization === undefined || this.type === "none") return result;
    const { principal, tokenId, expiresAtMs, scope } = result;
    const credential = new LiveCredential({
      clock: this.#clock,
      tokenId,
      expiresAtMs,
      scope,
      onUsed: (used) => {
        this.#used.set(used, { authorization, principal });
        // The policy changed between the check and the first use.
        if (version !== this.#version) void this.#recheck(used);
      },
      onUnused: (unused) => void this.#used.delete(unused),
    });
    return { type: "admitted", principal: { ...principal, credential } };
  }

  /** Replaces the policy. Call `recheckAll` afterwards. */
  setPolicy(auth: WebSocketAuth): void {
    this.#auth = auth;
  }

  /** Ends the credentials that the policy no longer accepts. */
  async recheckAll(): Promise<void> {
    this.#version++;
    await Promise.all([...this.#used.keys()].map((credential) => this.#recheck(credential)));
  }

  /**
   * Revokes the token with this id, and ends its connections. Returns the number of connections, console sessions and
   * share links that end. A user may revoke only tokens of the same principal in use.
   */
  revoke(tokenId: string, by: Principal): number {
    const used = [...this.#used].filter(([credential]) => credential.tokenId === tokenId);
    const isOwn = used.length > 0 && used.every(([, { principal }]) => canAccess(by, principal.id));
    if (by.role !== "operator" && !isOwn)
      throw invalidRequest(
        `token ${tokenId} is not in use by ${by.id}; only an operator may revoke other tokens (\`serve --operator-claim\`)`,
      );
    if (!this.#revoked)
      throw invalidRequest(
        "this server has no file of revoked tokens; start it with `--ws-auth signed-bearer-token` or `--revoked-tokens-file`",
      );
    const { path, unwritableReason } = this.#revoked;
    if (unwritableReason !== null)
      throw invalidRequest(`cannot revoke: ${path}: ${unwritableReason}; set \`serve --revoked-tokens-file PATH\``);
    const expiries = used.flatMap(([{ expiresAtMs }]) => expiresAtMs ?? []);
    const isKnown = expiries.length > 0 && expiries.length === used.length;
    this.#revoked.add(tokenId, by.id, isKnown ? Math.max(...expiries) : undefined);
    let ended = 0;
    for (const [credential] of used) {
      ended += credential.listenerCount;
      credential.end(CREDENTIAL_END_REASONS.revoked);
    }
    return ended;
  }

  async #recheck(credential: LiveCredential): Promise<void> {
    const token = this.#used.get(credential);
    if (!token) return;
    const result = await this.#check(token.authorization);
    const isSame =
      result.type === "admitted" &&
      result.principal.id === token.principal.id &&
      result.principal.role === token.principal.role &&
      result.expiresAtMs === credential.expiresAtMs &&
      scopeKey(result.scope) === scopeKey(credential.scope);
    if (!isSame) credential.end((result.type === "refused" && result.endReason) || CREDENTIAL_END_REASONS.removed);
  }

  async #check(authorization: string | undefined): Promise<AuthResult> {
    const result = await authorize(this.#auth, authorization, this.#clock.now(), this.#keySet);
    if (result.type === "refused" || result.tokenId === undefined || !this.#revoked?.has(result.tokenId)) return result;
    return {
      type: "refused",
      reason: "revoked websocket jwt",
      isGuess: true,
      endReason: CREDENTIAL_END_REASONS.revoked,
    };
  }
}
