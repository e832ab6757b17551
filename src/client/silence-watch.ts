import type { Clock, Timer } from "../async/clock.ts";
import type { Caller } from "./caller.ts";

/** A server that is silent this long is asked whether it is still there; a dead wire shows no other sign. */
const SILENCE_BEFORE_ASKING_MS = 15_000;
/** And has this long to answer. Together well below the 30 s a detached session is kept. */
const ALIVE_ANSWER_MS = 10_000;

/** Notices a connection that died without a word, and closes it. */
export class SilenceWatch {
  readonly #caller: Caller;
  readonly #clock: Clock;
  #heardAtMs: number;
  #timer: Timer;

  constructor(caller: Caller, clock: Clock) {
    this.#caller = caller;
    this.#clock = clock;
    this.#heardAtMs = clock.now();
    this.#timer = this.#wait();
  }

  /** Something came. */
  heard(): void {
    this.#heardAtMs = this.#clock.now();
  }

  stop(): void {
    this.#timer.cancel();
  }

  #wait(): Timer {
    const silentMs = this.#clock.now() - this.#heardAtMs;
    const remainingMs = Math.max(SILENCE_BEFORE_ASKING_MS - silentMs, 1);
    return this.#clock.after(remainingMs, () => this.#look(), { keepAlive: false });
  }

  #look(): void {
    if (this.#clock.now() - this.#heardAtMs < SILENCE_BEFORE_ASKING_MS) {
      this.#timer = this.#wait();
      return;
    }
    const reason = `no answer for ${ALIVE_ANSWER_MS} ms after ${SILENCE_BEFORE_ASKING_MS} ms of silence`;
    this.#timer = this.#clock.after(ALIVE_ANSWER_MS, () => this.#caller.close(reason), { keepAlive: false });
    const answered = () => {
      this.#timer.cancel();
      this.heard();
      // A connection that was lost is told by its own event, and has no more need of a watch.
      if (!this.#caller.end) this.#timer = this.#wait();
    };
    // A refusal is an answer too.
    this.#caller.call("environment/status", {}).then(answered, answered);
  }
}
