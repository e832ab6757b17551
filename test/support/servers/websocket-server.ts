/** Listens and accepts every WebSocket, using the server's own sockets, request heads and frames. */

import assert from "node:assert/strict";
import type { Listener, ListenFunction } from "../../../src/connection/accepted-socket.ts";
import { nodeByteCodec } from "../../../src/connection/byte-codec.ts";
import type { FrameSocket } from "../../../src/connection/frame-socket.ts";
import { nodeListener } from "../../../src/connection/node-socket-listener.ts";
import { websocketAcceptKey } from "../../../src/connection/websocket-accept-key.ts";
import { loadAddon } from "../../../src/native/load-addon.ts";
import { nativeListener } from "../../../src/native/native-sockets.ts";
import { parseRequestHead } from "../../../src/server/listen/http-request-head.ts";

export type SocketKind = "native" | "node";

export function listenerOf(kind: SocketKind): ListenFunction {
  if (kind === "node") return nodeListener(nodeByteCodec);
  const native = loadAddon();
  assert.ok(native.type === "loaded", "the native spawner must be built");
  return nativeListener(native.addon);
}

/** Returns the bound port of a TCP listener. */
export function tcpPort({ port }: Listener): number {
  assert.ok(port !== null, "the listener is bound to a TCP port");
  return port;
}

export async function serveWebSockets(
  listenAt: ListenFunction,
  options: { maxMessageBytes: number; port?: number },
  onSocket: (socket: FrameSocket) => void,
): Promise<Listener> {
  const { maxMessageBytes, port = 0 } = options;
  return listenAt({ host: "127.0.0.1", port }, (accepted) => {
    let received: Buffer = Buffer.alloc(0);
    accepted.start({
      bytes: (chunk) => {
        received = Buffer.concat([received, chunk]);
        const parsed = parseRequestHead(received);
        if (parsed.type === "refused") accepted.destroy();
        if (parsed.type !== "head") return;
        const key = parsed.head.headers.get("sec-websocket-key") ?? "";
        accepted.send(
          Buffer.from(
            `HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: ${websocketAcceptKey(key)}\r\n\r\n`,
          ),
        );
        onSocket(
          accepted.upgrade({
            maxMessageBytes,
            maxQueuedBytes: Number.MAX_SAFE_INTEGER,
            received: parsed.rest,
          }),
        );
      },
      end: () => accepted.destroy(),
    });
  });
}
