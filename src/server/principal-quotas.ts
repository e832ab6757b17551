import { once } from "../base/once.ts";
import { invalidRequest } from "../protocol/errors.ts";
import type { ServerConfig } from "./server-config.ts";

/** Resources with a quota per principal: the noun and the remedy of the error message. */
export const QUOTA_TEXTS = {
  connections: ["connections", "close one first"],
  sessions: ["sessions", "end one first"],
  processes: ["processes", "end one first"],
  waits: ["waits", "await the response of one first"],
  httpRequests: ["HTTP requests", "await the end of one first"],
  forwardListeners: ["forwarding listeners", "end one with forward/unlisten first"],
  forwardStreams: ["forwarded streams", "close one first"],
  fileHandles: ["file handles", "close one with fs/close first"],
  watchedPaths: ["watched paths", "watch fewer paths"],
} as const;

export type QuotaName = keyof typeof QUOTA_TEXTS;

/** Part of each server limit that one principal may use on a server with several principals. */
const PRINCIPAL_SHARE = 1 / 4;

/** Returns the part of a server limit that one principal may use by default: all of it if there is one principal. */
function principalShare({ hasSeveralPrincipals = false }: Partial<ServerConfig>): number {
  return hasSeveralPrincipals ? PRINCIPAL_SHARE : 1;
}

/** Returns the memory in bytes that one principal may use. */
export function memoryQuotaOf(config: Partial<ServerConfig>, budgetBytes: number): number {
  return Math.min(budgetBytes, config.quotas?.memoryBytes ?? budgetBytes * principalShare(config));
}

/**
 * Returns the number of resources that one principal may hold if the server may hold `total` and other principals hold
 * `others`: its quota, but at most half of what the others leave. As many as it holds are then free, so that it never takes
 * the last one; n greedy principals converge to 1/(n+1) of the total each.
 */
export function principalLimit(
  config: Partial<ServerConfig>,
  total: number,
  others: number,
  quota = total * principalShare(config),
): number {
  const fairShare = config.hasSeveralPrincipals ? (total - others) / 2 : total;
  return Math.max(1, Math.floor(Math.min(quota, fairShare)));
}

/** Number of resources that each principal holds, up to its quota. A principal without resources is forgotten. */
export class PrincipalQuotas {
  readonly #config: ServerConfig;
  /** Server limits; null: none. */
  readonly #totals: Record<QuotaName, number | null>;
  readonly #onRefused: (quota: QuotaName) => void;
  /** Keyed by the id of the principal. */
  readonly #held = new Map<string, Map<QuotaName, number>>();
  /** Resources of all principals. */
  readonly #used = new Map<QuotaName, number>();

  constructor(config: ServerConfig, onRefused: (quota: QuotaName) => void = () => undefined) {
    const { caps, maxConnections, maxServerProcesses } = config;
    this.#config = config;
    this.#totals = {
      connections: maxConnections,
      // A detached session costs no descriptor.
      sessions: null,
      processes: maxServerProcesses,
      waits: caps.waits.total,
      httpRequests: caps.httpRequests.total,
      forwardListeners: caps.forwardListeners,
      forwardStreams: caps.forwardStreams.total,
      fileHandles: caps.fileHandles,
      watchedPaths: caps.watchedPaths,
    };
    this.#onRefused = onRefused;
  }

  /** Number of principals that hold a resource. */
  get principalCount(): number {
    return this.#held.size;
  }

  /** Lowers a server limit if the host allows fewer resources than the configuration. */
  lower(name: QuotaName, serverMax: number): void {
    this.#totals[name] = Math.min(this.#totals[name] ?? serverMax, serverMax);
  }

  /** Acquires `count` resources and returns the function that releases them. Throws a RequestError at the quota. */
  acquire(ownerId: string, name: QuotaName, count = 1): () => void {
    const quota = this.#quota(name);
    if (quota === null) return this.restore(ownerId, name, count);
    const held = this.#held.get(ownerId)?.get(name) ?? 0;
    const others = (this.#used.get(name) ?? 0) - held;
    const total = this.#totals[name];
    const max = total === null ? Math.max(1, Math.floor(quota)) : principalLimit(this.#config, total, others, quota);
    if (held + count > max) {
      this.#onRefused(name);
      const [noun, hint] = QUOTA_TEXTS[name];
      const requested = count > 1 ? ` (${count} more requested)` : "";
      const [when, remedy] =
        max < Math.floor(quota)
          ? [`while others have ${others} of ${total}`, hint]
          : ["at once", `${hint}, or raise ${quotaFlag(name)}`];
      throw invalidRequest(`too many ${noun}: this principal has ${held} of ${max} ${when}${requested}; ${remedy}`);
    }
    return this.restore(ownerId, name, count);
  }

  /** Returns the quota of one principal; null: none. */
  #quota(name: QuotaName): number | null {
    const { hasSeveralPrincipals, maxConnections, quotas } = this.#config;
    const total = name === "sessions" && hasSeveralPrincipals ? maxConnections : this.#totals[name];
    return quotas[name] ?? (total === null ? null : total * principalShare(this.#config));
  }

  /** Counts resources of the previous server, also above the quota. */
  restore(ownerId: string, name: QuotaName, count = 1): () => void {
    this.#add(ownerId, name, count);
    return once(() => this.#add(ownerId, name, -count));
  }

  #add(ownerId: string, name: QuotaName, count: number): void {
    this.#used.set(name, (this.#used.get(name) ?? 0) + count);
    const counts = this.#held.get(ownerId) ?? new Map<QuotaName, number>();
    const held = (counts.get(name) ?? 0) + count;
    if (held > 0) counts.set(name, held);
    else counts.delete(name);
    if (counts.size > 0) this.#held.set(ownerId, counts);
    else this.#held.delete(ownerId);
  }
}

const quotaFlag = (name: QuotaName) =>
  `--max-${name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}-per-principal`;
