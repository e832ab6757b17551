import { useEffect, useState } from "preact/hooks";
import { userMessage } from "../../base/error-message.ts";
import { connectFromBrowser, type ExecServerClient } from "../../client/browser.ts";

export type ClientState =
  | { type: "connecting" }
  | { type: "connected"; client: ExecServerClient }
  /** The client is reconnecting; the displayed state may be stale. */
  | { type: "reconnecting"; client: ExecServerClient }
  | { type: "failed"; reason: string };

/** Opens the connection of the console. A lost connection is resumed; pages keep their state. */
export function useClient(protocols: readonly string[]): ClientState {
  const [state, setState] = useState<ClientState>({ type: "connecting" });
  useEffect(() => {
    const unmounted = new AbortController();
    let client: ExecServerClient | null = null;
    const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/`;
    connectFromBrowser({
      url,
      clientName: "procwire-console",
      signal: unmounted.signal,
      // The pages show processes of the session; a new session has none of them.
      reconnect: { newSession: false },
      openSocket: (address) => new WebSocket(address, [...protocols]),
      onConnectionState: ({ type }) => {
        if (!client) return;
        if (type === "reconnecting") setState({ type: "reconnecting", client });
        else if (type === "connected") setState({ type: "connected", client });
        else setState({ type: "failed", reason: "the connection is closed; reload the page to connect again" });
      },
    }).then(
      (connected) => {
        client = connected;
        setState({ type: "connected", client });
      },
      (error: unknown) => setState({ type: "failed", reason: userMessage(error) }),
    );
    return () => {
      unmounted.abort();
      // Best effort: the server detects the closed connection anyway.
      void client?.close().catch(() => undefined);
    };
  }, []);
  return state;
}
