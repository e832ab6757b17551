import { readFileSync } from "node:fs";
import { MAX_PENDING_SOCKETS } from "../server-config.ts";

/** Shares of the file descriptor limit, so that idle connections leave descriptors for processes and files. */
export interface FdQuota {
  /** Maximum number of accepted sockets before their upgrade. */
  pendingSockets: number;
  /** Maximum number of open connections. Null: no maximum. */
  connections: number | null;
}

const PENDING_SHARE = 1 / 8;
const CONNECTIONS_SHARE = 1 / 2;

/** Returns the quota for a limit. Without a known limit, the number of connections is not limited. */
export function fdQuotaFor(limit: number | null): FdQuota {
  if (limit === null) return { pendingSockets: MAX_PENDING_SOCKETS, connections: null };
  return {
    pendingSockets: Math.max(1, Math.min(MAX_PENDING_SOCKETS, Math.floor(limit * PENDING_SHARE))),
    connections: Math.max(1, Math.floor(limit * CONNECTIONS_SHARE)),
  };
}

/** Returns RLIMIT_NOFILE, which Node raises to the hard limit at startup, or null if it is unknown. */
export function readFdLimit(path = "/proc/self/limits"): number | null {
  try {
    const limit = /^Max open files +(\d+)/m.exec(readFileSync(path, "latin1"))?.[1];
    return limit === undefined ? null : Number(limit);
  } catch {
    return null;
  }
}
