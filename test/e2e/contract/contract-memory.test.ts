import { createLocalHost } from "../../../src/host/local-host.ts";
import { ExecServer } from "../../../src/server/exec-server.ts";
import { memoryWire } from "../../support/servers/raw-connection.ts";
import { contract } from "./contract.ts";

let server: ExecServer;

contract({
  name: "a pair in memory",
  open: async () => {
    server = new ExecServer(createLocalHost());
  },
  connect: async () => memoryWire((connection) => server.accept(connection)),
  close: () => server.close(),
  malformed: /^failed to parse JSON-RPC message from memory b: ./,
  resumable: true,
});
