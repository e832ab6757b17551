import { LOCAL, type Principal } from "../principal.ts";
import type { OperatorClaim } from "./jwt.ts";

/** Who may open a WebSocket. */
export type WebSocketAuth =
  | { type: "none" }
  /** One secret word, known by its SHA-256. */
  | { type: "capability-token"; sha256: Buffer; operatorSha256?: Buffer }
  /** A JWT signed with a shared secret (HS256). */
  | {
      type: "signed-bearer-token";
      secret: Buffer;
      issuer?: string | undefined;
      audience?: string | undefined;
      maxClockSkewSeconds: number;
      operatorSha256?: Buffer;
      operatorClaim?: OperatorClaim;
    };

/** Before a wrong token is answered, so that guessing is slow; a right one never waits. */
export const WRONG_TOKEN_DELAY_MS = 250;

export type Verdict =
  | { type: "admitted"; principal: Principal }
  /** `reason` is the text of the 401. A wrong token is a guess, a missing one is not. */
  | { type: "refused"; reason: string; isGuess: boolean };

/** Loaded by the first server that checks anybody: most do not. */
const crypto = () => process.getBuiltinModule("node:crypto");

/** The token of an `authorization` header, one character a byte; undefined where there is none. */
export function bearerOf(authorization: string | undefined): string | undefined {
  return /^bearer +([!-~\x80-\xff]+)$/i.exec(authorization ?? "")?.[1];
}

/** Looks at an `authorization` header, given as one character a byte. Never rejects. */
export async function authorize(
  auth: WebSocketAuth,
  authorization: string | undefined,
  nowMs: number,
): Promise<Verdict> {
  if (auth.type === "none") return { type: "admitted", principal: LOCAL };
  if (authorization === undefined) return refused("missing websocket bearer token", false);
  const token = bearerOf(authorization);
  if (token === undefined) return refused("invalid authorization header", false);
  if (auth.operatorSha256 && isToken(token, auth.operatorSha256)) {
    return { type: "admitted", principal: { id: "operator", role: "operator" } };
  }
  if (auth.type === "capability-token") {
    return isToken(token, auth.sha256)
      ? { type: "admitted", principal: { id: "token", role: "user" } }
      : refused("invalid websocket bearer token", true);
  }
  const { judgeJwt } = await import("./jwt.ts");
  const judged = await judgeJwt(auth, token, nowMs);
  return typeof judged === "string" ? refused(judged, true) : { type: "admitted", principal: judged };
}

function refused(reason: string, isGuess: boolean): Verdict {
  return { type: "refused", reason, isGuess };
}

function isToken(token: string, sha256: Buffer): boolean {
  const digest = crypto().createHash("sha256").update(token, "latin1").digest();
  return crypto().timingSafeEqual(digest, sha256);
}
