import type { JwtOptions } from "./jwt.ts";
import { LOCAL_PRINCIPAL, type Principal } from "./principal.ts";
import { sha256 } from "./sha256.ts";

/** How the server authenticates WebSocket clients. */
export type WebSocketAuth =
  | { type: "none" }
  /** A shared secret, stored as its SHA-256 digest. */
  | { type: "capability-token"; sha256: Buffer; operatorSha256?: Buffer }
  /** A JWT signed with a shared secret (HS256). */
  | ({ type: "signed-bearer-token"; operatorSha256?: Buffer } & JwtOptions);

/** Delay before the server rejects a wrong token, so that guessing is slow. A correct token is never delayed. */
export const INVALID_TOKEN_DELAY_MS = 250;

export type AuthResult =
  | { type: "admitted"; principal: Principal }
  /** `reason` is the body of the 401 response. `isGuess` is true for a wrong token and false for a missing one. */
  | { type: "refused"; reason: string; isGuess: boolean };

/** Returns the token of an `authorization` header, one character per byte, or undefined if there is none. */
export function parseBearerToken(authorization: string | undefined): string | undefined {
  return /^bearer +([!-~\x80-\xff]+)$/i.exec(authorization ?? "")?.[1];
}

/** Checks an `authorization` header, passed as one character per byte. Never rejects. */
export async function authorize(
  auth: WebSocketAuth,
  authorization: string | undefined,
  nowMs: number,
): Promise<AuthResult> {
  if (auth.type === "none") return { type: "admitted", principal: LOCAL_PRINCIPAL };
  if (authorization === undefined) return refusal("missing websocket bearer token", false);
  const token = parseBearerToken(authorization);
  if (token === undefined) return refusal("invalid authorization header", false);
  if (auth.operatorSha256 && matchesToken(token, auth.operatorSha256)) {
    return { type: "admitted", principal: { id: "operator", role: "operator" } };
  }
  if (auth.type === "capability-token") {
    return matchesToken(token, auth.sha256)
      ? { type: "admitted", principal: { id: "token", role: "user" } }
      : refusal("invalid websocket bearer token", true);
  }
  const { verifyJwt } = await import("./jwt.ts");
  const verified = await verifyJwt(auth, token, nowMs);
  return typeof verified === "string" ? refusal(verified, true) : { type: "admitted", principal: verified };
}

function refusal(reason: string, isGuess: boolean): AuthResult {
  return { type: "refused", reason, isGuess };
}

function matchesToken(token: string, digest: Buffer): boolean {
  return process.getBuiltinModule("node:crypto").timingSafeEqual(sha256(token), digest);
}
