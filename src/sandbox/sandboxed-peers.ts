import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { type Clock, sleep, systemClock } from "../async/clock.ts";
import { waitForTick } from "../async/slices.ts";
import { expandIpv6 } from "../base/ip-address.ts";
import type { PeerAddress } from "../base/peer-address.ts";
import { parseProcStat } from "../base/proc-stat.ts";

/** Data that a sandboxed process sent before its exit is read well within this time. */
const EXITED_RETENTION_MS = 15_000;
/** Attempts to find the process that holds a socket. A fork may pass the socket to another process in between. */
const MAX_ATTEMPTS = 3;
const RETRY_DELAY_MS = 10;
/** Number of processes that are inspected per tick. */
const PROCESSES_PER_TICK = 50;

interface Leader {
  /** When the leader is forgotten; null while it runs. */
  expiresAt: number | null;
}

/**
 * Detects connections from sandboxed processes with network access. Such a process could otherwise ask the server for an
 * unsandboxed process. Tokens do not help: clients of this host are accepted without one.
 *
 * The kernel names the peer's socket, and /proc the process that holds it. A peer that cannot be found counts as sandboxed:
 * it may have sent its request and exited. Nothing is read while no sandboxed process has network access.
 */
export class SandboxedPeerDetector {
  readonly #clock: Clock;
  /** The outermost process of each sandbox, which is an ancestor of all sandboxed processes. */
  readonly #leaders = new Map<number, Leader>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Registers a sandboxed process with network access; returns a function to call when it has exited. */
  add(pid: number): () => void {
    const leader: Leader = { expiresAt: null };
    this.#leaders.set(pid, leader);
    return () => {
      leader.expiresAt = this.#clock.monotonic() + EXITED_RETENTION_MS;
    };
  }

  /** Returns true if the process at the other end is or may be sandboxed. */
  isSandboxed(peer: PeerAddress): false | Promise<boolean> {
    const now = this.#clock.monotonic();
    for (const [pid, { expiresAt }] of this.#leaders)
      if (expiresAt !== null && expiresAt <= now) this.#leaders.delete(pid);
    if (this.#leaders.size === 0 || peer.type === "hiddenSocket") return false;
    // A peer that reset the connection at once has no address anymore.
    const address = peer.type === "tcp" ? parseAddress(peer.peerName) : null;
    if (peer.type === "unknown" || !address) return Promise.resolve(true);
    // A process of another host is not in a sandbox of this one.
    return isLocalAddress(address.ip) && this.#isPeerSandboxed(address, peer.localPort);
  }

  async #isPeerSandboxed(address: Address, localPort: number): Promise<boolean> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      if (attempt > 0) await sleep(this.#clock, RETRY_DELAY_MS);
      const socket = findSocket(address, localPort);
      // All sandboxed processes run as the user of this server.
      if (socket && socket.inode !== 0 && socket.uid !== process.getuid?.()) return false;
      const holder = socket && socket.inode !== 0 ? await findSocketOwner(socket.inode) : null;
      if (holder !== null) return this.#descendsFromSandbox(holder);
    }
    return true;
  }

  /** Also returns true if the process exits meanwhile. */
  #descendsFromSandbox(pid: number): boolean {
    for (let at = pid; at > 1; ) {
      if (this.#leaders.has(at)) return true;
      const parent = parentOf(at);
      if (parent === null) return true;
      at = parent;
    }
    return false;
  }
}

/**
 * Returns true if the process at the other end is in another pid namespace than this process, or cannot be identified.
 * This detects sandboxed processes of all servers. Also returns true for a local process that this user cannot inspect.
 */
export async function isInOtherNamespace(peer: PeerAddress): Promise<boolean> {
  if (peer.type !== "tcp") return true;
  const address = parseAddress(peer.peerName);
  if (!address) return true;
  if (!isLocalAddress(address.ip)) return false;
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    if (attempt > 0) await sleep(systemClock, RETRY_DELAY_MS);
    const socket = findSocket(address, peer.localPort);
    const holder = socket && socket.inode !== 0 ? await findSocketOwner(socket.inode) : null;
    const namespace = holder === null ? null : linkOf(`/proc/${holder}/ns/pid`);
    if (namespace !== null) return namespace !== linkOf("/proc/self/ns/pid");
  }
  return true;
}

interface Address {
  ip: string;
  port: number;
}

function parseAddress(peerName: string): Address | null {
  // Without the interface of a link-local address, which the kernel's table does not have either.
  const match = /^\[?(.*?)(?:%[^\]]*)?\]?:(\d+)$/.exec(peerName);
  if (!match?.[1] || !match[2]) return null;
  // An IPv4-mapped IPv6 address.
  return { ip: match[1].replace(/^::ffff:(?=\d+\.)/i, ""), port: Number(match[2]) };
}

function isLocalAddress(ip: string): boolean {
  if (ip.startsWith("127.") || ip === "::1") return true;
  return Object.values(networkInterfaces()).some((list) => list?.some(({ address }) => address === ip));
}

/** Finds the peer's socket of a connection within this host. */
function findSocket({ ip, port }: Address, localPort: number): { uid: number; inode: number } | null {
  const peerPortHex = port.toString(16).toUpperCase().padStart(4, "0");
  const localPortHex = localPort.toString(16).toUpperCase().padStart(4, "0");
  const v4 = hexOfIpv4(ip);
  const wanted = v4 ?? hexOfIpv6(ip);
  for (const file of ["/proc/self/net/tcp", "/proc/self/net/tcp6"]) {
    for (const line of read(file).split("\n")) {
      const [, localAddress = "", remoteAddress = "", , , , , uid, , inode] = line.trim().split(/\s+/);
      const [address = "", portHex] = localAddress.split(":");
      if (portHex !== peerPortHex || !remoteAddress.endsWith(`:${localPortHex}`)) continue;
      if (address === wanted || (v4 !== null && address === `${MAPPED_PREFIX}${v4}`))
        return { uid: Number(uid), inode: Number(inode) };
    }
  }
  return null;
}

/** `::ffff:` in /proc/net/tcp6: four-byte words in the host's byte order. */
const MAPPED_PREFIX = "0000000000000000FFFF0000";

function hexOfIpv4(ip: string): string | null {
  const parts = ip.split(".").map(Number);
  return parts.length === 4 ? hexWords(parts) : null;
}

function hexOfIpv6(ip: string): string {
  return hexWords(expandIpv6(ip.replace(/%.*$/, "")).flatMap((group) => [group >> 8, group & 255]));
}

/** Writes four-byte words with the last byte first. */
function hexWords(bytes: readonly number[]): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 4)
    for (const byte of bytes.slice(at, at + 4).reverse()) text += byte.toString(16).toUpperCase().padStart(2, "0");
  return text;
}

async function findSocketOwner(inode: number): Promise<number | null> {
  const link = `socket:[${inode}]`;
  let inspected = 0;
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    if (hasOpenLink(name, link)) return Number(name);
    if (++inspected % PROCESSES_PER_TICK === 0) await waitForTick();
  }
  return null;
}

function hasOpenLink(pid: string, link: string): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => linkOf(`/proc/${pid}/fd/${fd}`) === link);
  } catch {
    // The process has exited or belongs to another user.
    return false;
  }
}

/** Returns the target of a symbolic link, or null if it is gone or unreadable. */
function linkOf(path: string): string | null {
  try {
    return readlinkSync(path);
  } catch {
    return null;
  }
}

function parentOf(pid: number): number | null {
  return parseProcStat(read(`/proc/${pid}/stat`))?.parentPid ?? null;
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
