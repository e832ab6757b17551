import { createServer, type RequestListener, type Server } from "node:http";

const MAX_HEADER_BYTES = 32 * 1024;

/** Creates an HTTP server that serves injected connections. It never listens itself, so Node starts no timer for it. */
export function createProxyServer(onRequest?: RequestListener): Server {
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      insecureHTTPParser: false,
      requireHostHeader: false,
      keepAliveTimeout: 0,
      headersTimeout: 0,
      requestTimeout: 0,
      noDelay: true,
    },
    onRequest,
  );
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => {
    const status = error.code === "HPE_HEADER_OVERFLOW" ? "431 Request Header Fields Too Large" : "400 Bad Request";
    if (socket.writable) socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
    else socket.destroy();
  });
  return server;
}
