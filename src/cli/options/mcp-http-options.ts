import type { IncomingMessage } from "node:http";
import { authFromFlags } from "../../server/auth/auth-config.ts";
import { authorize, type WebSocketAuth } from "../../server/auth/websocket-auth.ts";
import { FOREIGN_HOST, isOwnHost } from "../../server/listen/host-header.ts";
import type { Admission } from "../../tools/mcp/mcp-http.ts";
import { UsageError } from "../command.ts";

/** The options of a server that is asked over HTTP; who may ask is said as for `procwire serve`. */
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

export const HTTP_HELP = `  --http HOST:PORT   serve over Streamable HTTP at http://HOST:PORT/mcp instead of stdio; clients with one token share
                     their sessions. Who may ask is said as for \`procwire serve\`: --ws-auth KIND (default: auto, a token
                     is made and shown once; none: anybody on this machine), --ws-token-file, --ws-token-sha256,
                     --ws-shared-secret-file, --ws-issuer, --ws-audience, --allow-host NAME
`;

type HttpValues = { [K in keyof typeof HTTP_OPTIONS]?: string | string[] | undefined };

export interface HttpPlace {
  host: string;
  port: number;
  admit: (request: IncomingMessage) => Promise<Admission>;
  /** Written to stderr for the person who started it. */
  notices: string[];
}

const ADDRESS = /^(?:\[([\da-fA-F:.]+)\]|([^:[\]]+)):(\d{1,5})$/;
const LOOPBACK = new Set(["127.0.0.1", "::1", "localhost"]);

/** Throws for a place that cannot be listened on, and for one that would be open to others without a token. */
export function httpPlace(values: HttpValues): HttpPlace {
  const text = (name: keyof HttpValues) => {
    const value = values[name];
    return typeof value === "string" ? value : undefined;
  };
  const found = ADDRESS.exec(text("http") ?? "");
  const host = found?.[1] ?? found?.[2];
  if (!found || host === undefined)
    throw new UsageError(`--http \`${text("http")}\` must be HOST:PORT, such as 127.0.0.1:7071`);
  const kind = text("ws-auth") ?? "auto";
  if (kind === "none" && !LOOPBACK.has(host))
    throw new UsageError("--ws-auth none is for 127.0.0.1, [::1] and localhost only");
  const { auth, warnings, newToken } = authFromFlags({
    wsAuth: kind === "none" ? undefined : kind,
    wsTokenFile: text("ws-token-file"),
    wsTokenSha256: text("ws-token-sha256"),
    wsSharedSecretFile: text("ws-shared-secret-file"),
    wsIssuer: text("ws-issuer"),
    wsAudience: text("ws-audience"),
  });
  const names = new Set([values["allow-host"] ?? []].flat().map((name) => name.toLowerCase()));
  return {
    host,
    port: Number(found[3]),
    admit: (request) => admit(auth, names, request),
    notices: [...warnings, ...(newToken === undefined ? [] : [`token (shown once): ${newToken}`])],
  };
}

/** A page in a browser tells where it comes from, and has no business here. */
async function admit(
  auth: WebSocketAuth,
  names: ReadonlySet<string>,
  { headers }: IncomingMessage,
): Promise<Admission> {
  if (!isOwnHost(headers.host, names)) return { type: "refused", status: 403, reason: FOREIGN_HOST };
  if (headers.origin !== undefined && !isOwnOrigin(headers.origin, names))
    return { type: "refused", status: 403, reason: "pages of other sites may not ask" };
  const verdict = await authorize(auth, headers.authorization, Date.now());
  return verdict.type === "admitted"
    ? { type: "admitted", principal: verdict.principal.id }
    : { type: "refused", status: 401, reason: verdict.reason.replace("websocket ", "") };
}

function isOwnOrigin(origin: string, names: ReadonlySet<string>): boolean {
  const host = URL.parse(origin)?.hostname.toLowerCase() ?? "";
  return LOOPBACK.has(host) || host === "[::1]" || names.has(host);
}
