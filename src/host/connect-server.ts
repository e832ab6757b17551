import { sleep, systemClock } from "../async/clock.ts";
import { randomUuid } from "../base/random-uuid.ts";
import type { ConnectionState, ExecServerClient, ExecServerClientOptions } from "../client/exec-server-client.ts";
import { ExecServerError } from "../protocol/exec-server-error.ts";
import { randomBytes } from "../server/auth/random-bytes.ts";
import { withConnectAdvice } from "./connect-advice.ts";

/** Address and credentials of a server. */
export interface ServerAddress {
  url: string;
  /** Called for each connection, so that a token that was renewed in its file is used. */
  readToken?: (() => string | undefined) | undefined;
  /** A session to resume instead of opening a new one. */
  resumeSessionId?: string | undefined;
  /** PEM certificates that are trusted in addition to the system's. */
  tlsCa?: string | undefined;
  /** Called for each connection: certificate and key of this client, in PEM. */
  readTlsCert?: (() => string) | undefined;
  readTlsKey?: (() => string) | undefined;
  /** Allows sending the token over plain `ws://` to another host. */
  insecurePlainToken?: boolean | undefined;
  /** How long to wait for a server that is starting. Default: no wait. */
  startTimeoutMs?: number | undefined;
}

/** Interval between two attempts to reach a starting server. */
const RETRY_INTERVAL_MS = 200;

/** Connects to a server. Waits up to `startTimeoutMs` for a server that is starting. Imports the client on demand. */
export async function connectServer(
  address: ServerAddress,
  onConnectionState?: (state: ConnectionState) => void,
  reconnect?: ExecServerClientOptions["reconnect"],
): Promise<ExecServerClient> {
  const until = systemClock.monotonic() + (address.startTimeoutMs ?? 0);
  for (;;) {
    try {
      return await connectOnce(address, onConnectionState, reconnect);
    } catch (error) {
      const isStarting = error instanceof ExecServerError && NOT_YET.has(error.code);
      if (!isStarting || systemClock.monotonic() >= until) throw withConnectAdvice(error, address.url);
    }
    await sleep(systemClock, RETRY_INTERVAL_MS);
  }
}

async function connectOnce(
  { url, readToken, resumeSessionId, tlsCa, readTlsCert, readTlsKey, insecurePlainToken }: ServerAddress,
  onConnectionState?: (state: ConnectionState) => void,
  reconnect?: ExecServerClientOptions["reconnect"],
): Promise<ExecServerClient> {
  const [{ NodeExecServerClient: Client }, { lazyNativeCodec }] = await Promise.all([
    import("../client/node/node-client.ts"),
    import("./client-codec.ts"),
  ]);
  return Client.connectWebSocket({
    url,
    clientName: "procwire-cli",
    authToken: readToken,
    resumeSessionId,
    tlsCa,
    tlsCert: readTlsCert,
    tlsKey: readTlsKey,
    insecurePlainToken,
    // Sockets and byte codec of the addon.
    codec: lazyNativeCodec(),
    // The global `crypto` loads a library that takes longer than a request.
    newId: () => randomUuid(randomBytes(16)),
    onConnectionState,
    reconnect,
  });
}

/** Errors of a server or host that is not up yet; other errors would repeat. */
const NOT_YET: ReadonlySet<string> = new Set([
  ...["ECONNREFUSED", "ENOENT", "ECONNRESET", "EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ETIMEDOUT"],
  ...["ENOTFOUND", "EAI_AGAIN", "TIMEOUT", "PIPE"],
]);
