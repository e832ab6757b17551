import { readFileSync, statSync } from "node:fs";
import { errorMessage } from "../../base/error-message.ts";
import { FlagError } from "../../base/flag-error.ts";
import { parseObject } from "../../base/json-fields.ts";
import { isLoopback } from "../listen/listen-url.ts";
import type { OperatorClaim } from "./jwt.ts";
import { type KeySet, parseKeySet } from "./key-set.ts";
import { randomBytes } from "./random-bytes.ts";
import { sha256 } from "./sha256.ts";
import { parseScope, type TokenScope } from "./token-scope.ts";
import type { WebSocketAuth } from "./websocket-auth.ts";

/** Command-line flags that configure authentication, before validation. */
export interface AuthFlags {
  wsAuth?: string | undefined;
  wsTokenFile?: string | undefined;
  wsTokenSha256?: string | undefined;
  wsSharedSecretFile?: string | undefined;
  /** File or URL of the issuer's public keys; replaces the secret. */
  wsJwks?: string | undefined;
  wsIssuer?: string | undefined;
  wsAudience?: string | undefined;
  wsMaxClockSkewSeconds?: number | undefined;
  operatorTokenFile?: string | undefined;
  /** `NAME=VALUE`. */
  operatorClaim?: string | undefined;
  /** Default: the file of the secret with the suffix `.revoked`. */
  revokedTokensFile?: string | undefined;
}

export interface AuthConfig {
  auth: WebSocketAuth;
  /** Insecure but valid settings, one sentence each. */
  warnings: string[];
  /** Token generated for `--ws-auth auto`. The caller prints it once. */
  newToken?: string | undefined;
  /** File with the ids of revoked tokens. Absent if tokens have no ids. */
  revokedTokensFile?: string | undefined;
  /** Absent if the policy uses no file. */
  authFiles?: AuthFiles | undefined;
}

/** Content of each file of a policy. Null: the file was deleted. */
export type AuthFileContents = ReadonlyMap<string, Buffer | null>;

/** The files of a policy, which the server reads again when they change. */
export interface AuthFiles {
  paths: readonly string[];
  /** Returns the policy with these contents. Throws if a content is invalid. */
  parse(contents: AuthFileContents): WebSocketAuth;
}

export class AuthConfigError extends Error {
  override readonly name = "AuthConfigError";
}

const MIN_SECRET_BYTES = 32;
/** Length of sixteen random bytes in hex. A shorter token can be guessed. */
const MIN_TOKEN_BYTES = 32;
const NEW_TOKEN_BYTES = 32;
const DEFAULT_CLOCK_SKEW_SECONDS = 30;
const CLAIM_REQUIREMENT = "requires `--ws-auth signed-bearer-token`";

/**
 * Converts flags to an authentication policy. Throws an AuthConfigError with Codex's text for its flags, and a FlagError for
 * the others.
 */
export function parseAuthFlags(flags: AuthFlags): AuthConfig {
  const warnings: string[] = [];
  const newToken = flags.wsAuth === "auto" ? randomBytes(NEW_TOKEN_BYTES).toString("base64url") : undefined;
  // A key set is public: other users may read it.
  const read = (path: string) => readSecret(path, path === flags.wsJwks ? [] : warnings);
  const auth = parsePolicy(flags, newToken, read, warnings);
  const paths = [flags.wsTokenFile, flags.wsSharedSecretFile, keySetFileOf(flags), flags.operatorTokenFile].filter(
    (path) => path !== undefined,
  );
  const revokedTokensFile = revokedTokensFileOf(flags);
  return {
    auth,
    warnings,
    newToken,
    revokedTokensFile,
    authFiles:
      paths.length === 0
        ? undefined
        : {
            paths,
            parse: (contents) => parsePolicy(flags, newToken, (path) => secretIn(path, contents.get(path) ?? null), []),
          },
  };
}

function revokedTokensFileOf({ wsAuth, wsSharedSecretFile, revokedTokensFile }: AuthFlags): string | undefined {
  if (wsAuth === "signed-bearer-token")
    return revokedTokensFile ?? (wsSharedSecretFile === undefined ? undefined : `${wsSharedSecretFile}.revoked`);
  if (revokedTokensFile !== undefined)
    throw new FlagError("--revoked-tokens-file", revokedTokensFile, CLAIM_REQUIREMENT);
  return undefined;
}

/** Returns the secret in a file without trailing white space. Null: the file was deleted. */
type ReadSecret = (path: string) => Buffer | null;

function parsePolicy(
  flags: AuthFlags,
  newToken: string | undefined,
  read: ReadSecret,
  warnings: string[],
): WebSocketAuth {
  switch (flags.wsAuth) {
    case undefined:
      rejectUpstreamFlags(flags);
      rejectOperatorFlags(flags);
      return { type: "none" };
    case "auto": {
      rejectUpstreamFlags(flags);
      const auth: WebSocketAuth = { type: "capability-token", sha256: sha256(newToken ?? "") };
      return withOperatorToken(auth, flags, read);
    }
    case "capability-token": {
      if (flags.wsJwks !== undefined) throw new FlagError(KEY_SET_FLAG, flags.wsJwks, CLAIM_REQUIREMENT);
      const auth: WebSocketAuth = { type: "capability-token", ...parseCapabilityToken(flags, read, warnings) };
      return withOperatorToken(auth, flags, read);
    }
    case "signed-bearer-token":
      return withOperatorToken(parseSignedTokenFlags(flags, read), flags, read);
    default:
      throw new FlagError(
        "--ws-auth",
        flags.wsAuth,
        "unsupported kind; expected `capability-token`, `signed-bearer-token` or `auto`",
      );
  }
}

function rejectUpstreamFlags(flags: AuthFlags): void {
  const { wsTokenFile, wsTokenSha256, wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds } = flags;
  if (flags.wsJwks !== undefined) throw new FlagError(KEY_SET_FLAG, flags.wsJwks, CLAIM_REQUIREMENT);
  const given = [wsTokenFile, wsTokenSha256, wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds];
  if (given.every((value) => value === undefined)) return;
  throw new AuthConfigError(
    "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`",
  );
}

function rejectOperatorFlags({ operatorTokenFile, operatorClaim }: AuthFlags): void {
  if (operatorTokenFile !== undefined) {
    throw new FlagError(
      "--operator-token-file",
      operatorTokenFile,
      "requires `--ws-auth`: without it, all clients are the same principal",
    );
  }
  if (operatorClaim !== undefined) {
    throw new FlagError("--operator-claim", operatorClaim, CLAIM_REQUIREMENT);
  }
}

function parseSignedTokenFlags(flags: AuthFlags, read: ReadSecret): WebSocketAuth {
  const { wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds, operatorClaim } = flags;
  const common = {
    type: "signed-bearer-token" as const,
    maxClockSkewSeconds: wsMaxClockSkewSeconds ?? DEFAULT_CLOCK_SKEW_SECONDS,
    issuer: wsIssuer,
    audience: wsAudience,
    operatorClaim: operatorClaim === undefined ? undefined : parseClaim(operatorClaim),
  };
  if (flags.wsJwks !== undefined) return { ...common, secret: null, ...parseKeySetFlag(flags.wsJwks, flags, read) };
  if (wsSharedSecretFile === undefined) {
    throw new AuthConfigError("`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set");
  }
  const secret = read(wsSharedSecretFile);
  if (secret && secret.length < MIN_SECRET_BYTES) {
    throw new AuthConfigError(
      `signed websocket bearer secret ${wsSharedSecretFile} must be at least ${MIN_SECRET_BYTES} bytes`,
    );
  }
  return { ...common, secret };
}

const KEY_SET_FLAG = "--ws-jwks";
const isUrl = (value: string) => /^https?:/i.test(value);

/** Returns the file of the key set, or undefined if there is none or it is at a URL. */
const keySetFileOf = ({ wsJwks }: AuthFlags) => (wsJwks === undefined || isUrl(wsJwks) ? undefined : wsJwks);

function parseKeySetFlag(
  value: string,
  { wsSharedSecretFile, wsAudience }: AuthFlags,
  read: ReadSecret,
): { keySet: KeySet | null } | { keySetUrl: string } {
  const fail = (why: unknown) => new FlagError(KEY_SET_FLAG, value, why);
  if (wsSharedSecretFile !== undefined) throw fail("conflicts with `--ws-shared-secret-file`");
  if (wsAudience === undefined)
    throw fail("requires `--ws-audience`: the issuer may sign tokens for other services with the same keys");
  if (isUrl(value)) {
    const url = URL.parse(value);
    if (url?.username !== "" || url.password !== "") throw fail("expected a URL without user and password");
    const host = url.hostname.replace(/^\[|\]$/g, "");
    if (url.protocol !== "https:" && host !== "localhost" && !isLoopback(host))
      throw fail("anyone on the network could replace the keys; use https://, or http:// on a loopback address");
    return { keySetUrl: url.href };
  }
  try {
    const text = read(value);
    return { keySet: text && parseKeySet(text.toString()) };
  } catch (error) {
    throw fail(error instanceof AuthConfigError ? (error.cause ?? "is empty") : error);
  }
}

function withOperatorToken(auth: WebSocketAuth, flags: AuthFlags, read: ReadSecret): WebSocketAuth {
  const { operatorTokenFile } = flags;
  if (flags.operatorClaim !== undefined && auth.type !== "signed-bearer-token") {
    throw new FlagError("--operator-claim", flags.operatorClaim, CLAIM_REQUIREMENT);
  }
  if (operatorTokenFile === undefined || auth.type === "none") return auth;
  const token = readOperatorToken(operatorTokenFile, read);
  if (token === null) return auth;
  if (isJsonForm(token))
    throw new FlagError(
      "--operator-token-file",
      operatorTokenFile,
      "the token of an operator has no scope; write the token alone",
    );
  if (token.length < MIN_TOKEN_BYTES) {
    throw new FlagError(
      "--operator-token-file",
      operatorTokenFile,
      `the token has ${token.length} bytes; expected at least ${MIN_TOKEN_BYTES}`,
    );
  }
  const operatorSha256 = sha256(token);
  if (auth.type === "capability-token" && auth.sha256?.equals(operatorSha256)) {
    throw new FlagError(
      "--operator-token-file",
      operatorTokenFile,
      "is also the client token; use a different token for operators",
    );
  }
  return { ...auth, operatorSha256 };
}

function parseClaim(text: string): OperatorClaim {
  const at = text.indexOf("=");
  if (at <= 0 || at === text.length - 1) {
    throw new FlagError("--operator-claim", text, "expected NAME=VALUE");
  }
  return { name: text.slice(0, at), value: text.slice(at + 1) };
}

/** A capability token with its rights. */
type CapabilityToken = Pick<WebSocketAuth & { type: "capability-token" }, "sha256" | "scope" | "expiresAtMs">;

function parseCapabilityToken(
  { wsTokenFile, wsTokenSha256 }: AuthFlags,
  read: ReadSecret,
  warnings: string[],
): CapabilityToken {
  if (wsTokenFile !== undefined && wsTokenSha256 !== undefined) {
    throw new AuthConfigError("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive");
  }
  if (wsTokenSha256 !== undefined) {
    if (!/^[0-9a-f]{64}$/i.test(wsTokenSha256)) {
      throw new AuthConfigError("--ws-token-sha256 must be a 64-character hex SHA-256 digest");
    }
    return { sha256: Buffer.from(wsTokenSha256, "hex") };
  }
  if (wsTokenFile === undefined) {
    throw new AuthConfigError(
      "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set",
    );
  }
  const content = read(wsTokenFile);
  if (content === null) return { sha256: null };
  const { token, scope, expiresAtMs } = isJsonForm(content) ? parseTokenFile(wsTokenFile, content) : { token: content };
  if (expiresAtMs !== undefined && expiresAtMs <= Date.now())
    warnings.push(
      `the token in ${wsTokenFile} expired at ${new Date(expiresAtMs).toISOString()}; no client can connect`,
    );
  if (token.length < MIN_TOKEN_BYTES) {
    warnings.push(
      `the token in ${wsTokenFile} is short enough to guess (${token.length} bytes); generate one with \`openssl rand -hex 32\``,
    );
  }
  return { sha256: sha256(token), scope, expiresAtMs };
}

/** Reports whether a token file has the JSON form. A token alone never begins with a brace. */
const isJsonForm = (content: Buffer) => content[0] === OPENING_BRACE;
const OPENING_BRACE = 0x7b;

/**
 * Parses the JSON form of a token file: `token`, `expiresAt`, and the fields of the claim `procwire`. Throws a FlagError that
 * names the field at fault, because a field that is ignored would grant more than intended.
 */
function parseTokenFile(
  path: string,
  content: Buffer,
): { token: Buffer; scope: TokenScope | undefined; expiresAtMs: number | undefined } {
  const fail = (problem: string) => new FlagError("--ws-token-file", path, problem);
  const fields = parseObject(content.toString("utf8"));
  if (!fields) throw fail("begins with `{`, but is not a JSON object");
  const { token, expiresAt, ...claim } = fields;
  if (typeof token !== "string" || !/^[!-~]+$/.test(token))
    throw fail("needs `token`, a string of printable ASCII characters without spaces");
  const expiresAtMs = expiresAt === undefined ? undefined : parseTime(expiresAt);
  if (expiresAtMs === null)
    throw fail(
      `has an invalid \`expiresAt\` ${JSON.stringify(expiresAt)}; expected a time such as 2027-01-31T12:00:00Z`,
    );
  const scope = Object.keys(claim).length === 0 ? undefined : parseScope(claim);
  if (typeof scope === "string") throw fail(scope);
  return { token: Buffer.from(token), scope, expiresAtMs };
}

/** Returns null if the value is not a time with a time zone. */
function parseTime(value: unknown): number | null {
  if (typeof value !== "string" || !/^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/.test(value)) return null;
  const epochMs = Date.parse(value);
  return Number.isNaN(epochMs) ? null : epochMs;
}

function readOperatorToken(path: string, read: ReadSecret): Buffer | null {
  try {
    return read(path);
  } catch (error) {
    throw new FlagError(
      "--operator-token-file",
      path,
      error instanceof AuthConfigError ? (error.cause ?? "is empty") : error,
    );
  }
}

/** Reads a secret as bytes, without the trailing whitespace that editors and `echo` append. */
function readSecret(path: string, warnings: string[]): Buffer {
  let bytes: Buffer;
  let mode: number;
  try {
    bytes = readFileSync(path);
    ({ mode } = statSync(path));
  } catch (cause) {
    const why = errorMessage(cause);
    throw new AuthConfigError(`failed to read websocket auth secret ${path}: ${why}`, { cause });
  }
  const secret = secretIn(path, bytes);
  if ((mode & READABLE_BY_OTHERS) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(3, "0");
    warnings.push(`other users can read the secret in ${path} (mode ${octal}); run \`chmod 600\` on it`);
  }
  return secret;
}

/** Returns the secret in the content of a file. Throws if there is none. */
function secretIn(path: string, bytes: Buffer): Buffer;
function secretIn(path: string, bytes: Buffer | null): Buffer | null;
function secretIn(path: string, bytes: Buffer | null): Buffer | null {
  const secret = bytes && trimTrailingWhitespace(bytes);
  if (secret?.length === 0) throw new AuthConfigError(`websocket auth secret ${path} is empty`);
  return secret;
}

const READABLE_BY_OTHERS = 0o044;

function trimTrailingWhitespace(bytes: Buffer): Buffer {
  let end = bytes.length;
  while (end > 0 && isSpace(bytes[end - 1])) end--;
  return bytes.subarray(0, end);
}

/** Matches tab, line feed, vertical tab, form feed, carriage return and space. */
const isSpace = (byte: number | undefined) => byte !== undefined && (byte === 0x20 || (byte >= 0x09 && byte <= 0x0d));
