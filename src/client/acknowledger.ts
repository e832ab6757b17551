import type { Clock, Timer } from "../async/clock.ts";

/** Confirm as soon as this much is unconfirmed: a quarter of what a server allows, so that it never has to pause. */
const PROMPT_BYTES = 256 * 1024;
/** More than this is confirmed at the end of the current turn of the event loop; less, a little later. */
const SOON_BYTES = 16 * 1024;
/** The delay for small output, so that an echoed keystroke does not cost a message of its own. */
const LATER_MS = 25;

/** Confirms the output of one process in batches, once its log holds it. */
export class Acknowledger {
  readonly #send: (seq: number) => void;
  readonly #seq: () => number;
  readonly #clock: Clock;
  #unconfirmedBytes = 0;
  #confirmedSeq = 0;
  #isWithheld = false;
  #soon: Timer | null = null;
  #later: Timer | null = null;

  /** `seq` tells the last number the log holds. */
  constructor(send: (seq: number) => void, seq: () => number, clock: Clock) {
    this.#send = send;
    this.#seq = seq;
    this.#clock = clock;
  }

  added(bytes: number): void {
    this.#unconfirmedBytes += bytes;
    if (this.#isWithheld) return;
    if (this.#unconfirmedBytes >= PROMPT_BYTES) this.flush();
    else if (this.#unconfirmedBytes >= SOON_BYTES)
      this.#soon ??= this.#clock.after(0, () => this.flush(), { keepAlive: false });
    else this.#later ??= this.#clock.after(LATER_MS, () => this.flush(), { keepAlive: false });
  }

  /** Confirms nothing while withheld, so that the server pauses the process. */
  withhold(isWithheld: boolean): void {
    this.#isWithheld = isWithheld;
    if (!isWithheld) this.flush();
  }

  flush(): void {
    this.#soon?.cancel();
    this.#later?.cancel();
    this.#soon = null;
    this.#later = null;
    const seq = this.#seq();
    if (this.#isWithheld || seq <= this.#confirmedSeq) return;
    this.#confirmedSeq = seq;
    this.#unconfirmedBytes = 0;
    this.#send(seq);
  }

  /** Confirmations that were under way on the lost connection may not have arrived: the new one is told again. */
  again(): void {
    this.#confirmedSeq = 0;
    this.flush();
  }
}
