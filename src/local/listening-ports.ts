import { closeSync, openSync, readSync } from "node:fs";
import { createConnection } from "node:net";
import { listOpenFiles, listProcesses } from "./tree/process-table.ts";

/** A listening socket (state `0A`) in /proc/net/tcp: local address, port and inode. */
const LISTENING_ROW = / ([\dA-F]+):([\dA-F]{4}) 0+:0000 0A \S+ \S+ +\S+ +\d+ +\d+ +(\d+)/g;
/** A loopback connection succeeds or fails well within this time. */
const CONNECT_TIMEOUT_MS = 500;

/** How long all waits for ports share one read of the kernel's table. */
const SNAPSHOT_TTL_MS = 20;

/**
 * How long requests to local addresses share one search for own listeners, which takes up to 30 ms on a host with large
 * tables. A cached result may miss the listener of a new proxy, which resets connections of other processes itself.
 */
const OWN_PORTS_TTL_MS = 100;

/** How long a listener of another process stays known as such. Another process may pass its listener to this one. */
const FOREIGN_LISTENER_TTL_MS = 1000;

/** State column of a listening socket in /proc/net/tcp. No other column has this form. */
const LISTENING_STATE = " 0A ";
/** Buffer of all reads of /proc/net/tcp: a host with many connections has a table of megabytes. */
const tableChunk = Buffer.allocUnsafeSlow(64 * 1024);

export interface ListeningAddress {
  port: number;
  /** An address to reach it from this host; a loopback address if it listens on all interfaces. */
  host: string;
}

/** Keyed by the inode of the listening socket. */
type ListeningSockets = ReadonlyMap<number, ListeningAddress>;

interface PortTableSnapshot {
  atMs: number;
  /** Null if the system has no such table. */
  sockets: ListeningSockets | null;
  ports: ReadonlySet<number>;
}

export interface PortTableDeps {
  /** Returns null if the system has no such table. */
  read: () => string[] | null;
  nowMs: () => number;
}

/** The listening ports of this host. All waits for ports share one read of the kernel's table. */
export class PortTable {
  readonly #deps: PortTableDeps;
  #lastRead: PortTableSnapshot | null = null;

  constructor(deps: PortTableDeps = { read: readTables, nowMs: () => performance.now() }) {
    this.#deps = deps;
  }

  /** Null if it cannot be determined. `false` may be up to 20 ms old; `true` is confirmed by a new read. */
  isListening(port: number): boolean | null {
    const { ports } = this.#latest();
    if (ports.has(port)) this.#lastRead = null;
    const { sockets, ports: now } = this.#latest();
    return sockets === null ? null : now.has(port);
  }

  sockets(): ListeningSockets {
    return this.#latest().sockets ?? new Map();
  }

  #latest(): PortTableSnapshot {
    const atMs = this.#deps.nowMs();
    if (this.#lastRead === null || atMs - this.#lastRead.atMs >= SNAPSHOT_TTL_MS) {
      const sockets = parseTables(this.#deps.read());
      const ports = new Set([...(sockets?.values() ?? [])].map(({ port }) => port));
      this.#lastRead = { atMs, sockets, ports };
    }
    return this.#lastRead;
  }
}

const table = new PortTable();

/** Returns whether a process listens on this TCP port. Reads the kernel's table on Linux, connects elsewhere. */
export async function isPortListening(port: number): Promise<boolean> {
  return table.isListening(port) ?? ((await canConnect("127.0.0.1", port)) || (await canConnect("::1", port)));
}

/**
 * Returns the listening ports of these process trees, each with its leader. A process belongs to a tree if it descends
 * from the leader or is in its POSIX session. A process that has left both is not found.
 */
export function listeningPortsOf(leaders: readonly number[]): (ListeningAddress & { leader: number })[] {
  const found: (ListeningAddress & { leader: number })[] = [];
  const sockets = table.sockets();
  if (leaders.length === 0 || sockets.size === 0) return found;
  for (const [pid, leader] of membersOf(new Set(leaders))) {
    for (const inode of socketInodes(pid)) {
      const address = sockets.get(inode);
      if (address && !found.some(({ port }) => port === address.port)) found.push({ ...address, leader });
    }
  }
  return found;
}

interface OwnPorts {
  atMs: number;
  ports: ReadonlySet<number>;
  /** All listeners of this host that the last search considered, and those of them that this OS process holds. */
  known: ListeningSockets;
  own: ReadonlySet<number>;
  searchedAtMs: number;
}

let ownPorts: OwnPorts | null = null;

/** Returns the TCP ports on which this OS process listens, up to 100 ms ago. */
export function ownListeningPorts(): ReadonlySet<number> {
  const atMs = performance.now();
  if (ownPorts !== null && atMs - ownPorts.atMs < OWN_PORTS_TTL_MS) return ownPorts.ports;
  const known = parseTables(readTables()) ?? new Map<number, ListeningAddress>();
  const { own, searchedAtMs } = findOwnListeners(known, atMs);
  ownPorts = { atMs, known, own, searchedAtMs, ports: new Set([...own].flatMap((at) => known.get(at)?.port ?? [])) };
  return ownPorts.ports;
}

/** Reads the open files of this process only if there is a new listener: a server may have thousands of connections. */
function findOwnListeners(known: ListeningSockets, atMs: number): Pick<OwnPorts, "own" | "searchedAtMs"> {
  const last = ownPorts;
  const isRecent = last !== null && atMs - last.searchedAtMs < FOREIGN_LISTENER_TTL_MS;
  if (isRecent && [...known.keys()].every((inode) => last.known.has(inode))) return last;
  return { own: new Set(socketInodes(process.pid).filter((inode) => known.has(inode))), searchedAtMs: atMs };
}

/** Maps every process of these trees to its leader. */
function membersOf(leaders: ReadonlySet<number>): Map<number, number> {
  const entries = new Map(listProcesses().map((entry) => [entry.pid, entry]));
  const members = new Map<number, number>();
  for (const pid of entries.keys()) {
    for (let at = entries.get(pid); at && at.pid > 1; at = entries.get(at.parent)) {
      const leader = leaders.has(at.pid) ? at.pid : at.session;
      if (!leaders.has(leader)) continue;
      members.set(pid, leader);
      break;
    }
  }
  return members;
}

function socketInodes(pid: number): number[] {
  return listOpenFiles(pid).flatMap((file) => {
    const [, inode] = /^socket:\[(\d+)\]$/.exec(file) ?? [];
    return inode === undefined ? [] : [Number(inode)];
  });
}

function readTables(): string[] | null {
  const tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(readTable).filter((text) => text !== null);
  return tables.length === 0 ? null : tables;
}

/**
 * Returns the rows of listening sockets, or null if the system has no such table. Synchronous: the kernel never blocks here,
 * and Node's thread pool may not exist yet.
 */
function readTable(path: string): string | null {
  let fd: number | null = null;
  try {
    fd = openSync(path, "r");
    let rows = "";
    let kept = 0;
    for (;;) {
      const length = readSync(fd, tableChunk, kept, tableChunk.length - kept, null);
      const end = kept + length;
      const bytes = tableChunk.subarray(0, end);
      rows += listeningRows(bytes);
      if (length === 0) return rows;
      // The beginning of a row whose end the next read returns.
      kept = end - (bytes.lastIndexOf("\n") + 1);
      tableChunk.copyWithin(0, end - kept, end);
      if (kept === tableChunk.length) kept = 0;
    }
  } catch {
    return null;
  } finally {
    if (fd !== null) closeSync(fd);
  }
}

/** Returns the complete rows of listening sockets. */
function listeningRows(bytes: Buffer): string {
  let rows = "";
  for (let at = bytes.indexOf(LISTENING_STATE); at >= 0; at = bytes.indexOf(LISTENING_STATE, at + 1)) {
    const end = bytes.indexOf("\n", at);
    if (end < 0) break;
    rows += bytes.toString("latin1", bytes.lastIndexOf("\n", at) + 1, end + 1);
  }
  return rows;
}

function parseTables(tables: string[] | null): ListeningSockets | null {
  if (tables === null) return null;
  const sockets = new Map<number, ListeningAddress>();
  for (const text of tables) {
    for (const [, address = "", port = "", inode] of text.matchAll(LISTENING_ROW))
      sockets.set(Number(inode), { port: Number.parseInt(port, 16), host: decodeAddress(address) });
  }
  return sockets;
}

/** Decodes an IPv4 or IPv6 address of the kernel: four-byte words in the host's byte order. */
function decodeAddress(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => [...Buffer.from(word, "hex")].reverse());
  if (bytes.every((byte) => byte === 0)) return bytes.length === 4 ? "127.0.0.1" : "localhost";
  if (bytes.length === 4) return bytes.join(".");
  // An IPv4-mapped IPv6 address.
  if (bytes.slice(0, 10).every((byte) => byte === 0) && bytes[10] === 0xff) return bytes.slice(12).join(".");
  if (bytes.slice(0, 15).every((byte) => byte === 0) && bytes[15] === 1) return "::1";
  return (Buffer.from(bytes).toString("hex").match(/.{4}/g) ?? []).join(":");
}

function canConnect(host: string, port: number): Promise<boolean> {
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
