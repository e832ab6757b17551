import { useEffect, useState } from "preact/hooks";
import { errorMessage } from "../../base/error-message.ts";
import { connectFromBrowser, type ExecServerClient } from "../../client/browser.ts";

export type ClientState =
  | { type: "connecting" }
  | { type: "connected"; client: ExecServerClient }
  /** The client is reconnecting; the displayed state may be stale. */
  | { type: "reconnecting"; client: ExecServerClient }
  | { type: "failed"; reason: string };

/** One connection for the whole page. A lost one is resumed under everything that is shown. */
export function useClient(protocols: readonly string[] = ["procwire.v1"]): ClientState {
  const [link, setLink] = useState<ClientState>({ type: "connecting" });
  useEffect(() => {
    const leaving = new AbortController();
    let client: ExecServerClient | null = null;
    const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/`;
    connectFromBrowser({
      url,
      clientName: "procwire-console",
      signal: leaving.signal,
      openSocket: (address) => new WebSocket(address, [...protocols]),
      onConnectionState: (state) => {
        if (!client) return;
        if (state.type === "reconnecting") setLink({ type: "reconnecting", client });
        else if (state.type === "connected") setLink({ type: "connected", client });
        else setLink({ type: "failed", reason: "the connection is over; reload the page to connect again" });
      },
    }).then(
      (connected) => {
        client = connected;
        setLink({ type: "connected", client });
      },
      (error: unknown) => setLink({ type: "failed", reason: errorMessage(error) }),
    );
    return () => {
      leaving.abort();
      // Best effort: the server detects the closed connection anyway.
      void client?.close().catch(() => undefined);
    };
  }, []);
  return link;
}
