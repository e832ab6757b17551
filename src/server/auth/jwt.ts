import type { JSONWebKeySet, JWTPayload, JWTVerifyGetKey, JWTVerifyOptions } from "jose";
import { createLocalJWKSet, errors, jwtVerify } from "jose";
import type { KeySet } from "./key-set.ts";
import type { Principal } from "./principal.ts";
import type { RemoteKeySet } from "./remote-key-set.ts";
import { parseScope, SCOPE_CLAIM, type TokenScope } from "./token-scope.ts";

/** Claim that makes the holder of a token an operator. The claim equals `value`, or is a list that contains it. */
export interface OperatorClaim {
  name: string;
  value: string;
}

export interface JwtOptions {
  /** Shared secret (HS256). Null: there is a key set instead, or the file was deleted, so no token is valid. */
  secret: Uint8Array | null;
  /** Public keys of the issuer, from a file. Null: the file was deleted, so no token is valid. */
  keySet?: KeySet | null | undefined;
  /** URL of the key set of the issuer. */
  keySetUrl?: string | undefined;
  issuer?: string | undefined;
  audience?: string | undefined;
  maxClockSkewSeconds: number;
  operatorClaim?: OperatorClaim | undefined;
}

const INVALID = "invalid websocket jwt";

export interface VerifiedJwt {
  type: "verified";
  principal: Principal;
  tokenId: string | undefined;
  /** End of validity by the wall clock, including the tolerated clock skew. */
  expiresAtMs: number;
  scope: TokenScope | undefined;
}

const refused = (reason: string) => ({ type: "refused", reason }) as const;

/** Algorithms of tokens that a key set verifies. None is symmetric, so a public key never serves as a secret. */
const KEY_SET_ALGORITHMS = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
];

/**
 * Returns the content of a signed token, or the reason for its rejection in the words of the Codex protocol. `remote` is the
 * key set at `keySetUrl`.
 */
export async function verifyJwt(
  rules: JwtOptions,
  token: string,
  nowMs: number,
  remote?: RemoteKeySet,
): Promise<VerifiedJwt | ReturnType<typeof refused>> {
  let claims: JWTPayload | null;
  try {
    // Issuer and audience are checked below: if a token has several faults, the protocol reports the time first.
    claims = await verifySignature(rules, token, remote, {
      requiredClaims: ["exp"],
      clockTolerance: rules.maxClockSkewSeconds,
      currentDate: new Date(nowMs),
    });
    if (claims === null)
      return refused(remote ? "websocket jwt cannot be verified: the key set is not available" : INVALID);
  } catch (error) {
    if (error instanceof errors.JWKSNoMatchingKey)
      return refused(`${INVALID}: no key of the key set matches its header`);
    if (error instanceof errors.JWKSMultipleMatchingKeys)
      return refused(`${INVALID}: several keys match; its header requires \`kid\``);
    if (error instanceof errors.JWTExpired) return refused("expired websocket jwt");
    const isEarly =
      error instanceof errors.JWTClaimValidationFailed && error.claim === "nbf" && error.reason === "check_failed";
    return refused(isEarly ? "websocket jwt is not valid yet" : INVALID);
  }
  const { iss, aud, sub, jti, exp } = claims;
  if (rules.issuer !== undefined && iss !== rules.issuer) return refused("websocket jwt issuer mismatch");
  if (rules.audience !== undefined && !asList(aud).includes(rules.audience))
    return refused("websocket jwt audience mismatch");
  if (sub !== undefined && typeof sub !== "string") return refused(INVALID);
  // The type of jose excludes other values; the token may contain such values.
  if (typeof exp !== "number" || (jti !== undefined && typeof jti !== "string")) return refused(INVALID);
  const claim = claims[SCOPE_CLAIM];
  const scope = claim === undefined ? undefined : parseScope(claim);
  if (typeof scope === "string") return refused(`${INVALID}: claim \`${SCOPE_CLAIM}\` ${scope}`);
  // An operator sees the processes of all principals, which no scope confines.
  const isOperator = !scope && rules.operatorClaim && hasClaim(claims, rules.operatorClaim);
  const principal: Principal = { id: sub === undefined ? "jwt" : `jwt:${sub}`, role: isOperator ? "operator" : "user" };
  return { type: "verified", principal, tokenId: jti, scope, expiresAtMs: (exp + rules.maxClockSkewSeconds) * 1000 };
}

/** Returns the claims of a token whose signature and times are valid, or null without a secret or keys. */
async function verifySignature(
  { secret, keySet, keySetUrl }: JwtOptions,
  token: string,
  remote: RemoteKeySet | undefined,
  options: JWTVerifyOptions,
): Promise<JWTPayload | null> {
  if (keySet === undefined && keySetUrl === undefined)
    return secret && (await jwtVerify(token, secret, { ...options, algorithms: ["HS256"] })).payload;
  if (remote?.keySet === null) await remote.refresh();
  const current = () => remote?.keySet ?? keySet ?? null;
  const former = current();
  if (former === null) return null;
  const findKey: JWTVerifyGetKey = async (header, jws) => {
    try {
      return await keyFinder(former)(header, jws);
    } catch (error) {
      if (!(error instanceof errors.JWKSNoMatchingKey)) throw error;
      // The issuer may have added a key since the last fetch.
      await remote?.refresh();
      const next = current();
      if (next === null || next === former) throw error;
      return keyFinder(next)(header, jws);
    }
  };
  return (await jwtVerify(token, findKey, { ...options, algorithms: KEY_SET_ALGORITHMS })).payload;
}

/** Finders by key set: each keeps the keys that it has imported. */
const keyFinders = new WeakMap<KeySet, JWTVerifyGetKey>();

function keyFinder(keySet: KeySet): JWTVerifyGetKey {
  const known = keyFinders.get(keySet);
  if (known) return known;
  const finder = createLocalJWKSet({ keys: [...keySet.keys] } satisfies JSONWebKeySet);
  keyFinders.set(keySet, finder);
  return finder;
}

function hasClaim(claims: JWTPayload, { name, value }: OperatorClaim): boolean {
  return Object.hasOwn(claims, name) && asList(claims[name]).includes(value);
}

function asList(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [value];
}
