import type { ByteLedger } from "../../async/memory-budget.ts";
import { freeBytes, freeCopied } from "../../base/free-buffer.ts";
import type { Connection } from "../../connection/connection.ts";
import { encodeError, encodeResponse, idText, UNREADABLE_ID } from "../../protocol/envelope.ts";
import { ErrorCode, ProtocolError, toWireError } from "../../protocol/errors.ts";
import { type MethodName, methods, type ResultOf } from "../../protocol/methods.ts";
import type { HostServices, ServerLog } from "../host-services.ts";
import type { TracedRequest } from "../observability/tracing.ts";
import type { Principal } from "../principal.ts";
import {
  LONG_ANSWER_BYTES,
  MAX_UNANSWERED_BYTES,
  MAX_UNANSWERED_BYTES_WHEN_FULL,
  type ServerConfig,
} from "../server-config.ts";
import type { SharedRoom } from "../server-resources.ts";
import type { SessionRegistry } from "../session/session-registry.ts";
import { ConnectionHandler } from "./connection-handler.ts";
import { ConnectionPeer } from "./peer.ts";
import { type RoutedRequest, routeMessage } from "./route-message.ts";

export interface ProcessorDeps {
  /** The principal at the other end. */
  principal: Principal;
  host: HostServices;
  sessions: SessionRegistry;
  config: ServerConfig;
  room: SharedRoom;
  log: ServerLog;
}

/**
 * Runs one connection: messages in, answers out. Requests start in the order they came and are not waited for one by
 * one, so a long poll or a blocked write holds up nothing behind it. Resolves when the connection is over and closed.
 */
export function runConnection(connection: Connection, deps: ProcessorDeps): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const peer = new ConnectionPeer(connection);
  const handler = new ConnectionHandler(
    peer,
    deps.principal,
    deps.host,
    deps.sessions,
    deps.config,
    deps.room,
  );
  const unanswered = new UnansweredRequests(connection, deps.room.ledger);
  let over = false;

  /** A promise only where it takes more than this turn. */
  const send = (request: RoutedRequest, result: unknown): Promise<void> | null => {
    const bytes = longBytes(result);
    if (bytes) {
      const head = `{"id":${idText(request.id)},"result":{"dataBase64":"`;
      return connection.sendLong({ head, bytes, tail: '"}}' }).then(() => freeBytes(bytes));
    }
    if (request.method === "fs/readBlock") {
      // By hand around its bytes, because JSON.stringify of a long string is slow. The handler answers with that method's result.
      const { chunk, eof } = result as ResultOf<"fs/readBlock">;
      connection.sendChunk(`{"id":${idText(request.id)},"result":{"chunk":"`, chunk, `","eof":${eof}}}`);
      return null;
    }
    // The handler of a method answers with that method's result.
    connection.send(encodeResponse(request.id, methods[request.method].result.encode(result as never)));
    return null;
  };

  const answer = async (request: RoutedRequest): Promise<void> => {
    const release = unanswered.enter(request);
    const afterAnswer: (() => void)[] = [];
    const isLarge = LARGE_ANSWERS.has(request.method);
    const { figures } = deps.host;
    const beganAtMs = figures ? performance.now() : 0;
    try {
      const call = () => handler.call(request.method, request.params, (task) => afterAnswer.push(task));
      const { tracing } = deps.host;
      const result = await (tracing ? tracing.request(tracedRequest(request), call) : call());
      // Looked at again right before it is sent: of many that wait, only as many may go as there is room for.
      if (isLarge) while (!peer.hasRoom) await peer.turn();
      // Nobody is there to be answered: what waited for its turn is not even made.
      if (over) return;
      const sending = send(request, result);
      if (sending) await sending;
    } catch (error) {
      // A request of a connection that is gone was aborted; that is no bug.
      const bug = (cause: unknown) => {
        if (!over) deps.log("error", `${request.method} failed unexpectedly`, { error: describe(cause) });
      };
      const told = toWireError(error, bug);
      if (!over) connection.send(encodeError(request.id, told));
    } finally {
      for (const task of afterAnswer) task();
      // It has been written, and the collector may not come for long.
      if (request.method === "fs/writeBlock") freeCopied(request.params.chunk);
      figures?.answered(request.method, performance.now() - beganAtMs);
      release();
      if (isLarge) peer.nextTurn();
    }
  };

  connection.open((event) => {
    switch (event.type) {
      case "message":
        try {
          const routed = routeMessage(event.message);
          switch (routed.type) {
            case "request":
              // `answer` turns every failure into an answer, so nothing is left to reject.
              void answer(routed);
              return;
            case "refused":
              connection.send(
                encodeError(routed.id, { code: routed.error.code, message: routed.error.message }),
              );
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
      case "write":
        // What could go straight has gone; this goes the way of every request, without a parser's part of it.
        void answer({ type: "request", id: event.id, method: "process/write", params: event.params });
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
            deps.log("error", "closing a connection failed", { error: describe(error) }),
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

/** Of a file's answer, when it is long. */
function longBytes(result: unknown): Uint8Array | null {
  if (typeof result !== "object" || result === null || !("dataBase64" in result)) return null;
  const { dataBase64 } = result;
  return dataBase64 instanceof Uint8Array && dataBase64.length > LONG_ANSWER_BYTES ? dataBase64 : null;
}

/** Answers whose size is not the server's choice. They alone wait for a peer that does not read. */
const LARGE_ANSWERS: ReadonlySet<MethodName> = new Set([
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

/** Bounds what a peer that only sends can pile up: by itself, and more tightly while the whole server holds too much. */
class UnansweredRequests {
  readonly #connection: Connection;
  readonly #ledger: ByteLedger;
  readonly #stopListening: () => void;
  #bytes = 0;
  #paused = false;

  constructor(connection: Connection, ledger: ByteLedger) {
    this.#connection = connection;
    this.#ledger = ledger;
    this.#stopListening = ledger.onFull(() => this.#update());
  }

  enter(request: RoutedRequest): () => void {
    const bytes = sizeOf(request);
    this.#bytes += bytes;
    this.#ledger.add(bytes);
    this.#update();
    return () => {
      this.#bytes -= bytes;
      this.#ledger.remove(bytes);
      this.#update();
    };
  }

  /** The connection is gone. Requests under way still count until they are over. */
  stop(): void {
    this.#stopListening();
  }

  #update(): void {
    const most = this.#ledger.isFull ? MAX_UNANSWERED_BYTES_WHEN_FULL : MAX_UNANSWERED_BYTES;
    if (!this.#paused && this.#bytes > most) {
      this.#paused = true;
      this.#connection.pause();
    } else if (this.#paused && this.#bytes <= most / 2) {
      this.#paused = false;
      this.#connection.resume();
    }
  }
}

/** What every request costs beside its bytes, roughly. */
const REQUEST_OVERHEAD_BYTES = 4096;

/** Only the requests that carry bytes can be large. */
function sizeOf(request: RoutedRequest): number {
  switch (request.method) {
    case "process/write":
    case "command/exec/write":
    case "fs/writeBlock":
    case "forward/write":
      return REQUEST_OVERHEAD_BYTES + request.params.chunk.length;
    case "fs/put":
      return REQUEST_OVERHEAD_BYTES + (request.params.chunk?.length ?? 0);
    case "fs/writeFile":
      return REQUEST_OVERHEAD_BYTES + request.params.dataBase64.length;
    case "http/request":
      return REQUEST_OVERHEAD_BYTES + (request.params.bodyBase64?.length ?? 0);
    default:
      return REQUEST_OVERHEAD_BYTES;
  }
}

export function describe(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
