import type { ConnectionState, ExecServerClient } from "../client/exec-server-client.ts";

/** Where a server is, and what lets a client in. */
export interface ServerAddress {
  url: string;
  /** Read for each connection, so that a token that was renewed in its file is the one that is sent. */
  readToken?: (() => string | undefined) | undefined;
  /** A session to resume in place of opening a new one. */
  resumeSessionId?: string | undefined;
}

/** Loads the client only when there is a server to talk to. */
export async function connectServer(
  { url, readToken, resumeSessionId }: ServerAddress,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  const [{ ExecServerClient: Client }, { thisCodec }] = await Promise.all([
    import("../client/node/socket-client.ts"),
    import("./this-wire.ts"),
  ]);
  return Client.connectWebSocket({
    url,
    clientName: "procwire-cli",
    authToken: readToken?.(),
    resumeSessionId,
    // Its byte loops, not its processes: stdin is masked and encoded on its way out.
    codec: thisCodec(),
    onConnectionState,
  });
}
