import { errors, type JWTPayload, jwtVerify } from "jose";
import type { Principal } from "./principal.ts";

/** Claim that makes the holder of a token an operator. The claim equals `value`, or is a list that contains it. */
export interface OperatorClaim {
  name: string;
  value: string;
}

export interface JwtOptions {
  secret: Uint8Array;
  issuer?: string | undefined;
  audience?: string | undefined;
  maxClockSkewSeconds: number;
  operatorClaim?: OperatorClaim | undefined;
}

const INVALID = "invalid websocket jwt";

/** Returns the principal of a signed token, or the reason for its rejection in the words of the Codex protocol. */
export async function verifyJwt(rules: JwtOptions, token: string, nowMs: number): Promise<Principal | string> {
  let claims: JWTPayload;
  try {
    // Issuer and audience are checked below: if a token has several faults, the protocol reports the time first.
    ({ payload: claims } = await jwtVerify(token, rules.secret, {
      algorithms: ["HS256"],
      requiredClaims: ["exp"],
      clockTolerance: rules.maxClockSkewSeconds,
      currentDate: new Date(nowMs),
    }));
  } catch (error) {
    if (error instanceof errors.JWTExpired) return "expired websocket jwt";
    const isEarly =
      error instanceof errors.JWTClaimValidationFailed && error.claim === "nbf" && error.reason === "check_failed";
    return isEarly ? "websocket jwt is not valid yet" : INVALID;
  }
  const { iss, aud, sub } = claims;
  if (rules.issuer !== undefined && iss !== rules.issuer) return "websocket jwt issuer mismatch";
  if (rules.audience !== undefined && !asList(aud).includes(rules.audience)) return "websocket jwt audience mismatch";
  if (sub !== undefined && typeof sub !== "string") return INVALID;
  return {
    id: sub === undefined ? "jwt" : `jwt:${sub}`,
    role: rules.operatorClaim && hasClaim(claims, rules.operatorClaim) ? "operator" : "user",
  };
}

function hasClaim(claims: JWTPayload, { name, value }: OperatorClaim): boolean {
  return Object.hasOwn(claims, name) && asList(claims[name]).includes(value);
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [value];
}
