import { messageOf } from "../../base/error-message.ts";
import type { Connection, ConnectionEvent } from "../../connection/connection.ts";
import { decodeBase64 } from "../../protocol/base64.ts";
import type { Message } from "../../protocol/envelope.ts";
import { encodeError, encodeNotification, encodeRequest } from "../../protocol/envelope.ts";
import { DisconnectedError, ErrorCode, fromWireError, ProtocolError } from "../../protocol/errors.ts";
import {
  isServerNotificationName,
  type MethodName,
  methods,
  type ParamsOf,
  type ResultOf,
  type ServerNotification,
  serverNotifications,
} from "../../protocol/methods.ts";
import { isObject, type Schema } from "../../protocol/schema.ts";
import type { Caller, CallerEnd, CallerEvents } from "../caller.ts";
import { isOutputStream, readOutputBytes } from "./output-decoder.ts";

/** JSON-RPC over any Connection. */
export class RpcCaller implements Caller {
  readonly #connection: Connection;
  readonly #events: CallerEvents;
  readonly #pending = new Map<number, PendingAnswer>();
  #nextId = 1;
  #end: CallerEnd | null = null;

  constructor(connection: Connection, events: CallerEvents) {
    this.#connection = connection;
    this.#events = events;
    connection.open(
      (event) => this.#onEvent(event),
      (message) => this.#takeOutput(message),
    );
  }

  get end(): CallerEnd | null {
    return this.#end;
  }

  call<M extends MethodName>(method: M, params: ParamsOf<M>): Promise<ResultOf<M>> {
    if (this.#end) return Promise.reject(new DisconnectedError(this.#end.reason ?? undefined));
    const id = this.#nextId++;
    const { promise, resolve, reject } = Promise.withResolvers<ResultOf<M>>();
    const codec = codecOf(method);
    this.#pending.set(id, {
      answered: (result) => {
        try {
          resolve(codec.result.decode(result));
        } catch (cause) {
          reject(new ProtocolError(`invalid answer to ${method}: ${messageOf(cause)}`, { cause }));
        }
      },
      failed: reject,
    });
    if (method === "process/write") this.#sendWrite(id, params);
    else if (method === "fs/writeBlock") this.#sendBlock(id, params);
    else
      this.#connection.send(encodeRequest(id, method, codec.params.encode(params), this.#events.trace?.()));
    return promise;
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

  /** The bytes go out as base64 without ever being a part of a longer string. */
  #sendWrite(id: number, params: ParamsOf<MethodName>): void {
    if (!("chunk" in params && "processId" in params)) return;
    const writeId = params.writeId === undefined ? "" : `"writeId":${JSON.stringify(params.writeId)},`;
    const head = `{"id":${id},"method":"process/write","params":{"processId":${JSON.stringify(params.processId)},${writeId}"chunk":"`;
    this.#connection.sendChunk(head, params.chunk, '"}}');
  }

  #sendBlock(id: number, params: ParamsOf<MethodName>): void {
    if (!("chunk" in params && "handleId" in params)) return;
    const trace = this.#events.trace?.();
    const head = `{"id":${id},"method":"fs/writeBlock","params":{"handleId":${JSON.stringify(params.handleId)},"offset":${params.offset},"chunk":"`;
    const tail = trace === undefined ? '"}}' : `"},"trace":${JSON.stringify(trace)}}`;
    this.#connection.sendChunk(head, params.chunk, tail);
  }

  #onEvent(event: ConnectionEvent): void {
    switch (event.type) {
      case "message":
        this.#onMessage(event.message);
        return;
      case "malformed":
        this.#refusePeer(event.reason);
        return;
      case "write":
        this.#refusePeer("the server sent a request that only clients send");
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
        this.#take(message.id)?.answered(message.result);
        return;
      case "error":
        this.#take(message.id)?.failed(fromWireError(message.error));
        return;
      case "request":
        // Servers ask only clients that offered a network proxy, which this one does not.
        this.#connection.send(
          encodeError(message.id, {
            code: ErrorCode.invalidRequest,
            message: `unknown method: ${message.method}`,
          }),
        );
        return;
    }
  }

  #takeOutput(message: Uint8Array): boolean {
    if (this.#end) return false;
    const params = readOutputBytes(message);
    if (params) this.#events.notified({ method: "process/output", params });
    return params !== null;
  }

  #onNotification(method: string, params: unknown): void {
    if (this.#end) return;
    // What a newer server tells besides is not for this client.
    if (!isServerNotificationName(method)) return;
    const notification = method === "process/output" ? readOutput(params) : decodeOther(method, params);
    if (typeof notification === "string") this.#refusePeer(`invalid ${method}: ${notification}`);
    else this.#events.notified(notification);
  }

  /** Answers to calls nobody waits for any more are dropped. */
  #take(id: unknown): PendingAnswer | undefined {
    if (typeof id !== "number") return undefined;
    const pending = this.#pending.get(id);
    this.#pending.delete(id);
    return pending;
  }

  #refusePeer(reason: string): void {
    this.#finish({ reason, recoverable: false });
    this.#connection.close(reason);
  }

  #finish(end: CallerEnd): void {
    if (this.#end) return;
    this.#end = end;
    const error = new DisconnectedError(end.reason ?? undefined);
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const call of pending) call.failed(error);
    this.#events.closed(end);
  }
}

interface PendingAnswer {
  answered(result: unknown): void;
  failed(error: Error): void;
}

interface Codec<M extends MethodName> {
  params: Schema<ParamsOf<M>>;
  result: Schema<ResultOf<M>>;
}

function codecOf<M extends MethodName>(method: M): Codec<M> {
  // ParamsOf and ResultOf are defined as what these very schemas carry; the compiler cannot follow that for a generic M.
  return methods[method] as unknown as Codec<M>;
}

/** Where only the text is at hand: checked by hand, since a schema's walk costs more than a chunk. A text is a refusal. */
function readOutput(params: unknown): ServerNotification | string {
  if (!isObject(params)) return "params are not an object";
  const { processId, seq, stream, chunk } = params;
  const isChunk = typeof chunk === "string" || chunk instanceof Uint8Array;
  if (typeof processId !== "string" || typeof seq !== "number" || !isChunk) return "a member is missing";
  if (!isOutputStream(stream)) return `unknown stream ${String(stream)}`;
  if (typeof chunk !== "string")
    return { method: "process/output", params: { processId, seq, stream, chunk } };
  const decoded = decodeBase64(chunk);
  if (!decoded.ok) return decoded.problem;
  return { method: "process/output", params: { processId, seq, stream, chunk: decoded.bytes } };
}

function decodeOther(method: ServerNotification["method"], params: unknown): ServerNotification | string {
  try {
    // The params were decoded by the schema of this very method.
    return { method, params: serverNotifications[method].params.decode(params) } as ServerNotification;
  } catch (error) {
    return messageOf(error);
  }
}
