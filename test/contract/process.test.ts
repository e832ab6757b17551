import { inProcess, local, stdio, unixSocket, webSocket } from "./backends.ts";
import { processContract } from "./process-contract.ts";

processContract("local", local);
processContract("in process", inProcess);
processContract("stdio", stdio);
processContract("websocket", webSocket);
processContract("unix socket", unixSocket);
