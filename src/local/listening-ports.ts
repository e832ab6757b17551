import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { createConnection } from "node:net";

/** The state of a listening socket in /proc/net/tcp. */
const LISTEN_STATE = "0A";
/** A loopback connection is answered at once or not at all. */
const CONNECT_TIMEOUT_MS = 500;

/** How long one look at the table serves everybody who waits for a port. */
const LOOK_SERVES_MS = 20;

export interface ListeningAddress {
  port: number;
  /** Where it can be reached from this machine: a loopback address for one that listens everywhere. */
  host: string;
}

/** By the inode of the socket that listens. */
type ListeningSockets = ReadonlyMap<number, ListeningAddress>;

interface Look {
  atMs: number;
  /** Null where the system has no table. */
  sockets: ListeningSockets | null;
  ports: ReadonlySet<number>;
}

export interface PortTableDeps {
  /** Null where the system has no such table. */
  read: () => string[] | null;
  nowMs: () => number;
}

/** The ports that are listened on. However many wait for a port, they share one read of the kernel's table. */
export class PortTable {
  readonly #deps: PortTableDeps;
  #look: Look | null = null;

  constructor(deps: PortTableDeps = { read: readTables, nowMs: () => performance.now() }) {
    this.#deps = deps;
  }

  /** Null where it cannot be known. "Nobody listens" may be a little out of date; "somebody listens" is true now. */
  isListening(port: number): boolean | null {
    const { ports } = this.#latest();
    if (ports.has(port)) this.#look = null;
    const { sockets, ports: now } = this.#latest();
    return sockets === null ? null : now.has(port);
  }

  sockets(): ListeningSockets {
    return this.#latest().sockets ?? new Map();
  }

  #latest(): Look {
    const atMs = this.#deps.nowMs();
    if (this.#look === null || atMs - this.#look.atMs >= LOOK_SERVES_MS) {
      const sockets = parseTables(this.#deps.read());
      const ports = new Set([...(sockets?.values() ?? [])].map(({ port }) => port));
      this.#look = { atMs, sockets, ports };
    }
    return this.#look;
  }
}

const table = new PortTable();

/** Is anybody listening on this TCP port of this machine? Asks the kernel's table; elsewhere than on Linux it connects. */
export async function isPortListening(port: number): Promise<boolean> {
  return table.isListening(port) ?? ((await connects("127.0.0.1", port)) || (await connects("::1", port)));
}

/**
 * The ports that processes of these trees listen on, each with the leader of its tree. A process belongs to a tree if
 * it descends from the leader or is still in its session; one that has left both is not found.
 */
export function listeningPortsOf(leaders: readonly number[]): (ListeningAddress & { leader: number })[] {
  const found: (ListeningAddress & { leader: number })[] = [];
  const sockets = table.sockets();
  if (leaders.length === 0 || sockets.size === 0) return found;
  for (const [pid, leader] of membersOf(new Set(leaders))) {
    for (const inode of socketInodes(pid)) {
      const address = sockets.get(inode);
      if (address && !found.some((one) => one.port === address.port)) found.push({ ...address, leader });
    }
  }
  return found;
}

/** Every process in these trees, with its leader. */
function membersOf(leaders: ReadonlySet<number>): Map<number, number> {
  const parents = new Map<number, { parent: number; session: number }>();
  for (const name of readDirectory("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    // What follows the name, which may hold anything: state, parent, group, session.
    const [, , parent, , session] =
      readTable(`/proc/${name}/stat`)
        ?.replace(/^.*\) /s, ") ")
        .split(" ") ?? [];
    parents.set(Number(name), { parent: Number(parent), session: Number(session) });
  }
  const members = new Map<number, number>();
  for (const pid of parents.keys()) {
    for (let at: number | undefined = pid; at !== undefined && at > 1; at = parents.get(at)?.parent) {
      const leader = leaders.has(at) ? at : parents.get(at)?.session;
      if (leader === undefined || !leaders.has(leader)) continue;
      members.set(pid, leader);
      break;
    }
  }
  return members;
}

function socketInodes(pid: number): number[] {
  return readDirectory(`/proc/${pid}/fd`).flatMap((fd) => {
    try {
      const [, inode] = /^socket:\[(\d+)\]$/.exec(readlinkSync(`/proc/${pid}/fd/${fd}`)) ?? [];
      return inode === undefined ? [] : [Number(inode)];
    } catch {
      return [];
    }
  });
}

/** Empty for a process that is gone, or that this user may not inspect. */
function readDirectory(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function readTables(): string[] | null {
  const tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(readTable).filter((text) => text !== null);
  return tables.length === 0 ? null : tables;
}

/** Synchronous: the kernel answers without waiting, and Node's threads may not exist. */
function readTable(path: string): string | null {
  try {
    return readFileSync(path, "latin1");
  } catch {
    return null;
  }
}

function parseTables(tables: string[] | null): ListeningSockets | null {
  if (tables === null) return null;
  const sockets = new Map<number, ListeningAddress>();
  for (const text of tables) {
    for (const line of text.split("\n")) {
      const [, local, , state, , , , , , inode] = line.trim().split(/\s+/);
      if (state !== LISTEN_STATE || local === undefined) continue;
      const [address = "", port = ""] = local.split(":");
      sockets.set(Number(inode), { port: Number.parseInt(port, 16), host: reachableAddress(address) });
    }
  }
  return sockets;
}

/** Decodes the kernel's address, four-byte words in the machine's byte order, of either family. */
function reachableAddress(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => [...Buffer.from(word, "hex")].reverse());
  if (bytes.every((byte) => byte === 0)) return bytes.length === 4 ? "127.0.0.1" : "localhost";
  if (bytes.length === 4) return bytes.join(".");
  // An IPv4 address in the form of an IPv6 one.
  if (bytes.slice(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff) return bytes.slice(12).join(".");
  if (bytes.slice(0, 15).every((byte) => byte === 0) && bytes[15] === 1) return "::1";
  return (Buffer.from(bytes).toString("hex").match(/.{4}/g) ?? []).join(":");
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
