/**
 * A WebSocket echo server that uses the same code as the procwire server: the sockets and frames of the addon, or those
 * of Node. Also a program, so that an external suite can test it:
 *
 *   node test/support/servers/echo-server.ts [--node] [--port 9001] [--max-message-bytes N]
 *
 * It does not echo a text that is a complete `process/write` request, because the addon handles that request.
 */

import { parseArgs } from "node:util";
import type { Listener } from "../../../src/connection/accepted-socket.ts";
import { WebSocketConnection } from "../../../src/connection/websocket-connection.ts";
import { rawFrame } from "../faults/raw-frames.ts";
import { listenerOf, type SocketKind, serveWebSockets } from "./websocket-server.ts";

/** The largest message of the usual suites is 16 MiB. */
const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

export function serveEcho(
  kind: SocketKind,
  options: { maxMessageBytes?: number; port?: number } = {},
): Promise<Listener> {
  const { maxMessageBytes = MAX_MESSAGE_BYTES, port = 0 } = options;
  return serveWebSockets(listenerOf(kind), { maxMessageBytes, port }, (socket) => {
    const connection = new WebSocketConnection(socket, {
      label: "echo",
      role: "server",
      maxMessageBytes,
      onMessage: (payload, messageKind) => {
        if (messageKind === "text") connection.send(payload.toString("utf8"));
        else socket.sendFrame(rawFrame({ opcode: 2, payload, mask: null }));
      },
    });
    connection.open(() => undefined);
  });
}

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      node: { type: "boolean", default: false },
      port: { type: "string", default: "0" },
      "max-message-bytes": { type: "string", default: String(MAX_MESSAGE_BYTES) },
    },
  });
  const listener = await serveEcho(values.node ? "node" : "native", {
    port: Number(values.port),
    maxMessageBytes: Number(values["max-message-bytes"]),
  });
  console.error(`echoing on ws://127.0.0.1:${listener.port}`);
  console.log(`ws://127.0.0.1:${listener.port}`);
}
