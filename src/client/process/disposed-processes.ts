import { RequestError } from "../../protocol/errors.ts";
import type { ServerNotification } from "../../protocol/methods.ts";
import type { Link } from "../session/reconnecting-session.ts";

/** A seq beyond that of any event. */
const BEYOND_EVERYTHING_SEQ = 2 ** 52;

/**
 * Processes whose handle was disposed of before they had told their end. Nobody reads them here any more, but the server
 * keeps each until its end is confirmed.
 */
export class ReleasedProcesses {
  readonly #link: () => Link;
  readonly #ids = new Set<string>();

  constructor(link: () => Link) {
    this.#link = link;
  }

  add(processId: string): void {
    if (!this.#link().server.granted.has("outputAck")) return;
    this.#ids.add(processId);
    this.#confirmAll(processId);
  }

  /** Its id is used anew. */
  forget(processId: string): void {
    this.#ids.delete(processId);
  }

  notified(notification: ServerNotification): void {
    switch (notification.method) {
      case "process/output":
      case "process/exited":
      case "process/closed": {
        const { processId, seq } = notification.params;
        if (this.#ids.has(processId)) this.#confirm(processId, seq, notification.method === "process/closed");
        return;
      }
      default:
        return;
    }
  }

  /** What was told while there was no connection is confirmed too. */
  resumed(): void {
    for (const processId of this.#ids) this.#confirmAll(processId);
  }

  #confirm(processId: string, seq: number, isClosed: boolean): void {
    if (isClosed) this.#ids.delete(processId);
    this.#link().ack(processId, seq, isClosed);
  }

  #confirmAll(processId: string): void {
    const reading = this.#link().call("process/read", { processId, afterSeq: BEYOND_EVERYTHING_SEQ });
    reading.then(
      ({ nextSeq, closed }) => {
        if (this.#ids.has(processId)) this.#confirm(processId, nextSeq - 1, closed);
      },
      (error: unknown) => {
        // The server has forgotten it already; a lost connection is told elsewhere.
        if (error instanceof RequestError) this.#ids.delete(processId);
      },
    );
  }
}
