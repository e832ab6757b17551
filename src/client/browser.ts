/** The client for browsers: every part that works without Node, over the browser's WebSocket. */

import { checkOptions } from "../exec/options/option-schema.ts";
import { browserOptions } from "./client-options.ts";
import { DEFAULT_CONNECT_TIMEOUT_MS, ExecServerClient, type ExecServerClientOptions } from "./exec-server-client.ts";
import { connectStandardWebSocket, type WebSocketLike } from "./rpc/browser-connection.ts";

export interface BrowserClientOptions extends ExecServerClientOptions {
  /** `ws://…` or `wss://…`. */
  url: string;
  /** Default 10 s. */
  connectTimeoutMs?: number;
  /** Creates the socket. Default: the browser's WebSocket. */
  openSocket?: (url: string) => WebSocketLike;
}

/**
 * Connects from a browser.
 *
 * @example
 * const client = await connectFromBrowser({ url: "ws://127.0.0.1:7070" });
 */
export async function connectFromBrowser(options: BrowserClientOptions): Promise<ExecServerClient> {
  checkOptions("connectFromBrowser", options, browserOptions);
  const { url, openSocket, connectTimeoutMs = DEFAULT_CONNECT_TIMEOUT_MS, ...clientOptions } = options;
  return ExecServerClient.connect(
    (signal) => connectStandardWebSocket({ url, connectTimeoutMs, signal, open: openSocket }),
    clientOptions,
  );
}

export { TimeoutError } from "../async/deadline.ts";
export { communicate } from "../exec/run/communicate.ts";
export { lines } from "../exec/run/lines.ts";
export { run } from "../exec/run/run-program.ts";
export { waitFor } from "../exec/wait/wait-for-output.ts";
export { DisconnectedError, RequestError } from "../protocol/errors.ts";
export { ExecServerError } from "../protocol/exec-server-error.ts";
export { PROTOCOL_VERSION } from "../protocol/methods.ts";
export type * from "./client-types.ts";
export { copyFiles } from "./copy/copy-files.ts";
export type { WebSocketLike } from "./rpc/browser-connection.ts";
export { ExecServerClient };
