import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { networkInterfaces } from "node:os";
import { type Clock, sleep, systemClock } from "../async/clock.ts";

/** What a walled process has sent before its end is read long before this has passed. */
const SHADOW_MS = 15_000;
/** A client that has just been forked may hold its socket under another number the next time one looks. */
const LOOKS = 3;
const LOOK_AGAIN_AFTER_MS = 10;
/** Processes that are looked at before the event loop gets its turn. */
const LOOKED_AT_ONCE = 50;

/**
 * Who connects to the server from behind walls that have the network. A walled command could otherwise ask the server for a
 * process without walls, and no token tells it from others, since clients without one are let in from this machine.
 *
 * The kernel tells which socket is at the other end, and /proc which process holds it. A peer that cannot be found counts as
 * one behind walls: it may have sent its request and ended. Nothing is looked up while no such command runs.
 */
export class WalledPeers {
  readonly #clock: Clock;
  /** The outermost process of each: everything behind the walls descends from it. */
  readonly #leaders = new Map<number, { leaves: number }>();

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** A walled process with the network runs; returns what to call when it has ended. */
  add(pid: number): () => void {
    const entry = { leaves: Number.POSITIVE_INFINITY };
    this.#leaders.set(pid, entry);
    return () => {
      entry.leaves = this.#clock.monotonic() + SHADOW_MS;
    };
  }

  /** Whether the process that connected from `peerName` to `ownPort` is behind walls, or may be. */
  isInside(peer: { peerName: string; ownPort: number }): false | Promise<boolean> {
    const now = this.#clock.monotonic();
    for (const [pid, { leaves }] of this.#leaders) if (leaves <= now) this.#leaders.delete(pid);
    // A unix socket has no port, and nobody inside sees its file.
    if (this.#leaders.size === 0 || peer.ownPort === 0) return false;
    const address = parseAddress(peer.peerName);
    // A peer that has reset the connection at once has no address any more.
    if (!address) return Promise.resolve(true);
    // Another machine's processes are behind none of our walls.
    return isOwnAddress(address.ip) && this.#isInside(address, peer.ownPort);
  }

  async #isInside(address: Address, ownPort: number): Promise<boolean> {
    for (let look = 0; look < LOOKS; look++) {
      if (look > 0) await sleep(this.#clock, LOOK_AGAIN_AFTER_MS);
      const socket = findSocket(address, ownPort);
      // All that is behind walls runs as the user we are.
      if (socket && socket.inode !== 0 && socket.uid !== process.getuid?.()) return false;
      const holder = socket && socket.inode !== 0 ? await findHolder(socket.inode) : null;
      if (holder !== null) return this.#isBelowLeader(holder);
    }
    return true;
  }

  /** Also true when it ends while it is looked at. */
  #isBelowLeader(pid: number): boolean {
    for (let at = pid; at > 1; ) {
      if (this.#leaders.has(at)) return true;
      const parent = parentOf(at);
      if (parent === null) return true;
      at = parent;
    }
    return false;
  }
}

interface Address {
  ip: string;
  port: number;
}

function parseAddress(peerName: string): Address | null {
  const match = /^\[?(.*?)\]?:(\d+)$/.exec(peerName);
  if (!match?.[1] || !match[2]) return null;
  // An IPv4 address as an IPv6 socket sees it.
  return { ip: match[1].replace(/^::ffff:(?=\d+\.)/i, ""), port: Number(match[2]) };
}

function isOwnAddress(ip: string): boolean {
  if (ip.startsWith("127.") || ip === "::1") return true;
  return Object.values(networkInterfaces()).some((list) => list?.some(({ address }) => address === ip));
}

/** The socket at the other end of a connection within this machine. */
function findSocket({ ip, port }: Address, ownPort: number): { uid: number; inode: number } | null {
  const local = port.toString(16).toUpperCase().padStart(4, "0");
  const remote = ownPort.toString(16).toUpperCase().padStart(4, "0");
  const v4 = hexOfIpv4(ip);
  const wanted = v4 ?? hexOfIpv6(ip);
  for (const file of ["/proc/self/net/tcp", "/proc/self/net/tcp6"]) {
    for (const line of read(file).split("\n")) {
      const [, localAddress = "", remoteAddress = "", , , , , uid, , inode] = line.trim().split(/\s+/);
      const [address = "", localPort] = localAddress.split(":");
      if (localPort !== local || !remoteAddress.endsWith(`:${remote}`)) continue;
      if (address === wanted || (v4 !== null && address === `${MAPPED_PREFIX}${v4}`))
        return { uid: Number(uid), inode: Number(inode) };
    }
  }
  return null;
}

/** `::ffff:` in the words of /proc/net/tcp6, each in the byte order of the machine. */
const MAPPED_PREFIX = "0000000000000000FFFF0000";

function hexOfIpv4(ip: string): string | null {
  const parts = ip.split(".").map(Number);
  return parts.length === 4 ? hexWords(parts) : null;
}

function hexOfIpv6(ip: string): string {
  const [head = "", tail] = ip.replace(/%.*$/, "").split("::");
  const groups = (text: string | undefined) =>
    text ? text.split(":").map((group) => Number.parseInt(group, 16)) : [];
  const before = groups(head);
  const after = groups(tail);
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => 0);
  return hexWords([...before, ...zeros, ...after].flatMap((group) => [group >> 8, group & 255]));
}

/** Words of four bytes, last byte first. */
function hexWords(bytes: readonly number[]): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 4)
    for (const byte of bytes.slice(at, at + 4).reverse())
      text += byte.toString(16).toUpperCase().padStart(2, "0");
  return text;
}

async function findHolder(inode: number): Promise<number | null> {
  const link = `socket:[${inode}]`;
  let looked = 0;
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    if (holds(name, link)) return Number(name);
    if (++looked % LOOKED_AT_ONCE === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  return null;
}

function holds(pid: string, link: string): boolean {
  try {
    return readdirSync(`/proc/${pid}/fd`).some((fd) => linkOf(`/proc/${pid}/fd/${fd}`) === link);
  } catch {
    // Gone, or another user's.
    return false;
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}

function parentOf(pid: number): number | null {
  // The name in parentheses may hold anything.
  const afterName = /.*\) \S+ (\d+)/s.exec(read(`/proc/${pid}/stat`));
  return afterName?.[1] === undefined ? null : Number(afterName[1]);
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
