import { join } from "node:path";
import { webSocketWire } from "../../support/servers/raw-connection.ts";
import { scratchDirectory } from "../../support/servers/serve.ts";
import { type SocketServer, serveOn } from "../../support/servers/sockets.ts";
import { contract } from "./contract.ts";

/** The shipped server listens with the addon's sockets; the contract also holds for Node's, its fallback. */

const scratch = scratchDirectory();
let tcp: SocketServer;
let unix: SocketServer;

contract({
  name: "WebSocket on Node's sockets",
  open: async () => {
    tcp = await serveOn("Node's sockets");
  },
  connect: () => webSocketWire(tcp.url),
  close: () => tcp.close(),
  malformed: /^failed to parse websocket JSON-RPC message from exec-server websocket 127\.0\.0\.1:\d+: ./,
  resumable: true,
});

contract({
  name: "a unix socket of Node's",
  open: async () => {
    unix = await serveOn("Node's sockets", { type: "unix", path: join(scratch.path, "server.sock") });
  },
  connect: () => webSocketWire(unix.url),
  close: async () => {
    await unix.close();
    scratch[Symbol.dispose]();
  },
  malformed: /^failed to parse websocket JSON-RPC message from exec-server websocket unix: ./,
  resumable: true,
});
