import type { RpcChannel } from "../rpc/rpc-channel.ts";

interface FinalAck {
  seq: number;
  /** Channel on which the ack was sent; null if it is not sent yet. */
  channel: RpcChannel | null;
  /** Position among all final acks and calls of the session, in the order in which they were sent. */
  sendNumber: number;
}

/**
 * The last ack of each closed process, until the server has certainly received it: the server keeps the process until
 * then. A response to a call that was sent later on the same connection proves receipt. On a new connection the ack
 * is sent again.
 */
export class FinalAcks {
  readonly #unconfirmed = new Map<string, FinalAck>();
  #sent = 0;

  add(processId: string, seq: number, channel: RpcChannel | null): void {
    this.#unconfirmed.set(processId, { seq, channel, sendNumber: ++this.#sent });
  }

  /** Returns a number for a call that is being sent; pass it to `onResponse`. */
  callSent(): number {
    return ++this.#sent;
  }

  onResponse(channel: RpcChannel, sendNumber: number): void {
    for (const [processId, ack] of this.#unconfirmed)
      if (ack.channel === channel && ack.sendNumber < sendNumber) this.#unconfirmed.delete(processId);
  }

  resend(channel: RpcChannel): void {
    for (const [processId, ack] of this.#unconfirmed) {
      channel.ack(processId, ack.seq);
      this.#unconfirmed.set(processId, { ...ack, channel, sendNumber: ++this.#sent });
    }
  }

  /** Drops the ack, because the id is about to name a new process. */
  forget(processId: string): void {
    this.#unconfirmed.delete(processId);
  }
}
