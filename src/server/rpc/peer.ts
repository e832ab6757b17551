import type { Connection } from "../../connection/connection.ts";
import { CONGESTED_BYTES, CROWDED_BYTES } from "../../connection/connection.ts";
import type { StraightWay } from "../../connection/straight-way.ts";
import { encodeNotification } from "../../protocol/envelope.ts";
import { type ServerNotification, serverNotifications } from "../../protocol/methods.ts";
import { MAX_QUEUED_ANSWER_BYTES } from "../server-config.ts";

/** The client's side of a connection, as handlers see it. */
export interface Peer {
  notify(notification: ServerNotification): void;
  /** Something is queued: bulk output waits for the drain. */
  readonly crowded: boolean;
  /** Enough is queued: every stream waits for the drain. */
  readonly congested: boolean;
  /** Stands for all that was told so far. */
  mark(): number;
  /** Whether all that was told up to that mark has left this program. Never true too early; late by what else is queued. */
  hasLeft(mark: number): boolean;
  /** Calls back when a congested peer can take more; returns how to stop. */
  onDrain(listener: () => void): () => void;
  close(reason: string): void;
  /** Where its connection can take input to processes by itself. */
  readonly straightWay?: StraightWay | undefined;
}

/** A peer behind a connection that speaks JSON. */
export class ConnectionPeer implements Peer {
  readonly #connection: Connection;
  readonly #listeners = new Set<() => void>();
  /** Large answers that wait to be queued. */
  #waiting: (() => void)[] = [];
  /** Bytes of output so far. */
  #toldBytes = 0;
  #quoted = { id: "", json: '""' };
  #gone = false;

  constructor(connection: Connection) {
    this.#connection = connection;
    connection.onDrain = () => this.#drained();
  }

  notify(notification: ServerNotification): void {
    switch (notification.method) {
      case "process/output": {
        // The hot path: built by hand around the chunk, because JSON.stringify of a long string is slow.
        const { processId, seq, stream, chunk } = notification.params;
        const head = `{"method":"process/output","params":{"processId":${this.#quote(processId)},"seq":${seq},"stream":"${stream}","chunk":"`;
        this.#toldBytes += chunk.length;
        this.#connection.sendChunk(head, chunk, '"}}');
        return;
      }
      case "forward/data": {
        const { streamId, chunk } = notification.params;
        const head = `{"method":"forward/data","params":{"streamId":${this.#quote(streamId)},"chunk":"`;
        this.#toldBytes += chunk.length;
        this.#connection.sendChunk(head, chunk, '"}}');
        return;
      }
      case "command/exec/outputDelta": {
        const { sessionId, stream, chunk } = notification.params;
        const head = `{"method":"command/exec/outputDelta","params":{"sessionId":${this.#quote(sessionId)},"stream":"${stream}","chunk":"`;
        this.#toldBytes += chunk.length;
        this.#connection.sendChunk(head, chunk, '"}}');
        return;
      }
      default: {
        const { params } = serverNotifications[notification.method];
        // The method and its params come from one union, so the schema is the params' own.
        this.#connection.send(
          encodeNotification(notification.method, params.encode(notification.params as never)),
        );
      }
    }
  }

  /** An id as JSON has it; mostly it is the one of the last output. */
  #quote(id: string): string {
    if (id !== this.#quoted.id) this.#quoted = { id, json: JSON.stringify(id) };
    return this.#quoted.json;
  }

  get crowded(): boolean {
    return this.#connection.queuedBytes >= CROWDED_BYTES;
  }

  get congested(): boolean {
    return this.#connection.queuedBytes >= CONGESTED_BYTES;
  }

  mark(): number {
    return this.#toldBytes;
  }

  /** Output takes more bytes in the queue than it has, so what is not queued any more has left. */
  hasLeft(mark: number): boolean {
    return this.#toldBytes - this.#connection.queuedBytes >= mark;
  }

  get straightWay(): StraightWay | undefined {
    return this.#connection.straightWay;
  }

  onDrain(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  close(reason: string): void {
    this.#connection.close(reason);
  }

  /** Little enough is queued for a large answer, or nobody is there to be answered. Holds only until something is sent. */
  get hasRoom(): boolean {
    return this.#gone || this.#connection.queuedBytes <= MAX_QUEUED_ANSWER_BYTES;
  }

  /** Resolves in its turn, when it is worth looking again whether there is room. The one that had its turn calls `nextTurn`. */
  turn(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** A large answer has been queued: the next one may look whether there is room. */
  nextTurn(): void {
    if (this.hasRoom) this.#waiting.shift()?.();
  }

  disconnected(): void {
    this.#gone = true;
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }

  /** The listener that filled the queue goes to the end of the line, so that one flood does not starve the others. */
  #drained(): void {
    this.nextTurn();
    for (const listener of [...this.#listeners]) {
      if (this.congested) return;
      const hadRoom = !this.crowded;
      listener();
      if (hadRoom && this.crowded && this.#listeners.delete(listener)) this.#listeners.add(listener);
    }
  }
}
