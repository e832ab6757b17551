import { once } from "node:events";
import { createServer } from "node:net";

/** Below the range from which Linux assigns ports, so that no other socket takes the port before the test binds it. */
const FIRST_PORT = 20_000;
const PORTS = 12_000;

/** Returns a TCP port that is free on loopback, for programs that cannot choose one themselves. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = FIRST_PORT + Math.floor(Math.random() * PORTS);
    const probe = createServer().listen(port, "127.0.0.1");
    const isFree = await once(probe, "listening").then(
      () => true,
      () => false,
    );
    if (!isFree) continue;
    probe.close();
    await once(probe, "close");
    return port;
  }
}
