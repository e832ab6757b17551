import type { BinaryBlocks, Connection, DirectInput } from "../../connection/connection.ts";
import { BULK_QUEUE_LIMIT_BYTES, binaryBlocksEnabler, HIGH_WATER_MARK_BYTES } from "../../connection/connection.ts";
import {
  CHUNK_TAIL,
  encodeNotification,
  encodeRequest,
  forwardDataHead,
  outputHead,
  v0OutputHead,
} from "../../protocol/message-text.ts";
import type { ServerNotification, ServerRequest, ServerRequestResult } from "../../protocol/methods.ts";
import { serverNotifications, serverRequests } from "../../protocol/methods.ts";
import { MAX_QUEUED_RESPONSE_BYTES } from "../server-config.ts";
import { ClientRequests } from "./client-requests.ts";

/** The other end of a connection, as handlers see it. */
export interface Peer {
  notify(notification: ServerNotification): void;
  /** Sends a request to the client. Rejects on an error response, an invalid result, an abort and a disconnect. */
  request(request: ServerRequest, options: { isExtended: boolean; signal: AbortSignal }): Promise<ServerRequestResult>;
  /** True if the send queue is above the bulk limit. Bulk output then waits for the drain. */
  readonly isAboveBulkLimit: boolean;
  /** True if the send queue is above the queue limit. All streams then wait for the drain. */
  readonly isAboveQueueLimit: boolean;
  /** Returns the position after all data sent so far. */
  sentPosition(): number;
  /** Reports whether all data up to the position has left this process. May become true late, but never too early. */
  isFlushedThrough(position: number): boolean;
  /** Calls `listener` when the peer can take more data. Returns the function that removes the listener. */
  onDrain(listener: () => void): () => void;
  close(reason: string): void;
  /** True if the receiver keeps the bytes of a notification after `notify`: a client in this process. */
  readonly keepsBytes?: boolean | undefined;
  /** Direct input of the connection, if it supports it. */
  readonly directInput?: DirectInput | undefined;
  /** Accepts and sends file blocks as bytes from now on. Absent if the connection has no binary messages. */
  readonly enableBinaryBlocks?: (() => void) | undefined;
}

/** A peer on a JSON-RPC connection. */
export class ConnectionPeer implements Peer {
  readonly #connection: Connection;
  readonly #listeners = new Set<() => void>();
  /** Requests that wait for a response of the client. */
  readonly requests = new ClientRequests();
  /** Large responses that wait until the queue is below its limit. */
  #waiting: (() => void)[] = [];
  /** Bytes of output sent so far. */
  #sentBytes = 0;
  #quoted = { id: "", json: '""' };
  #isDisconnected = false;
  /** Null unless the client requested `binaryBlocks`. */
  #blocks: BinaryBlocks | null = null;

  constructor(connection: Connection) {
    this.#connection = connection;
    connection.onDrain = () => this.#drained();
  }

  async request(
    { method, params }: ServerRequest,
    { isExtended, signal }: { isExtended: boolean; signal: AbortSignal },
  ): Promise<ServerRequestResult> {
    const spec = serverRequests[method];
    const encoded = spec.params.encode(params, isExtended);
    const result = await this.requests.start((id) => this.#connection.send(encodeRequest(id, method, encoded)), signal);
    return spec.result.decode(result);
  }

  notify(notification: ServerNotification): void {
    switch (notification.method) {
      case "process/output": {
        // The hot path: built by hand around the chunk, because JSON.stringify of a long string is slow.
        const { processId, seq, stream, chunk } = notification.params;
        this.#sendOutput(outputHead(this.#quote(processId), seq, stream), chunk);
        return;
      }
      case "forward/data": {
        const { streamId, chunk } = notification.params;
        this.#sendOutput(forwardDataHead(this.#quote(streamId)), chunk);
        return;
      }
      case "command/exec/outputDelta": {
        const { sessionId, stream, chunk } = notification.params;
        this.#sendOutput(v0OutputHead(this.#quote(sessionId), stream), chunk);
        return;
      }
      default: {
        const { params } = serverNotifications[notification.method];
        // The method and its params come from one union, so the schema is the params' own.
        this.#connection.send(encodeNotification(notification.method, params.encode(notification.params as never)));
      }
    }
  }

  #sendOutput(head: string, chunk: Uint8Array): void {
    this.#sentBytes += chunk.length;
    this.#connection.sendChunk(head, chunk, CHUNK_TAIL);
  }

  /** Returns an id as JSON text. Caches the last one, because output mostly repeats it. */
  #quote(id: string): string {
    if (id !== this.#quoted.id) this.#quoted = { id, json: JSON.stringify(id) };
    return this.#quoted.json;
  }

  get isAboveBulkLimit(): boolean {
    return this.#connection.queuedBytes >= BULK_QUEUE_LIMIT_BYTES;
  }

  get isAboveQueueLimit(): boolean {
    return this.#connection.queuedBytes >= HIGH_WATER_MARK_BYTES;
  }

  sentPosition(): number {
    return this.#sentBytes;
  }

  /** Output takes more bytes in the queue than in `#sentBytes`, so this never returns true too early. */
  isFlushedThrough(position: number): boolean {
    return this.#sentBytes - this.#connection.queuedBytes >= position;
  }

  get directInput(): DirectInput | undefined {
    return this.#connection.directInput;
  }

  get enableBinaryBlocks(): (() => void) | undefined {
    return binaryBlocksEnabler(this.#connection, (blocks) => {
      this.#blocks = blocks;
    });
  }

  /** Sends a response with a file block. The caller may free `bytes` afterwards. */
  sendBlock(head: string, bytes: Uint8Array, tail: string): void {
    if (this.#blocks) this.#blocks.send(head + tail, bytes);
    else this.#connection.sendChunk(head, bytes, tail);
  }

  onDrain(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  close(reason: string): void {
    this.#connection.close(reason);
  }

  /** True if a large response may be queued, or the peer has disconnected. Valid only until the next send. */
  get hasResponseCapacity(): boolean {
    return this.#isDisconnected || this.#connection.queuedBytes <= MAX_QUEUED_RESPONSE_BYTES;
  }

  /** Resolves in order of arrival. The caller checks the capacity again, and then calls `releaseResponseSlot`. */
  waitForResponseSlot(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Wakes the next large response after one was queued. */
  releaseResponseSlot(): void {
    if (this.hasResponseCapacity) this.#waiting.shift()?.();
  }

  /** Wakes all waiting responses; `hasResponseCapacity` is true from now on. */
  disconnected(): void {
    this.#isDisconnected = true;
    this.requests.disconnected();
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  /** Moves the listener that filled the queue to the end, so that bulk output does not starve the others. */
  #drained(): void {
    this.releaseResponseSlot();
    for (const listener of [...this.#listeners]) {
      if (this.isAboveQueueLimit) return;
      const wasAboveLimit = this.isAboveBulkLimit;
      listener();
      const hasFilledQueue = !wasAboveLimit && this.isAboveBulkLimit;
      if (hasFilledQueue && this.#listeners.delete(listener)) this.#listeners.add(listener);
    }
  }
}
