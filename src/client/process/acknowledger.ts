import type { Clock, Timer } from "../../async/clock.ts";

/**
 * Unacknowledged bytes that trigger an immediate ack: a quarter of the server's limit, so that the server never
 * pauses.
 */
const IMMEDIATE_ACK_BYTES = 256 * 1024;
/**
 * Unacknowledged bytes that trigger an ack at the end of the current event loop tick. Fewer wait for `ACK_DELAY_MS`.
 */
const NEXT_TICK_ACK_BYTES = 16 * 1024;
/** Delay of the ack for small output, so that an echoed keystroke does not cost a separate message. */
const ACK_DELAY_MS = 25;

/** Acknowledges the output of one process in batches, once the event log has it. */
export class Acknowledger {
  readonly #send: (seq: number) => void;
  readonly #seq: () => number;
  readonly #clock: Clock;
  #unackedBytes = 0;
  #ackedSeq = 0;
  #isSuspended = false;
  #nextTick: Timer | null = null;
  #delayed: Timer | null = null;

  /** `seq` returns the last sequence number in the log. */
  constructor(send: (seq: number) => void, seq: () => number, clock: Clock) {
    this.#send = send;
    this.#seq = seq;
    this.#clock = clock;
  }

  onAppended(bytes: number): void {
    this.#unackedBytes += bytes;
    if (this.#isSuspended) return;
    if (this.#unackedBytes >= IMMEDIATE_ACK_BYTES) this.flush();
    else if (this.#unackedBytes >= NEXT_TICK_ACK_BYTES)
      this.#nextTick ??= this.#clock.after(0, () => this.flush(), { keepAlive: false });
    else this.#delayed ??= this.#clock.after(ACK_DELAY_MS, () => this.flush(), { keepAlive: false });
  }

  /** Sends no acks while suspended, so that the server pauses the process. */
  suspend(isSuspended: boolean): void {
    this.#isSuspended = isSuspended;
    if (!isSuspended) this.flush();
  }

  flush(): void {
    this.#nextTick?.cancel();
    this.#delayed?.cancel();
    this.#nextTick = null;
    this.#delayed = null;
    const seq = this.#seq();
    if (this.#isSuspended || seq <= this.#ackedSeq) return;
    this.#ackedSeq = seq;
    this.#unackedBytes = 0;
    this.#send(seq);
  }

  /** Sends the last ack again on a new connection, because the lost connection may have dropped it. */
  resend(): void {
    this.#ackedSeq = 0;
    this.flush();
  }
}
