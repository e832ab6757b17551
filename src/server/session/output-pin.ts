import type { Clock, Timer } from "../../async/clock.ts";
import type { EventCursor } from "../../exec/log/event-cursor.ts";
import type { EventLog } from "../../exec/log/event-log.ts";
import { RESUME_READ_TIMEOUT_MS } from "../server-config.ts";

type PinState =
  | { type: "none" }
  /** With `outputAck`: pins everything after the last acknowledgement. Survives a lost connection. */
  | { type: "unacknowledged"; cursor: EventCursor }
  /** While detached: pins the output that was retained when the connection was lost, and everything after it. */
  | { type: "detached"; cursor: EventCursor }
  /** After a resume: pins the missed output until the client has read it or `RESUME_READ_TIMEOUT_MS` has elapsed. */
  | { type: "resumed"; cursor: EventCursor; missedThroughSeq: number; timer: Timer };

export interface OutputPinOptions {
  clock: Clock;
  onDetach: "pause" | "evict";
  /** Bytes beyond the retention limit that may pile up while the client is disconnected. */
  extraBytes: number;
  /** Called when a resumed client has not read the missed output in time, so that it is no longer pinned. */
  onReadTimeout: () => void;
}

/** Pins the output of a process until one client has received it. Pins nothing at first. */
export class OutputPin {
  readonly #log: EventLog;
  readonly #options: OutputPinOptions;
  #state: PinState = { type: "none" };

  constructor(log: EventLog, options: OutputPinOptions) {
    this.#log = log;
    this.#options = options;
  }

  /** True if the client has acknowledged every event, or acknowledges nothing. */
  get isAcknowledged(): boolean {
    return this.#state.type !== "unacknowledged" || this.#state.cursor.seq >= this.#log.nextSeq - 1;
  }

  /** True until a resumed client has read the output that it missed. */
  get isWaitingForRead(): boolean {
    return this.#state.type === "resumed";
  }

  release(): void {
    this.#replace({ type: "none" });
  }

  /** Pins everything after `seq` until the client acknowledges it. */
  pinUnacknowledged(seq: number): void {
    this.#replace({ type: "unacknowledged", cursor: this.#cursorAfter(seq, 0) });
  }

  /** Pins the retained output and everything after it for a client that is disconnected. */
  detach(): void {
    if (this.#state.type === "unacknowledged") return;
    const { onDetach, extraBytes } = this.#options;
    if (onDetach === "evict") this.release();
    else this.#replace({ type: "detached", cursor: this.#cursorAfter(this.#pinnedAfterSeq(), extraBytes) });
  }

  /** Pins the output that a client missed before it resumed its session. */
  resume({ hasAcks }: { hasAcks: boolean }): void {
    const pinnedAfterSeq = this.#pinnedAfterSeq();
    const missedThroughSeq = this.#log.nextSeq - 1;
    if (hasAcks) {
      // A client that enables acknowledgements only now starts with the retained output.
      if (this.#state.type !== "unacknowledged") this.pinUnacknowledged(pinnedAfterSeq);
    } else if (pinnedAfterSeq < missedThroughSeq) {
      const cursor = this.#cursorAfter(pinnedAfterSeq, this.#options.extraBytes);
      this.#replace({ type: "resumed", cursor, missedThroughSeq, timer: this.#releaseLater() });
    } else this.release();
  }

  /** Handles an acknowledgement of everything up to `seq`. Ignored without `outputAck`. */
  acknowledge(seq: number): void {
    if (this.#state.type === "unacknowledged") this.#state.cursor.advanceTo(seq);
  }

  /**
   * Handles a read of a resumed client, which has everything up to `afterSeq`. Returns true when the client has read
   * the missed output completely.
   */
  onRead(afterSeq: number, throughSeq: number): boolean {
    const state = this.#state;
    if (state.type !== "resumed") return false;
    if (throughSeq >= state.missedThroughSeq) {
      this.release();
      return true;
    }
    state.timer.cancel();
    state.cursor.advanceTo(Math.min(afterSeq, state.missedThroughSeq));
    this.#state = { ...state, timer: this.#releaseLater() };
    return false;
  }

  /** Returns the position of the pin, or the seq before the oldest retained output. */
  #pinnedAfterSeq(): number {
    return this.#state.type === "none" ? (this.#log.read({ maxBytes: 0 }).gap?.toSeq ?? 0) : this.#state.cursor.seq;
  }

  #cursorAfter(afterSeq: number, extraBytes: number): EventCursor {
    return this.#log.cursor({ afterSeq, lossless: true, extraBytes });
  }

  #releaseLater(): Timer {
    const release = () => {
      this.release();
      this.#options.onReadTimeout();
    };
    return this.#options.clock.after(RESUME_READ_TIMEOUT_MS, release, { keepAlive: false });
  }

  /** Sets the new state before closing the old cursor, so that nothing between them is evicted. */
  #replace(state: PinState): void {
    const former = this.#state;
    this.#state = state;
    if (former.type === "resumed") former.timer.cancel();
    if (former.type !== "none") former.cursor.close();
  }
}
