import type { RpcChannel } from "../rpc/rpc-channel.ts";

interface FinalAck {
  seq: number;
  /** Channel on which the ack was sent; null if it is not sent yet. */
  caller: RpcChannel | null;
  sentAs: number;
}

/**
 * The last ack of each closed process, until the server has certainly received it: the server keeps the process until
 * then. A response to a call that was sent later on the same connection proves receipt. On a new connection the ack
 * is sent again.
 */
export class FinalAcks {
  readonly #unconfirmed = new Map<string, FinalAck>();
  #sent = 0;

  add(processId: string, seq: number, caller: RpcChannel | null): void {
    this.#unconfirmed.set(processId, { seq, caller, sentAs: ++this.#sent });
  }

  /** Returns a number for a call that is being sent; pass it to `answered`. */
  callSent(): number {
    return ++this.#sent;
  }

  answered(caller: RpcChannel, sentAs: number): void {
    for (const [processId, ack] of this.#unconfirmed)
      if (ack.caller === caller && ack.sentAs < sentAs) this.#unconfirmed.delete(processId);
  }

  resend(caller: RpcChannel): void {
    for (const [processId, ack] of this.#unconfirmed) {
      caller.ack(processId, ack.seq);
      this.#unconfirmed.set(processId, { ...ack, caller, sentAs: ++this.#sent });
    }
  }

  /** Drops the ack, because the id is about to name a new process. */
  forget(processId: string): void {
    this.#unconfirmed.delete(processId);
  }
}
