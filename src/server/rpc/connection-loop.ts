import { SliceCounter } from "../../async/slices.ts";
import { errorStack } from "../../base/error-message.ts";
import { freeBuffer, freeReceivedBlock } from "../../base/free-buffer.ts";
import { type Connection, toByteSource } from "../../connection/connection.ts";
import type { OpenedFile } from "../../files/file-system.ts";
import { type Message, UNREADABLE_ID } from "../../protocol/envelope.ts";
import { ErrorCode, ProtocolError, toWireError } from "../../protocol/errors.ts";
import {
  CHUNK_TAIL,
  encodeError,
  encodeListing,
  encodeResponse,
  readBlockHead,
  readBlockTail,
  readFileHead,
} from "../../protocol/message-text.ts";
import { type MethodName, methods, type ResultOf } from "../../protocol/methods.ts";
import type { ServerLog } from "../host-services.ts";
import type { TracedRequest } from "../observability/tracing.ts";
import { CHUNKED_RESPONSE_BYTES } from "../server-config.ts";
import { ConnectionHandler, type ConnectionHandlerDeps } from "./connection-handler.ts";
import type { Caller } from "./handler-types.ts";
import { ConnectionPeer } from "./peer.ts";
import { PendingRequests } from "./pending-requests.ts";
import { type RoutedRequest, routeMessage } from "./route-message.ts";

export interface ConnectionLoopDeps extends ConnectionHandlerDeps {
  log: ServerLog;
  /** Called for each message of the client. */
  onUsed?: () => void;
}

/** Serves one connection. Resolves when the connection has closed. */
export function serveConnection(connection: Connection, deps: ConnectionLoopDeps): Promise<void> {
  return new ConnectionLoop(connection, deps).run();
}

/**
 * The loop of one connection: reads messages and sends responses. Requests start in order of arrival but run
 * concurrently, so a long poll or a blocked write delays no other request.
 */
class ConnectionLoop {
  readonly #connection: Connection;
  readonly #deps: ConnectionLoopDeps;
  readonly #peer: ConnectionPeer;
  readonly #handler: ConnectionHandler;
  readonly #pending: PendingRequests;
  #isDisconnected = false;

  constructor(connection: Connection, deps: ConnectionLoopDeps) {
    this.#connection = connection;
    this.#deps = deps;
    this.#peer = new ConnectionPeer(connection);
    this.#handler = new ConnectionHandler(this.#peer, deps);
    this.#pending = new PendingRequests(connection, this.#handler.memory.budgets);
  }

  run(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#connection.open((event) => {
      switch (event.type) {
        case "message":
          this.#onMessage(event.message);
          return;
        case "malformed":
          this.#connection.send(encodeError(UNREADABLE_ID, { code: ErrorCode.invalidRequest, message: event.reason }));
          return;
        case "disconnected":
          void this.#onDisconnected(event.reason).then(resolve);
          return;
      }
    });
    return promise;
  }

  #onMessage(message: Message): void {
    this.#deps.onUsed?.();
    try {
      const routed = routeMessage(message);
      switch (routed.type) {
        case "request":
          // `#respond` converts every failure to a response, so it never rejects.
          void this.#respond(routed);
          return;
        case "refused":
          this.#connection.send(encodeError(routed.id, toWireError(routed.error, this.#handler.isExtended)));
          return;
        case "clientResponse":
          this.#peer.requests.settle(routed.id, routed.response);
          return;
        case "initialized":
          this.#handler.initialized();
          return;
        case "ack":
          this.#handler.ack(routed.processId, routed.seq);
          return;
        case "forwardAck":
          this.#handler.forwardAck(routed.streamId, routed.bytes);
          return;
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      const { label } = this.#connection;
      this.#deps.log("warn", `closing ${label} after a protocol error: ${error.message}`);
      this.#connection.close(error.message);
    }
  }

  async #onDisconnected(reason: string | null): Promise<void> {
    const { log } = this.#deps;
    this.#isDisconnected = true;
    this.#pending.stop();
    this.#peer.disconnected();
    if (reason !== null) log("debug", `${this.#connection.label} disconnected: ${reason}`);
    await this.#handler
      .close()
      .catch((error: unknown) => log("error", "closing a connection failed", { error: errorStack(error) }));
  }

  async #respond(request: RoutedRequest): Promise<void> {
    const { method, params } = request;
    const { metrics, tracing } = this.#deps.host;
    const release = this.#pending.add(request);
    const afterResponse: (() => void)[] = [];
    const isLarge = LARGE_RESPONSE_METHODS.has(method);
    const beganAtMs = metrics ? performance.now() : 0;
    const streamed: { file?: OpenedFile } = {};
    const caller: Caller = {
      afterResponse: (task) => afterResponse.push(task),
      streamFile: (opened) => {
        streamed.file = opened;
      },
    };
    try {
      const call = () => this.#handler.call(method, params, caller);
      const result = await (tracing ? tracing.request(tracedRequest(request), call) : call());
      // Check again right before sending: each large response that is sent may fill the queue for the next one.
      if (isLarge) while (!this.#peer.hasResponseCapacity) await this.#peer.waitForResponseSlot();
      if (this.#isDisconnected) return;
      const sending = streamed.file ? this.#sendFile(request, streamed.file) : this.#send(request, result);
      // No other message may precede the tasks after the response, so an immediate send is not awaited.
      if (sending) await sending;
    } catch (error) {
      this.#sendError(request, error);
    } finally {
      // The read-only file loses nothing if its close fails.
      if (streamed.file) await streamed.file.close().catch(() => undefined);
      for (const task of afterResponse) task();
      // Free it now: it is written, and garbage collection may take long.
      if (method === "fs/writeBlock") freeReceivedBlock(params.chunk);
      metrics?.requestFinished(method, performance.now() - beganAtMs);
      release();
      if (isLarge) this.#peer.releaseResponseSlot();
    }
  }

  /** Sends a response. Returns a promise only if sending takes more than this tick of the event loop. */
  #send(request: RoutedRequest, result: unknown): Promise<void> | null {
    const chunked = chunkedMemberOf(result);
    if (chunked) {
      const { name, bytes } = chunked;
      // The member is the last one of the result.
      const others = this.#encodeResult(request, { ...chunked.result, [name]: new Uint8Array(0) });
      const head = encodeResponse(request.id, others).slice(0, -CHUNK_TAIL.length);
      return this.#connection
        .sendChunked({ head, source: toByteSource(bytes), tail: CHUNK_TAIL })
        .then(() => freeBuffer(bytes));
    }
    if (request.method === "fs/readBlock") {
      // Built by hand around the bytes, because JSON.stringify of a long string is slow. The handler returned the
      // result of this method.
      const { chunk, eof } = result as ResultOf<"fs/readBlock">;
      this.#peer.sendBlock(readBlockHead(request.id), chunk, readBlockTail(eof));
      freeReceivedBlock(chunk);
      return null;
    }
    if (isLongListing(request, result)) return this.#sendListing(request, result);
    this.#connection.send(encodeResponse(request.id, this.#encodeResult(request, result)));
    return null;
  }

  #encodeResult({ method }: RoutedRequest, result: unknown): unknown {
    // The handler returned the result of this method.
    return methods[method].result.encode(result as never, this.#handler.isExtended);
  }

  #sendFile({ id }: RoutedRequest, source: OpenedFile): Promise<void> {
    return this.#connection.sendChunked({ head: readFileHead(id), source, tail: CHUNK_TAIL });
  }

  /** Encodes a long listing in slices, so that other connections do not wait for all of it. */
  async #sendListing({ id, method }: RoutedRequest, result: ListingResult): Promise<void> {
    // Each part is a result of this method, and its schema encodes to an object.
    const encode = (part: Partial<ListingResult>) =>
      methods[method].result.encode({ ...result, ...part } as never) as Record<string, unknown>;
    const { entries: _, ...others } = encode({ entries: [] });
    const slices = new SliceCounter();
    let parts = "";
    for (let at = 0; at < result.entries.length; at += LISTING_SLICE_ENTRIES) {
      const { entries } = encode({ entries: result.entries.slice(at, at + LISTING_SLICE_ENTRIES), errors: [] });
      parts += `${at === 0 ? "" : ","}${JSON.stringify(entries).slice(1, -1)}`;
      await slices.next();
    }
    if (!this.#isDisconnected) this.#connection.send(encodeListing(id, parts, others));
  }

  /** Sends the error of a request. A closed connection aborts its requests, which is not a bug. */
  #sendError({ id, method }: RoutedRequest, error: unknown): void {
    const wireError = toWireError(error, this.#handler.isExtended, (cause) => {
      if (!this.#isDisconnected) this.#deps.log("error", `${method} failed unexpectedly`, { error: errorStack(cause) });
    });
    if (!this.#isDisconnected) this.#connection.send(encodeError(id, wireError));
  }
}

/** Result of `fs/walk` and `fs/readDirectory`. */
interface ListingResult {
  entries: readonly unknown[];
  errors?: readonly unknown[];
}

/** Entries that are encoded at once. They take about two milliseconds. */
const LISTING_SLICE_ENTRIES = 2_048;

function isLongListing({ method }: RoutedRequest, result: unknown): result is ListingResult {
  if (method !== "fs/walk" && method !== "fs/readDirectory") return false;
  // The handler returned the result of this method.
  return (result as ListingResult).entries.length > LISTING_SLICE_ENTRIES;
}

function tracedRequest({ method, params, trace }: RoutedRequest): TracedRequest {
  return { method, trace, processId: "processId" in params ? params.processId : undefined };
}

/** Returns the member of a file or an HTTP body that is large enough to be sent in parts, otherwise null. */
function chunkedMemberOf(result: unknown): { result: object; name: string; bytes: Uint8Array } | null {
  if (typeof result !== "object" || result === null) return null;
  const name = "dataBase64" in result ? "dataBase64" : "bodyBase64";
  const bytes: unknown = Reflect.get(result, name);
  return bytes instanceof Uint8Array && bytes.length > CHUNKED_RESPONSE_BYTES ? { result, name, bytes } : null;
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
