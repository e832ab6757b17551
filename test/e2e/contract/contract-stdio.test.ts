import { lineWire } from "../../support/servers/raw-connection.ts";
import { ServeChild } from "../../support/servers/serve.ts";
import { contract } from "./contract.ts";

/**
 * Stdio serves one connection with each server process. The next server starts while a test runs, so that no test waits
 * for it.
 */
const children = new Set<ServeChild>();
let next: ServeChild;

function startServer(): ServeChild {
  const child = new ServeChild([], { stdin: "pipe" });
  children.add(child);
  void child.exited.then(() => children.delete(child));
  return child;
}

contract({
  name: "stdio",
  open: async () => {
    next = startServer();
  },
  connect: async () => {
    const { child, exited } = next;
    next = startServer();
    if (!child.stdin || !child.stdout) throw new Error("the server has no stdio");
    return lineWire(
      child.stdout,
      child.stdin,
      exited.then(({ code }) => code),
    );
  },
  close: async () => {
    await Promise.all([...children].map((child) => child.stop()));
  },
  malformed: /^failed to parse JSON-RPC message from exec-server stdio: ./,
  resumable: false,
});
