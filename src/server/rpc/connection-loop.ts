import type { MemoryBudget } from "../../async/memory-budget.ts";
import { freeBuffer, freeCopiedBuffer } from "../../base/free-buffer.ts";
import type { Connection } from "../../connection/connection.ts";
import { UNREADABLE_ID } from "../../protocol/envelope.ts";
import { ErrorCode, ProtocolError, toWireError } from "../../protocol/errors.ts";
import {
  CHUNK_TAIL,
  encodeError,
  encodeResponse,
  readBlockHead,
  readBlockTail,
  readFileHead,
} from "../../protocol/message-text.ts";
import { type MethodName, methods, type ResultOf } from "../../protocol/methods.ts";
import type { Principal } from "../auth/principal.ts";
import type { HostServices, ServerLog } from "../host-services.ts";
import type { TracedRequest } from "../observability/tracing.ts";
import {
  CHUNKED_RESPONSE_BYTES,
  MAX_PENDING_REQUEST_BYTES,
  MAX_PENDING_REQUEST_BYTES_WHEN_FULL,
  type ServerConfig,
} from "../server-config.ts";
import type { ServerResources } from "../server-resources.ts";
import type { SessionRegistry } from "../session/session-registry.ts";
import { ConnectionHandler } from "./connection-handler.ts";
import { ConnectionPeer } from "./peer.ts";
import { type RoutedRequest, routeMessage } from "./route-message.ts";

export interface ConnectionLoopDeps {
  /** Authenticated principal of the connection. */
  principal: Principal;
  host: HostServices;
  sessions: SessionRegistry;
  config: ServerConfig;
  resources: ServerResources;
  log: ServerLog;
}

/**
 * Runs one connection: reads messages and sends responses. Requests start in order of arrival but run concurrently,
 * so a long poll or a blocked write delays no other request. Resolves when the connection has closed.
 */
export function serveConnection(connection: Connection, deps: ConnectionLoopDeps): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const peer = new ConnectionPeer(connection);
  const handler = new ConnectionHandler(
    peer,
    deps.principal,
    deps.host,
    deps.sessions,
    deps.config,
    deps.resources,
  );
  const unanswered = new PendingRequests(connection, deps.resources.memory);
  let over = false;

  /** Sends a response. Returns a promise only if sending takes more than this turn of the event loop. */
  const send = (request: RoutedRequest, result: unknown): Promise<void> | null => {
    const bytes = chunkedBytesOf(result);
    if (bytes) {
      const head = readFileHead(request.id);
      return connection.sendChunked({ head, bytes, tail: CHUNK_TAIL }).then(() => freeBuffer(bytes));
    }
    if (request.method === "fs/readBlock") {
      // Built by hand around the bytes, because JSON.stringify of a long string is slow. The handler returned the
      // result of this method.
      const { chunk, eof } = result as ResultOf<"fs/readBlock">;
      connection.sendChunk(readBlockHead(request.id), chunk, readBlockTail(eof));
      return null;
    }
    // The handler returned the result of this method.
    const encoded = methods[request.method].result.encode(result as never, handler.isExtended);
    connection.send(encodeResponse(request.id, encoded));
    return null;
  };

  const respond = async (request: RoutedRequest): Promise<void> => {
    const release = unanswered.add(request);
    const afterResponse: (() => void)[] = [];
    const isLarge = LARGE_RESPONSE_METHODS.has(request.method);
    const { metrics } = deps.host;
    const beganAtMs = metrics ? performance.now() : 0;
    try {
      const call = () => handler.call(request.method, request.params, (task) => afterResponse.push(task));
      const { tracing } = deps.host;
      const result = await (tracing ? tracing.request(tracedRequest(request), call) : call());
      // Check again right before sending: each large response that is sent may fill the queue for the next one.
      if (isLarge) while (!peer.hasResponseCapacity) await peer.waitForResponseSlot();
      // The connection has closed, so the response need not be encoded.
      if (over) return;
      const sending = send(request, result);
      if (sending) await sending;
    } catch (error) {
      const wireError = toWireError(error, handler.isExtended, (cause) => {
        // A closed connection aborts its requests. That is not a bug.
        if (!over)
          deps.log("error", `${request.method} failed unexpectedly`, { error: describeError(cause) });
      });
      if (!over) connection.send(encodeError(request.id, wireError));
    } finally {
      for (const task of afterResponse) task();
      // Free it now: it is written, and garbage collection may take long.
      if (request.method === "fs/writeBlock") freeCopiedBuffer(request.params.chunk);
      metrics?.requestFinished(request.method, performance.now() - beganAtMs);
      release();
      if (isLarge) peer.releaseResponseSlot();
    }
  };

  connection.open((event) => {
    switch (event.type) {
      case "message":
        try {
          const routed = routeMessage(event.message);
          switch (routed.type) {
            case "request":
              // `respond` converts every failure to a response, so it never rejects.
              void respond(routed);
              return;
            case "refused":
              connection.send(encodeError(routed.id, toWireError(routed.error, handler.isExtended)));
              return;
            case "initialized":
              handler.initialized();
              return;
            case "ack":
              handler.ack(routed.processId, routed.seq);
              return;
            case "forwardAck":
              handler.forwardAck(routed.streamId, routed.bytes);
              return;
          }
        } catch (error) {
          if (!(error instanceof ProtocolError)) throw error;
          deps.log("warn", `closing ${connection.label} after a protocol error: ${error.message}`);
          connection.close(error.message);
        }
        return;
      case "malformed":
        connection.send(
          encodeError(UNREADABLE_ID, { code: ErrorCode.invalidRequest, message: event.reason }),
        );
        return;
      case "disconnected":
        over = true;
        unanswered.stop();
        peer.disconnected();
        if (event.reason !== null) deps.log("debug", `${connection.label} disconnected: ${event.reason}`);
        void handler
          .close()
          .catch((error: unknown) =>
            deps.log("error", "closing a connection failed", { error: describeError(error) }),
          )
          .then(resolve);
        return;
    }
  });
  return promise;
}

function tracedRequest({ method, params, trace }: RoutedRequest): TracedRequest {
  return { method, trace, processId: "processId" in params ? params.processId : undefined };
}

/** Returns the bytes of a file response that is large enough to be sent in chunks, otherwise null. */
function chunkedBytesOf(result: unknown): Uint8Array | null {
  if (typeof result !== "object" || result === null || !("dataBase64" in result)) return null;
  const { dataBase64 } = result;
  return dataBase64 instanceof Uint8Array && dataBase64.length > CHUNKED_RESPONSE_BYTES ? dataBase64 : null;
}

/** Methods whose response size depends on the request. Only these wait for a peer that does not read. */
const LARGE_RESPONSE_METHODS: ReadonlySet<MethodName> = new Set([
  "process/read",
  "process/snapshot",
  "process/list",
  "fs/readFile",
  "fs/readBlock",
  "fs/readDirectory",
  "fs/walk",
  "fs/scan",
  "http/request",
  "environmentConfig/read",
  "capabilityRoots/discoverV1",
  "capabilities/discoverV2",
]);

/** Limits the pending requests of a connection. The limit is lower while the server's memory budget is exhausted. */
class PendingRequests {
  readonly #connection: Connection;
  readonly #memory: MemoryBudget;
  readonly #stopListening: () => void;
  #bytes = 0;
  #paused = false;

  constructor(connection: Connection, memory: MemoryBudget) {
    this.#connection = connection;
    this.#memory = memory;
    this.#stopListening = memory.onFull(() => this.#update());
  }

  add(request: RoutedRequest): () => void {
    const bytes = sizeOf(request);
    this.#bytes += bytes;
    this.#memory.charge(bytes);
    this.#update();
    return () => {
      this.#bytes -= bytes;
      this.#memory.release(bytes);
      this.#update();
    };
  }

  /** Stops listening to the memory budget after the connection closed. Pending requests count until they end. */
  stop(): void {
    this.#stopListening();
  }

  #update(): void {
    const maxBytes = this.#memory.isFull ? MAX_PENDING_REQUEST_BYTES_WHEN_FULL : MAX_PENDING_REQUEST_BYTES;
    if (!this.#paused && this.#bytes > maxBytes) {
      this.#paused = true;
      this.#connection.pause();
    } else if (this.#paused && this.#bytes <= maxBytes / 2) {
      this.#paused = false;
      this.#connection.resume();
    }
  }
}

/** Estimated memory of a request in addition to its payload. */
const REQUEST_OVERHEAD_BYTES = 4096;

/** Returns the estimated memory of a request. Only requests with a payload can be large. */
function sizeOf(request: RoutedRequest): number {
  switch (request.method) {
    case "process/write":
    case "command/exec/write":
    case "fs/writeBlock":
    case "forward/write":
      return REQUEST_OVERHEAD_BYTES + request.params.chunk.length;
    case "fs/writeAtomic":
      return REQUEST_OVERHEAD_BYTES + (request.params.chunk?.length ?? 0);
    case "fs/writeFile":
      return REQUEST_OVERHEAD_BYTES + request.params.dataBase64.length;
    case "http/request":
      return REQUEST_OVERHEAD_BYTES + (request.params.bodyBase64?.length ?? 0);
    default:
      return REQUEST_OVERHEAD_BYTES;
  }
}

export function describeError(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
