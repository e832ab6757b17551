import { readFileSync } from "node:fs";
import { MAX_OUTSIDE } from "./server-config.ts";

/**
 * How the files this program may have open are shared out. Each share is a part of the whole, so that idle connections,
 * let in or not, leave descriptors to the processes and files of those who work.
 */
export interface DescriptorShares {
  /** Connections that have not been let in. */
  outside: number;
  /** Connections that have. */
  connections: number;
}

const OUTSIDE_PART = 1 / 8;
const CONNECTIONS_PART = 1 / 2;

export function shareDescriptors(limit: number): DescriptorShares {
  return {
    outside: Math.max(1, Math.min(MAX_OUTSIDE, Math.floor(limit * OUTSIDE_PART))),
    connections: Math.max(1, Math.floor(limit * CONNECTIONS_PART)),
  };
}

/** RLIMIT_NOFILE, which Node has raised as far as it may; without a limit where it is not told. */
export function descriptorLimit(path = "/proc/self/limits"): number {
  try {
    const told = /^Max open files +(\d+)/m.exec(readFileSync(path, "latin1"))?.[1];
    return told === undefined ? Number.POSITIVE_INFINITY : Number(told);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
