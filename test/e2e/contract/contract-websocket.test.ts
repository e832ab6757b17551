import { webSocketWire } from "../../support/servers/raw-connection.ts";
import { type ServeChild, serve } from "../../support/servers/serve.ts";
import { contract } from "./contract.ts";

let child: ServeChild;

contract({
  name: "WebSocket",
  open: async () => {
    child = await serve();
  },
  connect: () => webSocketWire(child.url),
  close: async () => {
    await child.stop();
  },
  malformed: /^failed to parse websocket JSON-RPC message from exec-server websocket 127\.0\.0\.1:\d+: ./,
  resumable: true,
});
