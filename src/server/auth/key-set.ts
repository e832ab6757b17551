import { parseObject } from "../../base/json-fields.ts";
import { isObject } from "../../base/type-guards.ts";

/** A public key of a key set (RFC 7517). */
export interface PublicJwk {
  readonly kty: string;
  readonly kid?: string;
}

/** Public keys of an issuer of signed tokens (RFC 7517). */
export interface KeySet {
  readonly keys: readonly PublicJwk[];
}

/** Types of asymmetric keys. A symmetric key in a key set would be a published secret. */
const KEY_TYPES: ReadonlySet<unknown> = new Set(["RSA", "EC", "OKP"]);
/** Members that only a private or symmetric key has. */
const PRIVATE_MEMBERS = ["d", "k"];

/** Returns the keys of a key set that verify signatures. Throws if it has none, or contains a private or symmetric key. */
export function parseKeySet(text: string): KeySet {
  const keys = parseObject(text)?.keys;
  if (!Array.isArray(keys)) throw new Error("expected a JSON object with the array `keys` (RFC 7517)");
  for (const [at, key] of keys.entries())
    if (isObject(key) && PRIVATE_MEMBERS.some((name) => Object.hasOwn(key, name)))
      throw new Error(`key ${at + 1} is private or symmetric; a key set contains public keys only`);
  const usable = keys.filter(isVerificationKey);
  if (usable.length === 0)
    throw new Error(`none of its ${keys.length} keys verifies signatures; expected an RSA, EC or OKP key`);
  return { keys: usable };
}

function isVerificationKey(key: unknown): key is PublicJwk {
  if (!isObject(key) || !KEY_TYPES.has(key.kty) || (key.use !== undefined && key.use !== "sig")) return false;
  try {
    process.getBuiltinModule("node:crypto").createPublicKey({ key, format: "jwk" });
    return true;
  } catch {
    return false;
  }
}
