import { ByteSemaphore } from "../async/byte-semaphore.ts";
import { MemoryBudget } from "../async/memory-budget.ts";
import { ResourceCap } from "./resource-cap.ts";
import { MEMORY_SHARES, type ServerConfig } from "./server-config.ts";

/** Memory budget and resource caps shared by all connections of a server. */
export class ServerResources {
  /** Memory budget of the whole server. */
  readonly memory: MemoryBudget;
  /** Bytes of incomplete messages. */
  readonly incomingBytes: { small: ByteSemaphore; large: ByteSemaphore };
  /** Bytes of large responses, until they are sent. */
  readonly responseBytes: ByteSemaphore;
  /** Bytes of HTTP response bodies that are not streamed. */
  readonly httpBodies: ByteSemaphore;
  readonly waits: ResourceCap;
  readonly watchedPaths: ResourceCap;
  readonly fileHandles: ResourceCap;
  readonly httpRequests: ResourceCap;
  readonly forwardStreams: ResourceCap;
  readonly forwardListeners: ResourceCap;

  constructor({ caps, memoryBudgetBytes }: ServerConfig, memory = new MemoryBudget(memoryBudgetBytes)) {
    const share = (part: number) => new ByteSemaphore(memory.maxBytes * part, memory);
    this.memory = memory;
    this.incomingBytes = {
      small: share(MEMORY_SHARES.smallMessages),
      large: share(MEMORY_SHARES.largeMessages),
    };
    this.responseBytes = share(MEMORY_SHARES.answers);
    this.httpBodies = share(MEMORY_SHARES.httpBodies);
    this.waits = new ResourceCap(caps.waits.total, "waits", "await the response of one first");
    this.watchedPaths = new ResourceCap(caps.watchedPaths, "watched paths", "watch fewer paths");
    this.fileHandles = new ResourceCap(caps.fileHandles, "file handles", "close one with fs/close first");
    this.httpRequests = new ResourceCap(caps.httpRequests.total, "HTTP requests", "await the end of one first");
    this.forwardStreams = new ResourceCap(caps.forwardStreams.total, "forwarded streams", "close one first");
    this.forwardListeners = new ResourceCap(
      caps.forwardListeners,
      "forwarding listeners",
      "end one with forward/unlisten first",
    );
  }
}
