import type { Socket } from "node:net";
import { type Clock, sleep } from "../async/clock.ts";
import type { StartParams } from "../exec/exec-process.ts";
import { readOrEmpty } from "./tree/proc-files.ts";
import { listOpenFiles, type ProcessEntry } from "./tree/process-table.ts";

/** The network proxy of one process, as the backend uses it. */
export interface ProcessNetwork {
  /** Binds loopback ports of this host. Returns the variables for the process. */
  listen(): Promise<Record<string, string>>;
  /** Returns the variables for a process whose sandbox has listeners at these ports. */
  variablesFor(ports: { http: number; socks: number | null }): Record<string, string>;
  /** Serve accepted connections of listeners within the sandbox. Their server must have `allowHalfOpen`. */
  acceptHttp(socket: Socket): void;
  acceptSocks(socket: Socket): void;
  /** Host files that the process reads, although its sandbox may hide them. */
  readonly readableFiles: readonly string[];
  /** Closes the listeners and all connections. */
  close(): void;
}

/** Creates the network proxy of a process. Throws a request error for an invalid config. */
export type CreateProcessNetwork = (
  start: Pick<StartParams, "processId" | "networkProxy" | "credentials" | "decideNetwork" | "onNetworkDecision">,
  isMember: IsMember,
) => Promise<ProcessNetwork>;

/** Reports whether a loopback connection comes from the process tree. */
export type IsMember = (connection: LoopbackConnection) => Promise<boolean>;

export interface LoopbackConnection {
  peerPort: number;
  localPort: number;
}

/** Attempts to find the process that holds a socket. A fork may pass the socket to another process in between. */
const MAX_ATTEMPTS = 3;
const RETRY_DELAY_MS = 10;

export interface TreeConnectionsDeps {
  clock: Clock;
  tree: () => readonly ProcessEntry[];
}

/**
 * The loopback connections of one process tree. A search takes up to 30 ms on a host with large tables, so all
 * checks that arrive meanwhile share the next search, which starts after a pause of the same length.
 */
export class TreeConnections {
  readonly #deps: TreeConnectionsDeps;
  #next: Promise<ReadonlySet<string>> | null = null;
  #pauseUntilMs = 0;

  constructor(deps: TreeConnectionsDeps) {
    this.#deps = deps;
  }

  /** Reports whether a process of the tree holds the peer's socket of a connection. False if it is not found. */
  async includes({ peerPort, localPort }: LoopbackConnection): Promise<boolean> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      if (attempt > 0) await sleep(this.#deps.clock, RETRY_DELAY_MS);
      this.#next ??= this.#search();
      if ((await this.#next).has(`${toHex(peerPort)} ${toHex(localPort)}`)) return true;
    }
    return false;
  }

  /** Returns the ports of all loopback connections that the tree holds. */
  async #search(): Promise<ReadonlySet<string>> {
    const { clock, tree } = this.#deps;
    await sleep(clock, this.#pauseUntilMs - clock.monotonic());
    this.#next = null;
    const startedMs = clock.monotonic();
    const files = new Set(tree().flatMap(({ pid }) => listOpenFiles(pid)));
    const found = new Set<string>();
    for (const path of ["/proc/self/net/tcp", "/proc/self/net/tcp6"])
      for (const [, peer, local, inode] of readOrEmpty(path, "latin1").matchAll(LOOPBACK_ROW))
        if (files.has(`socket:[${inode}]`)) found.add(`${peer} ${local}`);
    this.#pauseUntilMs = 2 * clock.monotonic() - startedMs;
    return found;
  }
}

/**
 * A row with loopback addresses, of which those in `tcp6` start with `::ffff:`. Fields: local address, remote address, state,
 * queues, timer, retransmits, uid, timeout, inode. The inode of a closed socket is 0.
 */
const LOOPBACK_ROW =
  / (?:0{16}F{4}0{4})?0100007F:([\dA-F]{4}) (?:0{16}F{4}0{4})?0100007F:([\dA-F]{4}) \S+ \S+ \S+ +\S+ +\d+ +\d+ +(\d+)/g;

const toHex = (port: number) => port.toString(16).toUpperCase().padStart(4, "0");
