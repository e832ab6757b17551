import { lineWire } from "../../support/servers/raw-connection.ts";
import { ServeChild } from "../../support/servers/serve.ts";
import { contract } from "./contract.ts";

/** One server a connection: that is what stdio is. The next one is started while a test runs, so that none waits for it. */
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
