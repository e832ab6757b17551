import { readFileSync } from "node:fs";
import type { ConnectionState, ExecServerClient } from "../client/exec-server-client.ts";
import { connectServer, type ServerAddress } from "../host/connect-server.ts";

/** The options of every command that talks to a server. */
export const CONNECT_OPTIONS = {
  connect: { type: "string" },
  "token-file": { type: "string" },
  session: { type: "string" },
} as const;

/** Where `procwire start` serves. */
export const DEFAULT_URL = "ws://127.0.0.1:7070";

export const CONNECT_HELP = `  --connect URL      the server: ws://HOST:PORT, wss://HOST:PORT or unix://PATH
  --token-file PATH  the token it asks for; or PROCWIRE_TOKEN in the environment
  --session ID       a session to come back to, instead of a new one
`;

export interface ConnectValues {
  "token-file"?: string | undefined;
  session?: string | undefined;
}

export function serverAddress(url: string, values: ConnectValues): ServerAddress {
  return { url, readToken: () => readToken(values["token-file"]), resumeSessionId: values.session };
}

export function connectTo(
  url: string,
  values: ConnectValues,
  onConnectionState?: (state: ConnectionState) => void,
): Promise<ExecServerClient> {
  return connectServer(serverAddress(url, values), onConnectionState);
}

/** One character a byte, as headers are sent; without the white space at the end, as servers read their secrets. */
function readToken(path: string | undefined): string | undefined {
  const { PROCWIRE_TOKEN } = process.env;
  const bytes = path !== undefined ? readFileSync(path) : PROCWIRE_TOKEN && Buffer.from(PROCWIRE_TOKEN);
  return bytes ? bytes.toString("latin1").replace(/[\t-\r ]+$/, "") : undefined;
}
