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
function principalShare({ hasSeveralPrincipals }: Pick<ServerConfig, "hasSeveralPrincipals">): number {
  return hasSeveralPrincipals ? PRINCIPAL_SHARE : 1;
}

/** Returns the memory in bytes that one principal may use. */
export function memoryQuotaOf(
  { hasSeveralPrincipals = false, quotas = {} }: Partial<ServerConfig>,
  budgetBytes: number,
): number {
  return Math.min(budgetBytes, quotas.memoryBytes ?? budgetBytes * principalShare({ hasSeveralPrincipals }));
}

/** Returns the number of resources that one principal may hold by default if the server may hold `total`. */
export function partOfServer({ hasSeveralPrincipals = false }: Partial<ServerConfig>, total: number): number {
  return Math.max(1, Math.floor(total * principalShare({ hasSeveralPrincipals })));
}

function quotasOf(config: ServerConfig): Record<QuotaName, number> {
  const { caps, maxConnections, maxServerProcesses, hasSeveralPrincipals, quotas } = config;
  const part = (total: number) => partOfServer(config, total);
  return {
    connections: quotas.connections ?? part(maxConnections),
    // The server itself has no limit, because a detached session costs no descriptor.
    sessions: quotas.sessions ?? (hasSeveralPrincipals ? part(maxConnections) : Number.POSITIVE_INFINITY),
    processes: quotas.processes ?? part(maxServerProcesses),
    waits: quotas.waits ?? part(caps.waits.total),
    httpRequests: quotas.httpRequests ?? part(caps.httpRequests.total),
    forwardListeners: quotas.forwardListeners ?? part(caps.forwardListeners),
    forwardStreams: quotas.forwardStreams ?? part(caps.forwardStreams.total),
    fileHandles: quotas.fileHandles ?? part(caps.fileHandles),
    watchedPaths: quotas.watchedPaths ?? part(caps.watchedPaths),
  };
}

/** Number of resources that each principal holds, up to its quota. A principal without resources is forgotten. */
export class PrincipalQuotas {
  readonly #max: Record<QuotaName, number>;
  readonly #share: number;
  readonly #onRefused: (quota: QuotaName) => void;
  /** Keyed by the id of the principal. */
  readonly #held = new Map<string, Map<QuotaName, number>>();

  constructor(config: ServerConfig, onRefused: (quota: QuotaName) => void = () => undefined) {
    this.#max = quotasOf(config);
    this.#share = principalShare(config);
    this.#onRefused = onRefused;
  }

  /** Number of principals that hold a resource. */
  get principalCount(): number {
    return this.#held.size;
  }

  /** Lowers a quota if the host allows fewer resources than the configuration. */
  lower(name: QuotaName, serverMax: number): void {
    this.#max[name] = Math.min(this.#max[name], Math.max(1, Math.floor(serverMax * this.#share)));
  }

  /** Acquires `count` resources and returns the function that releases them. Throws a RequestError at the quota. */
  acquire(ownerId: string, name: QuotaName, count = 1): () => void {
    const max = this.#max[name];
    const held = this.#held.get(ownerId)?.get(name) ?? 0;
    if (held + count > max) {
      this.#onRefused(name);
      const [noun, hint] = QUOTA_TEXTS[name];
      const requested = count > 1 ? ` (${count} more requested)` : "";
      throw invalidRequest(
        `too many ${noun}: this principal has ${held} of ${max} at once${requested}; ${hint}, or raise ${quotaFlag(name)}`,
      );
    }
    return this.restore(ownerId, name, count);
  }

  /** Counts resources of the previous server, also above the quota. */
  restore(ownerId: string, name: QuotaName, count = 1): () => void {
    this.#add(ownerId, name, count);
    return once(() => this.#add(ownerId, name, -count));
  }

  #add(ownerId: string, name: QuotaName, count: number): void {
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
