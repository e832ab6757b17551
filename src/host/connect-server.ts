import type { ConnectionState, ExecServerClient } from "../client/exec-server-client.ts";
import { ExecServerError } from "../protocol/exec-server-error.ts";

/** Where a server is, and what lets a client in. */
export interface ServerAddress {
  url: string;
  /** Read for each connection, so that a token that was renewed in its file is the one that is sent. */
  readToken?: (() => string | undefined) | undefined;
  /** A session to resume in place of opening a new one. */
  resumeSessionId?: string | undefined;
  /** Certificates that are trusted beside the system's; PEM. */
  tlsCa?: string | undefined;
  /** Lets the token go over a plain `ws://` to another host. */
  insecurePlainToken?: boolean | undefined;
  /** So long a server may take to come up. Default: it must be there. */
  waitMs?: number | undefined;
}

/** Between two looks for a server that is to come up. */
const LOOK_AGAIN_MS = 200;

/** Loads the client only when there is a server to talk to. */
export async function connectServer(
  address: ServerAddress,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  const until = performance.now() + (address.waitMs ?? 0);
  for (;;) {
    try {
      return await connectOnce(address, onConnectionState);
    } catch (error) {
      if (!mayComeUp(error) || performance.now() >= until) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

async function connectOnce(
  { url, readToken, resumeSessionId, tlsCa, insecurePlainToken }: ServerAddress,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  const [{ ExecServerClient: Client }, { thisCodec }] = await Promise.all([
    import("../client/node/node-client.ts"),
    import("./native-support.ts"),
  ]);
  return Client.connectWebSocket({
    url,
    clientName: "procwire-cli",
    authToken: readToken?.(),
    resumeSessionId,
    tlsCa,
    insecurePlainToken,
    // Its byte loops, not its processes: stdin is masked and encoded on its way out.
    codec: thisCodec(),
    onConnectionState,
  });
}

/** Nobody listens there yet, or the host is not up; anything else would be the same a moment later. */
const NOT_YET: ReadonlySet<string> = new Set([
  ...["ECONNREFUSED", "ENOENT", "ECONNRESET", "EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ETIMEDOUT"],
  ...["ENOTFOUND", "EAI_AGAIN", "TIMEOUT", "PIPE"],
]);

function mayComeUp(error: unknown): boolean {
  return error instanceof ExecServerError && NOT_YET.has(error.code);
}
