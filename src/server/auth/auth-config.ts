import { readFileSync, statSync } from "node:fs";
import { errorMessage } from "../../base/error-message.ts";
import type { OperatorClaim } from "./jwt.ts";
import { randomBytes } from "./random-bytes.ts";
import { sha256 } from "./sha256.ts";
import type { WebSocketAuth } from "./websocket-auth.ts";

/** Command-line flags that configure authentication, before validation. */
export interface AuthFlags {
  wsAuth?: string | undefined;
  wsTokenFile?: string | undefined;
  wsTokenSha256?: string | undefined;
  wsSharedSecretFile?: string | undefined;
  wsIssuer?: string | undefined;
  wsAudience?: string | undefined;
  wsMaxClockSkewSeconds?: number | undefined;
  operatorTokenFile?: string | undefined;
  /** `NAME=VALUE`. */
  operatorClaim?: string | undefined;
}

export interface AuthConfig {
  auth: WebSocketAuth;
  /** Insecure but valid settings, one sentence each. */
  warnings: string[];
  /** Token generated for `--ws-auth auto`. The caller prints it once. */
  newToken?: string;
}

export class AuthConfigError extends Error {
  override readonly name = "AuthConfigError";
}

const MIN_SECRET_BYTES = 32;
/** Length of sixteen random bytes in hex. A shorter token can be guessed. */
const MIN_TOKEN_BYTES = 32;
const NEW_TOKEN_BYTES = 32;
const DEFAULT_CLOCK_SKEW_SECONDS = 30;

/** Converts flags to an authentication policy. Throws an AuthConfigError that names the wrong flag. */
export function parseAuthFlags(flags: AuthFlags): AuthConfig {
  const warnings: string[] = [];
  switch (flags.wsAuth) {
    case undefined:
      rejectUpstreamFlags(flags);
      rejectOperatorFlags(flags);
      return { auth: { type: "none" }, warnings };
    case "auto": {
      rejectUpstreamFlags(flags);
      const newToken = randomBytes(NEW_TOKEN_BYTES).toString("base64url");
      const auth: WebSocketAuth = { type: "capability-token", sha256: sha256(newToken) };
      return { auth: withOperatorToken(auth, flags, warnings), warnings, newToken };
    }
    case "capability-token": {
      const auth: WebSocketAuth = { type: "capability-token", sha256: tokenDigest(flags, warnings) };
      return { auth: withOperatorToken(auth, flags, warnings), warnings };
    }
    case "signed-bearer-token":
      return { auth: withOperatorToken(parseSignedTokenFlags(flags, warnings), flags, warnings), warnings };
    default:
      throw new AuthConfigError(
        `unsupported --ws-auth \`${flags.wsAuth}\`; expected \`capability-token\`, \`signed-bearer-token\` or \`auto\``,
      );
  }
}

function rejectUpstreamFlags(flags: AuthFlags): void {
  const { wsTokenFile, wsTokenSha256, wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds } = flags;
  const given = [wsTokenFile, wsTokenSha256, wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds];
  if (given.every((value) => value === undefined)) return;
  throw new AuthConfigError(
    "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`",
  );
}

function rejectOperatorFlags({ operatorTokenFile, operatorClaim }: AuthFlags): void {
  if (operatorTokenFile !== undefined) {
    throw new AuthConfigError(
      "`--operator-token-file` requires `--ws-auth`: without it, all clients are the same principal",
    );
  }
  if (operatorClaim !== undefined) {
    throw new AuthConfigError("`--operator-claim` requires `--ws-auth signed-bearer-token`");
  }
}

function parseSignedTokenFlags(flags: AuthFlags, warnings: string[]): WebSocketAuth {
  const { wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds, operatorClaim } = flags;
  if (wsSharedSecretFile === undefined) {
    throw new AuthConfigError("`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set");
  }
  const secret = readSecret(wsSharedSecretFile, warnings);
  if (secret.length < MIN_SECRET_BYTES) {
    throw new AuthConfigError(
      `signed websocket bearer secret ${wsSharedSecretFile} must be at least ${MIN_SECRET_BYTES} bytes`,
    );
  }
  return {
    type: "signed-bearer-token",
    secret,
    maxClockSkewSeconds: wsMaxClockSkewSeconds ?? DEFAULT_CLOCK_SKEW_SECONDS,
    issuer: wsIssuer,
    audience: wsAudience,
    operatorClaim: operatorClaim === undefined ? undefined : parseClaim(operatorClaim),
  };
}

function withOperatorToken(auth: WebSocketAuth, flags: AuthFlags, warnings: string[]): WebSocketAuth {
  const { operatorTokenFile } = flags;
  if (flags.operatorClaim !== undefined && auth.type !== "signed-bearer-token") {
    throw new AuthConfigError("`--operator-claim` requires `--ws-auth signed-bearer-token`");
  }
  if (operatorTokenFile === undefined || auth.type === "none") return auth;
  const token = readSecret(operatorTokenFile, warnings);
  if (token.length < MIN_TOKEN_BYTES) {
    throw new AuthConfigError(`operator token ${operatorTokenFile} must be at least ${MIN_TOKEN_BYTES} bytes`);
  }
  const operatorSha256 = sha256(token);
  if (auth.type === "capability-token" && auth.sha256.equals(operatorSha256)) {
    throw new AuthConfigError(
      `operator token ${operatorTokenFile} is also the client token; use a different token for operators`,
    );
  }
  return { ...auth, operatorSha256 };
}

function parseClaim(text: string): OperatorClaim {
  const at = text.indexOf("=");
  if (at <= 0 || at === text.length - 1) {
    throw new AuthConfigError(`invalid --operator-claim \`${text}\`; expected NAME=VALUE`);
  }
  return { name: text.slice(0, at), value: text.slice(at + 1) };
}

function tokenDigest({ wsTokenFile, wsTokenSha256 }: AuthFlags, warnings: string[]): Buffer {
  if (wsTokenFile !== undefined && wsTokenSha256 !== undefined) {
    throw new AuthConfigError("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive");
  }
  if (wsTokenSha256 !== undefined) {
    if (!/^[0-9a-f]{64}$/i.test(wsTokenSha256)) {
      throw new AuthConfigError("--ws-token-sha256 must be a 64-character hex SHA-256 digest");
    }
    return Buffer.from(wsTokenSha256, "hex");
  }
  if (wsTokenFile === undefined) {
    throw new AuthConfigError(
      "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set",
    );
  }
  const token = readSecret(wsTokenFile, warnings);
  if (token.length < MIN_TOKEN_BYTES) {
    warnings.push(
      `the token in ${wsTokenFile} is short enough to guess (${token.length} bytes); generate one with \`openssl rand -hex 32\``,
    );
  }
  return sha256(token);
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
  const secret = trimTrailingWhitespace(bytes);
  if (secret.length === 0) throw new AuthConfigError(`websocket auth secret ${path} is empty`);
  if ((mode & READABLE_BY_OTHERS) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(3, "0");
    warnings.push(`other users can read the secret in ${path} (mode ${octal}); run \`chmod 600\` on it`);
  }
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
