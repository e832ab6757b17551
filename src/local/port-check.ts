import { readFileSync } from "node:fs";
import { createConnection } from "node:net";

/** The state of a listening socket in /proc/net/tcp. */
const LISTEN_STATE = "0A";
/** A loopback connection is answered at once or not at all. */
const CONNECT_TIMEOUT_MS = 500;

/** How long one look at the table serves everybody who waits for a port. */
const LOOK_SERVES_MS = 20;

let look: { atMs: number; ports: ReadonlySet<number> | null } | null = null;

/** Is anybody listening on this TCP port of this machine? Asks the kernel's table; elsewhere than on Linux it connects. */
export async function isPortListening(port: number): Promise<boolean> {
  const now = performance.now();
  // That nobody listens may be told a little late; that somebody does must be so now.
  if (look === null || now - look.atMs >= LOOK_SERVES_MS || look.ports?.has(port)) {
    look = { atMs: now, ports: listeningPorts() };
  }
  if (look.ports !== null) return look.ports.has(port);
  return (await connects("127.0.0.1", port)) || (await connects("::1", port));
}

/** Null where the system has no such table. */
function listeningPorts(): ReadonlySet<number> | null {
  const tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(readTable);
  if (tables.every((table) => table === null)) return null;
  return new Set(tables.flatMap((table) => (table === null ? [] : portsOf(table))));
}

/** Read here and now: the kernel answers without waiting, and Node's threads may not be there. */
function readTable(path: string): string | null {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return null;
  }
}

function portsOf(table: string): number[] {
  return table.split("\n").flatMap((line) => {
    const [, local, , state] = line.trim().split(/\s+/);
    return state === LISTEN_STATE && local !== undefined
      ? [Number.parseInt(local.slice(local.lastIndexOf(":") + 1), 16)]
      : [];
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
