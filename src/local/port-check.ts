import { readFile } from "node:fs/promises";
import { createConnection } from "node:net";

/** The state of a listening socket in /proc/net/tcp. */
const LISTEN_STATE = "0A";
/** A loopback connection is answered at once or not at all. */
const CONNECT_TIMEOUT_MS = 500;

/** Is anybody listening on this TCP port of this machine? Asks the kernel's table; elsewhere than on Linux it connects. */
export async function isPortListening(port: number): Promise<boolean> {
  const tables = await Promise.all(["/proc/net/tcp", "/proc/net/tcp6"].map(readTable));
  if (tables.some((table) => table !== null))
    return tables.some((table) => table !== null && lists(table, port));
  return (await connects("127.0.0.1", port)) || (await connects("::1", port));
}

async function readTable(path: string): Promise<string | null> {
  try {
    return await readFile(path, "latin1");
  } catch {
    return null;
  }
}

function lists(table: string, port: number): boolean {
  const wanted = `:${port.toString(16).toUpperCase().padStart(4, "0")}`;
  return table.split("\n").some((line) => {
    const [, local, , state] = line.trim().split(/\s+/);
    return state === LISTEN_STATE && local !== undefined && local.endsWith(wanted);
  });
}

function connects(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host, port, timeout: CONNECT_TIMEOUT_MS });
    const done = (open: boolean) => {
      socket.destroy();
      resolve(open);
    };
    socket.once("connect", () => done(true));
    socket.once("error", () => done(false));
    socket.once("timeout", () => done(false));
  });
}
