import type { Caller } from "./caller.ts";

interface LastAck {
  seq: number;
  /** The connection it was sent on; null if it is not sent yet. */
  caller: Caller | null;
  sentAs: number;
}

/**
 * The last confirmation of each process that has ended, while it is not sure that the server got it: the server keeps the
 * process until then. A call that was sent later on the same connection and is answered proves it; a new connection is
 * told again.
 */
export class LastAcks {
  readonly #unsure = new Map<string, LastAck>();
  #sent = 0;

  add(processId: string, seq: number, caller: Caller | null): void {
    this.#unsure.set(processId, { seq, caller, sentAs: ++this.#sent });
  }

  /** A call is sent now; give the number to `answered`. */
  callSent(): number {
    return ++this.#sent;
  }

  answered(caller: Caller, sentAs: number): void {
    for (const [processId, ack] of this.#unsure)
      if (ack.caller === caller && ack.sentAs < sentAs) this.#unsure.delete(processId);
  }

  sendAgain(caller: Caller): void {
    for (const [processId, ack] of this.#unsure) {
      caller.ack(processId, ack.seq);
      this.#unsure.set(processId, { ...ack, caller, sentAs: ++this.#sent });
    }
  }

  /** Its id is about to be used anew: what was confirmed of the old process says nothing about the new one. */
  forget(processId: string): void {
    this.#unsure.delete(processId);
  }
}
