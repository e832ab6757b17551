import type { RpcChannel } from "../rpc/rpc-channel.ts";

interface FinalAck {
  seq: number;
  /** Channel on which the ack was sent; null if it is not sent yet. */
  channel: RpcChannel | null;
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

  add(processId: string, seq: number, channel: RpcChannel | null): void {
    this.#unconfirmed.set(processId, { seq, channel, sentAs: ++this.#sent });
  }

  /** Returns a number for a call that is being sent; pass it to `onResponse`. */
  callSent(): number {
    return ++this.#sent;
  }

  onResponse(channel: RpcChannel, sentAs: number): void {
    for (const [processId, ack] of this.#unconfirmed)
      if (ack.channel === channel && ack.sentAs < sentAs) this.#unconfirmed.delete(processId);
  }

  resend(channel: RpcChannel): void {
    for (const [processId, ack] of this.#unconfirmed) {
      channel.ack(processId, ack.seq);
      this.#unconfirmed.set(processId, { ...ack, channel, sentAs: ++this.#sent });
    }
  }

  /** Drops the ack, because the id is about to name a new process. */
  forget(processId: string): void {
    this.#unconfirmed.delete(processId);
  }
}
