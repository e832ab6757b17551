import { errorMessage } from "../../base/error-message.ts";
import type { BinaryBlocks, Connection, ConnectionEvent } from "../../connection/connection.ts";
import { binaryBlocksEnabler } from "../../connection/connection.ts";
import type { Message, RequestId } from "../../protocol/envelope.ts";
import { DisconnectedError, ErrorCode, fromWireError, ProtocolError } from "../../protocol/errors.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import {
  CHUNK_TAIL,
  decodeOutputNotification,
  encodeError,
  encodeNotification,
  encodeRequest,
  encodeResponse,
  writeBlockHead,
  writeBlockTail,
  writeHead,
} from "../../protocol/message-text.ts";
import {
  isServerNotificationName,
  isServerRequestName,
  type MethodName,
  methods,
  type ParamsOf,
  type ResultOf,
  type ServerNotification,
  serverNotifications,
  serverRequests,
} from "../../protocol/methods.ts";
import type { Schema } from "../../protocol/schema.ts";
import type { ChannelClose, RpcChannel, RpcChannelEvents } from "./rpc-channel.ts";

/** JSON-RPC over any Connection. */
export class JsonRpcChannel implements RpcChannel {
  readonly #connection: Connection;
  readonly #events: RpcChannelEvents;
  readonly #pending = new Map<number, PendingResponse>();
  #nextId = 1;
  /** Null until the server granted `binaryBlocks`. */
  #blocks: BinaryBlocks | null = null;
  readonly #closed = new AbortController();
  closeInfo: ChannelClose | null = null;

  constructor(connection: Connection, events: RpcChannelEvents) {
    this.#connection = connection;
    this.#events = events;
    connection.open(
      (event) => this.#onEvent(event),
      (message) => this.#decodeOutput(message),
    );
  }

  call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>> {
    if (this.closeInfo) return Promise.reject(new DisconnectedError(this.closeInfo.reason ?? undefined));
    const id = this.#nextId++;
    const { promise, resolve, reject } = Promise.withResolvers<ResultOf<M>>();
    const codec = findCodec(method);
    this.#pending.set(id, {
      onResult: (result) => {
        try {
          resolve(codec.result.decode(result));
        } catch (cause) {
          reject(new ProtocolError(`invalid response to ${method}: ${errorMessage(cause)}`, { cause }));
        }
      },
      onError: reject,
    });
    try {
      if (method === "process/write") this.#sendWrite(id, params);
      else if (method === "fs/writeBlock") this.#sendBlock(id, params);
      else this.#connection.send(encodeRequest(id, method, codec.params.encode(params), this.#events.trace?.()));
    } catch (cause) {
      this.#pending.delete(id);
      reject(new ExecServerError(`${method}: invalid \`params\`: ${errorMessage(cause)}`, "EINVAL", {}, { cause }));
    }
    return promise;
  }

  get enableBinaryBlocks(): (() => void) | undefined {
    return binaryBlocksEnabler(this.#connection, (blocks) => {
      this.#blocks = blocks;
    });
  }

  initialized(): void {
    this.#connection.send(encodeNotification("initialized", {}));
  }

  ack(processId: string, seq: number): void {
    this.#connection.send(encodeNotification("process/ack", { processId, seq }));
  }

  forwardAck(streamId: string, bytes: number): void {
    this.#connection.send(encodeNotification("forward/ack", { streamId, bytes }));
  }

  ping(): Promise<void> | null {
    const connection = this.#connection;
    if (!connection.ping) return null;
    return new Promise((resolve) => connection.ping?.(resolve));
  }

  pause(): void {
    this.#connection.pause();
  }

  resume(): void {
    this.#connection.resume();
  }

  close(reason?: string): void {
    this.#finish({ reason: reason ?? null, recoverable: true });
    this.#connection.close(reason);
  }

  /** Sends the bytes as base64 without building one string of the whole message. */
  #sendWrite(id: number, params: ParamsOf<MethodName>): void {
    if (!("chunk" in params && "processId" in params)) throw new Error("missing `processId` or `chunk`");
    const head = writeHead(id, params.processId, params.writeId);
    this.#connection.sendChunk(head, params.chunk, CHUNK_TAIL);
  }

  #sendBlock(id: number, params: ParamsOf<MethodName>): void {
    if (!("chunk" in params && "handleId" in params)) throw new Error("missing `handleId` or `chunk`");
    const trace = this.#events.trace?.();
    const head = writeBlockHead(id, params.handleId, params.offset);
    const tail = writeBlockTail(trace);
    if (this.#blocks) this.#blocks.send(head + tail, params.chunk);
    else this.#connection.sendChunk(head, params.chunk, tail);
  }

  #onEvent(event: ConnectionEvent): void {
    switch (event.type) {
      case "message":
        this.#onMessage(event.message);
        return;
      case "malformed":
        this.#closeForProtocolError(event.reason);
        return;
      case "disconnected":
        this.#finish({ reason: event.reason, recoverable: true });
        return;
    }
  }

  #onMessage(message: Message): void {
    switch (message.type) {
      case "notification":
        this.#onNotification(message.method, message.params);
        return;
      case "response":
        this.#takePending(message.id)?.onResult(message.result);
        return;
      case "error":
        this.#takePending(message.id)?.onError(fromWireError(message.error));
        return;
      case "request":
        void this.#onRequest(message.id, message.method, message.params);
        return;
    }
  }

  /** Calls the handler of a request of the server and sends its response. */
  async #onRequest(id: RequestId, method: string, params: unknown): Promise<void> {
    let response: string;
    try {
      const { onRequest } = this.#events;
      if (!onRequest || !isServerRequestName(method)) throw new Error(`unknown method: ${method}`);
      const spec = serverRequests[method];
      const result = await onRequest({ method, params: spec.params.decode(params) }, this.#closed.signal);
      response = encodeResponse(id, spec.result.encode(result));
    } catch (error) {
      response = encodeError(id, { code: ErrorCode.invalidRequest, message: errorMessage(error) });
    }
    if (!this.closeInfo) this.#connection.send(response);
  }

  #decodeOutput(message: Uint8Array): boolean {
    if (this.closeInfo) return false;
    const params = decodeOutputNotification(message);
    if (params) this.#events.onNotification({ method: "process/output", params });
    return params !== null;
  }

  #onNotification(method: string, params: unknown): void {
    if (this.closeInfo) return;
    // Ignores notifications that only newer clients know.
    if (!isServerNotificationName(method)) return;
    let notification: ServerNotification;
    try {
      // The params were decoded by the schema of this method.
      notification = { method, params: serverNotifications[method].params.decode(params) } as ServerNotification;
    } catch (error) {
      this.#closeForProtocolError(`invalid ${method}: ${errorMessage(error)}`);
      return;
    }
    this.#events.onNotification(notification);
  }

  /** Returns undefined for calls that were canceled; their responses are dropped. */
  #takePending(id: unknown): PendingResponse | undefined {
    if (typeof id !== "number") return undefined;
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    return pending;
  }

  #closeForProtocolError(reason: string): void {
    this.#finish({ reason, recoverable: false });
    this.#connection.close(reason);
  }

  #finish(end: ChannelClose): void {
    if (this.closeInfo) return;
    this.closeInfo = end;
    this.#closed.abort();
    const error = new DisconnectedError(end.reason ?? undefined);
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const call of pending) call.onError(error);
    this.#events.onClosed(end);
  }
}

interface PendingResponse {
  onResult(result: unknown): void;
  onError(error: Error): void;
}

interface Codec<M extends MethodName> {
  params: Schema<ParamsOf<M>>;
  result: Schema<ResultOf<M>>;
}

function findCodec<M extends MethodName>(method: M): Codec<M> {
  // ParamsOf and ResultOf are derived from these schemas; the compiler cannot infer that for a generic M.
  return methods[method] as unknown as Codec<M>;
}
