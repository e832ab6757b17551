import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../../base/error-message.ts";
import { connectFromBrowser, type ExecServerClient } from "../../client/browser.ts";

export type Link =
  | { type: "connecting" }
  | { type: "connected"; client: ExecServerClient }
  /** The client is reconnecting; what is shown may be out of date. */
  | { type: "reconnecting"; client: ExecServerClient }
  | { type: "failed"; reason: string };

/** One connection for the whole page. A lost one is resumed under everything that is shown. */
export function useClient(protocols: readonly string[] = ["procwire.v1"]): Link {
  const [link, setLink] = useState<Link>({ type: "connecting" });
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
      (error: unknown) => setLink({ type: "failed", reason: messageOf(error) }),
    );
    return () => {
      leaving.abort();
      // The page is gone; the server notices the closed connection by itself.
      void client?.close().catch(() => undefined);
    };
  }, []);
  return link;
}
