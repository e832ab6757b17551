import { readFileSync } from "node:fs";

/** Who may open a WebSocket. */
export type WebSocketAuth =
  | { type: "none" }
  /** One secret word, known by its SHA-256. */
  | { type: "capability-token"; sha256: Buffer }
  /** A JWT signed with a shared secret (HS256). */
  | {
      type: "signed-bearer-token";
      secret: Buffer;
      issuer?: string | undefined;
      audience?: string | undefined;
      maxClockSkewSeconds: number;
    };

/** The `--ws-*` flags as they came. */
export interface AuthFlags {
  wsAuth?: string | undefined;
  wsTokenFile?: string | undefined;
  wsTokenSha256?: string | undefined;
  wsSharedSecretFile?: string | undefined;
  wsIssuer?: string | undefined;
  wsAudience?: string | undefined;
  wsMaxClockSkewSeconds?: number | undefined;
}

export class AuthConfigError extends Error {
  override readonly name = "AuthConfigError";
}

/** Loaded by the first server that checks anybody: most do not. */
const crypto = () => process.getBuiltinModule("node:crypto");

const MIN_SECRET_BYTES = 32;
const DEFAULT_CLOCK_SKEW_SECONDS = 30;

/** From flags to a policy; throws an AuthConfigError that says which flag is wrong. */
export function authFromFlags(flags: AuthFlags): WebSocketAuth {
  const { wsTokenFile, wsTokenSha256, wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds } =
    flags;
  switch (flags.wsAuth) {
    case undefined:
      if (
        [wsTokenFile, wsTokenSha256, wsSharedSecretFile, wsIssuer, wsAudience, wsMaxClockSkewSeconds].some(
          isSet,
        )
      ) {
        throw new AuthConfigError(
          "websocket auth flags require `--ws-auth capability-token` or `--ws-auth signed-bearer-token`",
        );
      }
      return { type: "none" };
    case "capability-token":
      return { type: "capability-token", sha256: tokenDigest(wsTokenFile, wsTokenSha256) };
    case "signed-bearer-token": {
      if (wsSharedSecretFile === undefined) {
        throw new AuthConfigError(
          "`--ws-shared-secret-file` is required when `--ws-auth signed-bearer-token` is set",
        );
      }
      const secret = Buffer.from(readSecret(wsSharedSecretFile));
      if (secret.length < MIN_SECRET_BYTES) {
        throw new AuthConfigError(
          `signed websocket bearer secret ${wsSharedSecretFile} must be at least ${MIN_SECRET_BYTES} bytes`,
        );
      }
      return {
        type: "signed-bearer-token",
        secret,
        issuer: wsIssuer,
        audience: wsAudience,
        maxClockSkewSeconds: wsMaxClockSkewSeconds ?? DEFAULT_CLOCK_SKEW_SECONDS,
      };
    }
    default:
      throw new AuthConfigError(
        `unsupported --ws-auth \`${flags.wsAuth}\`; expected \`capability-token\` or \`signed-bearer-token\``,
      );
  }
}

/** Null when the bearer may come in, else the text of the 401. */
export function refusal(
  auth: WebSocketAuth,
  authorization: string | undefined,
  nowMs: number,
): string | null {
  if (auth.type === "none") return null;
  if (authorization === undefined) return "missing websocket bearer token";
  const token = /^bearer +(\S+)$/i.exec(authorization.trim())?.[1];
  if (token === undefined) return "invalid authorization header";
  if (auth.type === "capability-token") {
    const digest = crypto().createHash("sha256").update(token).digest();
    return crypto().timingSafeEqual(digest, auth.sha256) ? null : "invalid websocket bearer token";
  }
  return jwtRefusal(auth, token, nowMs / 1000);
}

function tokenDigest(file: string | undefined, sha256: string | undefined): Buffer {
  if (file !== undefined && sha256 !== undefined) {
    throw new AuthConfigError("`--ws-token-file` and `--ws-token-sha256` are mutually exclusive");
  }
  if (sha256 !== undefined) {
    if (!/^[0-9a-f]{64}$/i.test(sha256)) {
      throw new AuthConfigError("--ws-token-sha256 must be a 64-character hex SHA-256 digest");
    }
    return Buffer.from(sha256, "hex");
  }
  if (file === undefined) {
    throw new AuthConfigError(
      "`--ws-token-file` or `--ws-token-sha256` is required when `--ws-auth capability-token` is set",
    );
  }
  return crypto().createHash("sha256").update(readSecret(file)).digest();
}

function readSecret(path: string): string {
  let text: string;
  try {
    text = readFileSync(path, "utf8").trim();
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new AuthConfigError(`failed to read websocket auth secret ${path}: ${why}`, { cause });
  }
  if (text === "") throw new AuthConfigError(`websocket auth secret ${path} is empty`);
  return text;
}

function jwtRefusal(
  auth: Extract<WebSocketAuth, { type: "signed-bearer-token" }>,
  token: string,
  now: number,
): string | null {
  const invalid = "invalid websocket jwt";
  const [head, body, signature, ...more] = token.split(".");
  if (head === undefined || body === undefined || signature === undefined || more.length > 0) return invalid;
  const expected = crypto().createHmac("sha256", auth.secret).update(`${head}.${body}`).digest();
  const given = Buffer.from(signature, "base64url");
  if (given.length !== expected.length || !crypto().timingSafeEqual(given, expected)) return invalid;
  const header = jsonPart(head);
  const claims = jsonPart(body);
  if (!header || !claims || header.alg !== "HS256") return invalid;
  const { exp, nbf, iss, aud } = claims;
  if (typeof exp !== "number") return invalid;
  if (exp + auth.maxClockSkewSeconds < now) return "expired websocket jwt";
  if (typeof nbf === "number" && nbf - auth.maxClockSkewSeconds > now)
    return "websocket jwt is not valid yet";
  if (auth.issuer !== undefined && iss !== auth.issuer) return "websocket jwt issuer mismatch";
  const audiences = Array.isArray(aud) ? aud : [aud];
  if (auth.audience !== undefined && !audiences.includes(auth.audience))
    return "websocket jwt audience mismatch";
  return null;
}

function jsonPart(part: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(Buffer.from(part, "base64url").toString("utf8"));
    return typeof value === "object" && value !== null ? { ...value } : null;
  } catch {
    return null;
  }
}

const isSet = (value: unknown) => value !== undefined;
