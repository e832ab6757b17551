import { once } from "node:events";
import { rmSync } from "node:fs";
import { createServer } from "node:http";

/**
 * Listens at the Unix socket URL of a server that has ended, and rejects the first connection with HTTP 404. A client
 * that reconnects then gives up its session at once, and not after its reconnect deadline.
 */
export async function rejectReconnect(url: string): Promise<void> {
  const path = url.replace("unix://", "");
  rmSync(path, { force: true });
  const server = createServer();
  server.on("upgrade", (_, socket) => socket.end("HTTP/1.1 404 Not Found\r\n\r\n"));
  server.listen(path);
  await once(server, "upgrade");
  server.close();
}
