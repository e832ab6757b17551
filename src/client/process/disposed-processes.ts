import { RequestError } from "../../protocol/errors.ts";
import type { ServerNotification } from "../../protocol/methods.ts";
import type { ReopeningSession } from "../session/reopening-session.ts";

/** A sequence number greater than that of any event. */
const MAX_SEQ = 2 ** 52;

/**
 * Processes that were disposed before they closed. This client no longer reads them, but the server keeps each
 * process until its last event is acknowledged.
 */
export class DisposedProcesses {
  readonly #sessions: ReopeningSession;
  readonly #ids = new Set<string>();

  constructor(sessions: ReopeningSession) {
    this.#sessions = sessions;
  }

  add(processId: string): void {
    if (!this.#sessions.current.server.grantedExtensions.has("outputAck")) return;
    this.#ids.add(processId);
    this.#ackAll(processId);
  }

  /** Called before the id names a new process. */
  forget(processId: string): void {
    this.#ids.delete(processId);
  }

  onNotification(notification: ServerNotification): void {
    const { method, params } = notification;
    if (method !== "process/output" && method !== "process/exited" && method !== "process/closed") return;
    if (this.#ids.has(params.processId)) this.#ack(params.processId, params.seq, method === "process/closed");
  }

  /** Acknowledges events that were sent while there was no connection. */
  onResumed(): void {
    for (const processId of this.#ids) this.#ackAll(processId);
  }

  /** The server ends the processes of a lost session. */
  onLost(): void {
    this.#ids.clear();
  }

  #ack(processId: string, seq: number, isClosed: boolean): void {
    if (isClosed) this.#ids.delete(processId);
    this.#sessions.current.ack(processId, seq, isClosed);
  }

  #ackAll(processId: string): void {
    const reading = this.#sessions.current.call("process/read", { processId, afterSeq: MAX_SEQ });
    reading.then(
      ({ nextSeq, closed }) => {
        if (this.#ids.has(processId)) this.#ack(processId, nextSeq - 1, closed);
      },
      (error: unknown) => {
        // The server has already forgotten the process; the session reports a lost connection.
        if (error instanceof RequestError) this.#ids.delete(processId);
      },
    );
  }
}
