import { type ByteLimit, ByteSemaphore, nestedLimit } from "../async/byte-semaphore.ts";
import type { MemoryBudget } from "../async/memory-budget.ts";
import type { PrincipalMemories } from "../exec/log/principal-memory.ts";
import type { PrincipalQuotas } from "./principal-quotas.ts";
import { ResourceCap } from "./resource-cap.ts";
import { MEMORY_SHARES, type ServerConfig } from "./server-config.ts";
import { ScreenCache } from "./session/screen-cache.ts";

/** Memory budget and resource caps shared by all connections of a server. */
export class ServerResources {
  /** Memory budget of the whole server. */
  readonly memory: MemoryBudget;
  /** Buffers of all clients together. */
  readonly #buffers: ClientBuffers<ByteSemaphore>;
  readonly #principals: PrincipalMemories | undefined;
  /** Buffers of each principal, for as long as its memory exists. */
  readonly #ownBuffers = new WeakMap<MemoryBudget, ClientBuffers<ByteLimit>>();
  /** Rendered screens of terminal processes. */
  readonly screens: ScreenCache;
  readonly waits: ResourceCap;
  readonly watchedPaths: ResourceCap;
  readonly fileHandles: ResourceCap;
  readonly httpRequests: ResourceCap;
  readonly forwardStreams: ResourceCap;
  readonly forwardListeners: ResourceCap;

  constructor({ caps }: ServerConfig, quotas: PrincipalQuotas, memory: MemoryBudget, principals?: PrincipalMemories) {
    this.memory = memory;
    this.#buffers = createBuffers(memory);
    this.#principals = principals;
    this.screens = new ScreenCache(memory);
    this.waits = new ResourceCap("waits", caps.waits.total, quotas);
    this.watchedPaths = new ResourceCap("watchedPaths", caps.watchedPaths, quotas);
    this.fileHandles = new ResourceCap("fileHandles", caps.fileHandles, quotas);
    this.httpRequests = new ResourceCap("httpRequests", caps.httpRequests.total, quotas);
    this.forwardStreams = new ResourceCap("forwardStreams", caps.forwardStreams.total, quotas);
    this.forwardListeners = new ResourceCap("forwardListeners", caps.forwardListeners, quotas);
  }

  /** Returns the memory of a connection: within the quota of its principal, if principals have one. */
  openConnection(ownerId: string): ConnectionMemory {
    const { memory } = this;
    const own = this.#principals?.open(ownerId);
    if (!own) return { ...this.#buffers, budgets: [memory], [Symbol.dispose]: () => undefined };
    const buffers = this.#ownBuffers.get(own.budget) ?? nestBuffers(createBuffers(own.budget), this.#buffers);
    this.#ownBuffers.set(own.budget, buffers);
    return { ...buffers, budgets: [memory, own.budget], [Symbol.dispose]: () => own[Symbol.dispose]() };
  }
}

/** Limits on the bytes that are buffered for clients. */
interface ClientBuffers<L> {
  /** Bytes of incomplete messages. */
  incomingBytes: { small: L; large: L };
  /** Bytes of large responses, until they are sent. */
  responseBytes: L;
  /** Bytes of HTTP response bodies that are not streamed. */
  httpBodies: L;
}

/** Memory of one connection. Disposed when the connection has closed. */
export interface ConnectionMemory extends ClientBuffers<ByteLimit>, Disposable {
  /** Budgets that pending requests are charged to: the server's, and that of the principal. */
  budgets: readonly MemoryBudget[];
}

function createBuffers(memory: MemoryBudget): ClientBuffers<ByteSemaphore> {
  const share = (part: number) => new ByteSemaphore(memory.maxBytes * part, memory);
  return {
    incomingBytes: { small: share(MEMORY_SHARES.smallMessages), large: share(MEMORY_SHARES.largeMessages) },
    responseBytes: share(MEMORY_SHARES.responses),
    httpBodies: share(MEMORY_SHARES.httpBodies),
  };
}

function nestBuffers(own: ClientBuffers<ByteSemaphore>, all: ClientBuffers<ByteSemaphore>): ClientBuffers<ByteLimit> {
  const { incomingBytes } = own;
  return {
    incomingBytes: {
      small: nestedLimit(incomingBytes.small, all.incomingBytes.small),
      large: nestedLimit(incomingBytes.large, all.incomingBytes.large),
    },
    responseBytes: nestedLimit(own.responseBytes, all.responseBytes),
    httpBodies: nestedLimit(own.httpBodies, all.httpBodies),
  };
}
