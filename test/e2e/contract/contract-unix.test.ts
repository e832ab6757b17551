import { join } from "node:path";
import { webSocketWire } from "../../support/servers/raw-connection.ts";
import { ServeChild, scratchDirectory } from "../../support/servers/serve.ts";
import { contract } from "./contract.ts";

const scratch = scratchDirectory();
let child: ServeChild;

contract({
  name: "a unix socket",
  open: async () => {
    child = await new ServeChild(["--listen", `unix://${join(scratch.path, "server.sock")}`]).listening();
  },
  connect: () => webSocketWire(child.url),
  close: async () => {
    await child.stop();
    scratch[Symbol.dispose]();
  },
  malformed: /^failed to parse websocket JSON-RPC message from exec-server websocket unix: ./,
  resumable: true,
});
