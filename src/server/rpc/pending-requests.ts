import type { MemoryBudget } from "../../async/memory-budget.ts";
import type { Connection } from "../../connection/connection.ts";
import { MAX_PENDING_REQUEST_BYTES, MAX_PENDING_REQUEST_BYTES_WHEN_FULL } from "../server-config.ts";
import type { RoutedRequest } from "./route-message.ts";

/** Estimated memory of a request in addition to its payload. */
const REQUEST_OVERHEAD_BYTES = 4096;

/** Limits the pending requests of a connection. The limit is lower while one of its memory budgets is exhausted. */
export class PendingRequests {
  readonly #connection: Connection;
  readonly #budgets: readonly MemoryBudget[];
  readonly #stopListening: (() => void)[];
  #bytes = 0;
  #isPaused = false;

  constructor(connection: Connection, budgets: readonly MemoryBudget[]) {
    this.#connection = connection;
    this.#budgets = budgets;
    this.#stopListening = budgets.map((memory) => memory.onFull(() => this.#update()));
  }

  /** Counts a request. Returns the function that ends it. */
  add(request: RoutedRequest): () => void {
    const bytes = REQUEST_OVERHEAD_BYTES + payloadBytes(request);
    this.#bytes += bytes;
    for (const memory of this.#budgets) memory.charge(bytes);
    this.#update();
    return () => {
      this.#bytes -= bytes;
      for (const memory of this.#budgets) memory.release(bytes);
      this.#update();
    };
  }

  /** Stops listening to the memory budgets after the connection closed. Pending requests count until they end. */
  stop(): void {
    for (const stop of this.#stopListening) stop();
  }

  #update(): void {
    const isFull = this.#budgets.some((memory) => memory.isFull);
    const maxBytes = isFull ? MAX_PENDING_REQUEST_BYTES_WHEN_FULL : MAX_PENDING_REQUEST_BYTES;
    if (!this.#isPaused && this.#bytes > maxBytes) {
      this.#isPaused = true;
      this.#connection.pause();
    } else if (this.#isPaused && this.#bytes <= maxBytes / 2) {
      this.#isPaused = false;
      this.#connection.resume();
    }
  }
}

/** Returns the size of a request's payload. Only requests with a payload can be large. */
function payloadBytes(request: RoutedRequest): number {
  switch (request.method) {
    case "process/write":
    case "command/exec/write":
    case "fs/writeBlock":
    case "forward/write":
      return request.params.chunk.length;
    case "fs/writeAtomic":
      return request.params.chunk?.length ?? 0;
    case "fs/writeFile":
      return request.params.dataBase64.length;
    case "http/request":
      return request.params.bodyBase64?.length ?? 0;
    default:
      return 0;
  }
}
