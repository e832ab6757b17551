import type { IncomingMessage } from "node:http";
import { systemClock } from "../../async/clock.ts";
import type { PeerAddress } from "../../base/peer-address.ts";
import { parseAuthFlags } from "../../server/auth/auth-config.ts";
import { AuthFileWatcher } from "../../server/auth/auth-file-watcher.ts";
import { Authenticator } from "../../server/auth/authenticator.ts";
import { RevokedTokens } from "../../server/auth/revoked-tokens.ts";
import type { ServerLog } from "../../server/host-services.ts";
import { FOREIGN_HOST_MESSAGE, isAllowedHost } from "../../server/listen/host-header.ts";
import type { HttpAuthResult, McpHttpOptions } from "../../tools/mcp/mcp-http.ts";
import { type PartialValues, UsageError } from "../command.ts";
import type { HelpRow } from "../help/help-page.ts";
import { secretFlag } from "./parse-options.ts";

/** Options of the MCP HTTP server. Authentication flags are those of `procwire serve`. */
export const HTTP_OPTIONS = {
  http: { type: "string" },
  "allow-host": { type: "string", multiple: true },
  "ws-auth": { type: "string" },
  "ws-token-file": { type: "string" },
  "ws-token-sha256": { type: "string" },
  "ws-shared-secret-file": { type: "string" },
  "ws-issuer": { type: "string" },
  "ws-audience": { type: "string" },
} as const;

/** Help of `HTTP_OPTIONS`. */
export const HTTP_ROWS: readonly HelpRow[] = [
  [
    "--http HOST:PORT",
    "serve Streamable HTTP at http://HOST:PORT/mcp instead of stdio; clients with the same token share their sessions",
  ],
  [
    "--ws-auth KIND",
    "capability-token, signed-bearer-token, auto (generate a token and print it once), or none, for loopback addresses only (default: auto)",
  ],
  ["--ws-token-file PATH", "file with the capability token; read again when it changes and on SIGHUP"],
  ["--ws-token-sha256 HEX", "SHA-256 of the capability token"],
  ["--ws-shared-secret-file PATH", "file with the secret of signed tokens"],
  ["--ws-issuer NAME", "required issuer of signed tokens"],
  ["--ws-audience NAME", "required audience of signed tokens"],
  ["--allow-host NAME", "allowed host name, in addition to IP addresses and localhost; repeatable"],
];

type HttpValues = PartialValues<typeof HTTP_OPTIONS>;

export interface McpHttpListenOptions extends Pick<McpHttpOptions, "host" | "port" | "authenticate"> {
  /** Token and secret files, which no sandboxed process may read, each with its flag. */
  secretFlags: Record<string, string>;
  /** Watches token and secret files, so that removed tokens end. Returns null if there are none. */
  watchFiles(log: ServerLog): AuthFileWatcher | null;
  /** Notices for the user, printed on stderr. */
  notices: string[];
}

const ADDRESS = /^(?:\[([\da-fA-F:.]+)\]|([^:[\]]+)):(\d{1,5})$/;
const LOOPBACK = new Set(["127.0.0.1", "::1", "localhost"]);

/** Parses the flags. Throws if the address is invalid, or not loopback without authentication. */
export function parseMcpHttpOptions(values: HttpValues): McpHttpListenOptions {
  const found = ADDRESS.exec(values.http ?? "");
  const host = found?.[1] ?? found?.[2];
  if (!found || host === undefined)
    throw new UsageError(`--http \`${values.http}\` must be HOST:PORT, such as 127.0.0.1:7071`);
  const kind = values["ws-auth"] ?? "auto";
  if (kind === "none" && !LOOPBACK.has(host))
    throw new UsageError("--ws-auth none is for 127.0.0.1, [::1] and localhost only");
  const { auth, warnings, newToken, authFiles, revokedTokensFile } = parseAuthFlags({
    wsAuth: kind === "none" ? undefined : kind,
    wsTokenFile: values["ws-token-file"],
    wsTokenSha256: values["ws-token-sha256"],
    wsSharedSecretFile: values["ws-shared-secret-file"],
    wsIssuer: values["ws-issuer"],
    wsAudience: values["ws-audience"],
  });
  const names = new Set((values["allow-host"] ?? []).map((name) => name.toLowerCase()));
  const revoked = revokedTokensFile === undefined ? undefined : new RevokedTokens(revokedTokensFile);
  const authenticator = new Authenticator(auth, { revoked });
  return {
    host,
    port: Number(found[3]),
    authenticate: (request) => authenticateRequest(authenticator, names, request),
    watchFiles: (log) =>
      authFiles || revoked
        ? new AuthFileWatcher({ authenticator, files: authFiles, revoked, clock: systemClock, log })
        : null,
    secretFlags: {
      ...secretFlag(values["ws-token-file"], "--ws-token-file"),
      ...secretFlag(values["ws-shared-secret-file"], "--ws-shared-secret-file"),
      // Next to the secret.
      ...secretFlag(revokedTokensFile, "--ws-shared-secret-file"),
    },
    notices: [...warnings, ...(newToken === undefined ? [] : [`token (shown once): ${newToken}`])],
  };
}

/** Rejects every request of a sandboxed process: it could make a call and approve the call itself. */
export function unsandboxedOnly(
  authenticate: McpHttpListenOptions["authenticate"],
  isSandboxedPeer: (peer: PeerAddress) => false | Promise<boolean>,
): McpHttpListenOptions["authenticate"] {
  return async (request) => {
    const { remoteAddress, remotePort, localPort } = request.socket;
    // A reset socket has no addresses.
    const peer: PeerAddress =
      localPort === undefined
        ? { type: "unknown" }
        : { type: "tcp", peerName: `${remoteAddress}:${remotePort}`, localPort };
    // A failed lookup counts as a sandboxed peer.
    if (await Promise.resolve(isSandboxedPeer(peer)).catch(() => true))
      return { type: "refused", status: 403, reason: "connections from sandboxed processes are rejected" };
    return authenticate(request);
  };
}

/** Rejects requests of web pages from other origins, then checks the token. */
async function authenticateRequest(
  auth: Authenticator,
  names: ReadonlySet<string>,
  { headers }: IncomingMessage,
): Promise<HttpAuthResult> {
  if (!isAllowedHost(headers.host, names)) return { type: "refused", status: 403, reason: FOREIGN_HOST_MESSAGE };
  if (headers.origin !== undefined && !isOwnOrigin(headers.origin, names))
    return { type: "refused", status: 403, reason: "requests from other origins are rejected" };
  const result = await auth.authorize(headers.authorization);
  if (result.type === "refused")
    return { type: "refused", status: 401, reason: result.reason.replace("websocket ", "") };
  const { id, credential } = result.principal;
  // Tools run commands without the confinement of a scope.
  if (credential?.scope)
    return { type: "refused", status: 403, reason: "a token with a scope cannot use MCP; use a token without a scope" };
  return { type: "admitted", principal: id, onEnd: credential && ((listener) => credential.onEnd(listener)) };
}

function isOwnOrigin(origin: string, names: ReadonlySet<string>): boolean {
  const host = URL.parse(origin)?.hostname.toLowerCase() ?? "";
  return LOOPBACK.has(host) || host === "[::1]" || names.has(host);
}
