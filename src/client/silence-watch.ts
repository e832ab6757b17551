import type { Clock, Timer } from "../async/clock.ts";
import type { Caller } from "./caller.ts";

/** A server that is silent this long is asked whether it is still there; a dead wire shows no other sign. */
const SILENCE_BEFORE_ASKING_MS = 15_000;
/** And has this long to answer. Together well below the 30 s a detached session is kept. */
const ALIVE_ANSWER_MS = 10_000;

/** How a server is asked whether it is there, and whether its answers are taken at all now. */
export interface SilenceWatchOptions {
  clock: Clock;
  /** Null where there is no way to ask. */
  ask: () => Promise<unknown> | null;
  /** While nothing is taken from the connection, silence says nothing. */
  isPaused: () => boolean;
}

/** Notices a connection that died silently, and closes it. */
export class SilenceWatch {
  readonly #caller: Caller;
  readonly #options: SilenceWatchOptions;
  readonly #clock: Clock;
  #heardAtMs: number;
  #timer: Timer;

  constructor(caller: Caller, options: SilenceWatchOptions) {
    this.#caller = caller;
    this.#options = options;
    this.#clock = options.clock;
    this.#heardAtMs = this.#clock.monotonic();
    this.#timer = this.#wait();
  }

  /** Something came. */
  heard(): void {
    this.#heardAtMs = this.#clock.monotonic();
  }

  stop(): void {
    this.#timer.cancel();
  }

  #wait(): Timer {
    const silentMs = this.#clock.monotonic() - this.#heardAtMs;
    const remainingMs = Math.max(SILENCE_BEFORE_ASKING_MS - silentMs, 1);
    return this.#clock.after(remainingMs, () => this.#look(), { keepAlive: false });
  }

  #look(): void {
    if (this.#options.isPaused()) this.heard();
    if (this.#clock.monotonic() - this.#heardAtMs < SILENCE_BEFORE_ASKING_MS) {
      this.#timer = this.#wait();
      return;
    }
    const asked = this.#options.ask();
    if (asked === null) return;
    const reason = `no answer for ${ALIVE_ANSWER_MS} ms after ${SILENCE_BEFORE_ASKING_MS} ms of silence`;
    let isAnswered = false;
    const answered = () => {
      if (isAnswered) return;
      isAnswered = true;
      this.#timer.cancel();
      this.heard();
      // A connection that was lost is told by its own event, and has no more need of a watch.
      if (!this.#caller.end) this.#timer = this.#wait();
    };
    const late = () => (this.#options.isPaused() ? answered() : this.#caller.close(reason));
    this.#timer = this.#clock.after(ALIVE_ANSWER_MS, late, { keepAlive: false });
    // A refusal is an answer too.
    asked.then(answered, answered);
  }
}
