import { CREDENTIAL_END_REASONS } from "./credential.ts";
import type { JwtOptions } from "./jwt.ts";
import { LOCAL_PRINCIPAL, type Principal } from "./principal.ts";
import type { RemoteKeySet } from "./remote-key-set.ts";
import { sha256 } from "./sha256.ts";
import type { TokenScope } from "./token-scope.ts";

/** How the server authenticates WebSocket clients. */
export type WebSocketAuth =
  | { type: "none" }
  /** A shared secret, stored as its SHA-256 digest. Null: its file was deleted, so no token is valid. */
  | {
      type: "capability-token";
      sha256: Buffer | null;
      operatorSha256?: Buffer;
      /** Rights of the token. Absent: all. */
      scope?: TokenScope | undefined;
      /** End of validity by the wall clock. Absent: unlimited. */
      expiresAtMs?: number | undefined;
    }
  /** A JWT signed with a shared secret (HS256) or with a key of a key set. */
  | ({ type: "signed-bearer-token"; operatorSha256?: Buffer } & JwtOptions);

/** Delay before the server rejects a wrong token, so that guessing is slow. A correct token is never delayed. */
export const INVALID_TOKEN_DELAY_MS = 250;

/**
 * Calls `close` when the credential of a connection ends before the connection. Returns the function that stops it, or null
 * if the credential has ended already.
 */
export type CredentialEnd = (close: (reason: string) => void) => (() => void) | null;

export type AuthResult =
  | {
      type: "admitted";
      principal: Principal;
      onEnd?: CredentialEnd | undefined;
      /** Claim `jti` of a JWT. */
      tokenId?: string | undefined;
      /** End of validity by the wall clock, including the tolerated clock skew. */
      expiresAtMs?: number | undefined;
      /** Rights of the token. Absent: all. */
      scope?: TokenScope | undefined;
    }
  /**
   * `reason` is the body of the 401 response. `isGuess` is true for a wrong token and false for a missing one. `endReason`
   * is the reason for closing connections that were accepted earlier.
   */
  | { type: "refused"; reason: string; isGuess: boolean; endReason?: string | undefined };

/** Reports whether clients of this policy can have different principals. */
export function hasSeveralPrincipals(auth: WebSocketAuth): boolean {
  return auth.type === "signed-bearer-token" || (auth.type !== "none" && auth.operatorSha256 !== undefined);
}

/** Returns the token of an `authorization` header, one character per byte, or undefined if there is none. */
export function parseBearerToken(authorization: string | undefined): string | undefined {
  return /^bearer +([!-~\x80-\xff]+)$/i.exec(authorization ?? "")?.[1];
}

/** Checks an `authorization` header, passed as one character per byte. Never rejects. */
export async function authorize(
  auth: WebSocketAuth,
  authorization: string | undefined,
  nowMs: number,
  keySet?: RemoteKeySet,
): Promise<AuthResult> {
  if (auth.type === "none") return { type: "admitted", principal: LOCAL_PRINCIPAL };
  if (authorization === undefined) return refusal("missing websocket bearer token", false);
  const token = parseBearerToken(authorization);
  if (token === undefined) return refusal("invalid authorization header", false);
  if (auth.operatorSha256 && matchesToken(token, auth.operatorSha256)) {
    return { type: "admitted", principal: { id: "operator", role: "operator" } };
  }
  if (auth.type === "capability-token") {
    const { scope, expiresAtMs } = auth;
    if (!auth.sha256 || !matchesToken(token, auth.sha256)) return refusal("invalid websocket bearer token", true);
    if (expiresAtMs !== undefined && expiresAtMs <= nowMs)
      return { ...refusal("expired websocket bearer token", false), endReason: CREDENTIAL_END_REASONS.expired };
    return { type: "admitted", principal: { id: "token", role: "user" }, scope, expiresAtMs };
  }
  const { verifyJwt } = await import("./jwt.ts");
  const verified = await verifyJwt(auth, token, nowMs, keySet);
  return verified.type === "refused" ? refusal(verified.reason, true) : { ...verified, type: "admitted" };
}

function refusal(reason: string, isGuess: boolean): AuthResult & { type: "refused" } {
  return { type: "refused", reason, isGuess };
}

function matchesToken(token: string, digest: Buffer): boolean {
  return process.getBuiltinModule("node:crypto").timingSafeEqual(sha256(token), digest);
}
