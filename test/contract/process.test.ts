import { loadAddon } from "../../src/native/load-addon.ts";
import { selectCases } from "../support/system/repetitions.ts";
import { inProcess, local, localEnvironment, nodeSocket, stdio, unixSocket, webSocket } from "./backends.ts";
import { clientContract } from "./client-contract.ts";
import { execProcessContract } from "./exec-process-contract.ts";
import { processContract } from "./process-contract.ts";

const native = loadAddon();
const options = native.type === "missing" ? { noTerminal: `TERMINALS ARE NOT TESTED: ${native.why}` } : {};

// The tests of the local backend (test/local) run the exec process contract.
processContract("local", local);
clientContract("local", local, { noFiles: true });
clientContract("local environment", localEnvironment);
const IN_PROCESS = ["in process", inProcess] as const;
const WEBSOCKET = ["websocket", webSocket] as const;
const ALL = [
  IN_PROCESS,
  WEBSOCKET,
  ["stdio", stdio],
  ["websocket on Node's sockets", nodeSocket],
  ["unix socket", unixSocket],
] as const;
for (const [name, open] of selectCases(ALL, [IN_PROCESS, WEBSOCKET])) {
  execProcessContract(name, open, options);
  processContract(name, open);
  clientContract(name, open);
}
