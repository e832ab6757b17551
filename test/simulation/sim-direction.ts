import type { Random } from "./random.ts";
import type { SimClock } from "./sim-clock.ts";
import type { SimConnection } from "./sim-connection.ts";

/** Maximum bytes of one read from a socket. */
const READ_BYTES = 32 * 1024;

type Entry = { type: "text"; text: string } | { type: "end"; reason: string | null };

export interface SimDirectionOptions {
  clock: SimClock;
  random: Random;
  /** Latency of a message, with jitter, but without reordering. */
  latencyMs: number;
  /** Bytes that the system buffers in flight; further bytes wait in the sender. */
  windowBytes: number;
  onText: (text: string) => void;
}

/** One direction of a connection: in order, with latency, a limited window and faults. */
export class SimDirection {
  readonly #options: SimDirectionOptions;
  readonly #queue: Entry[] = [];
  readonly #flight: { entry: Entry; at: number }[] = [];
  #from: SimConnection | null = null;
  #to: SimConnection | null = null;
  #queuedBytes = 0;
  #flightBytes = 0;
  #stalledUntil = 0;
  #isFlushScheduled = false;
  #isArrivalScheduled = false;
  #hasGrown = false;
  /** Drops all messages silently. */
  #isDead = false;
  #isClosed = false;

  constructor(options: SimDirectionOptions) {
    this.#options = options;
  }

  join(from: SimConnection, to: SimConnection): void {
    this.#from = from;
    this.#to = to;
  }

  get queuedBytes(): number {
    return this.#queuedBytes;
  }

  send(text: string): void {
    if (this.#isClosed) return;
    this.#queue.push({ type: "text", text });
    this.#queuedBytes += text.length;
    this.#hasGrown = true;
    this.#scheduleFlush();
  }

  /** Closes after delivering the queue of the sender. */
  end(reason: string | null): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#queue.push({ type: "end", reason });
    this.#scheduleFlush();
  }

  /** Ends the stream without notice to the sender: buffered bytes are delivered, others are lost. */
  endInside(): void {
    this.#isClosed = true;
    this.#loseQueue();
    this.#flight.push({ entry: { type: "end", reason: null }, at: this.#arrivalTime() });
    this.wake();
  }

  /** Stops all delivery without notice to the sender. */
  kill(): void {
    this.#isDead = true;
  }

  stall(ms: number): void {
    this.#stalledUntil = Math.max(this.#stalledUntil, this.#options.clock.now + ms);
  }

  /** Called when the receiver can read again. */
  wake(): void {
    const head = this.#flight[0];
    if (!head || this.#isArrivalScheduled || this.#isDead || !this.#to?.takesInput) return;
    this.#isArrivalScheduled = true;
    const { clock } = this.#options;
    clock.after(Math.max(head.at, this.#stalledUntil) - clock.now, () => {
      this.#isArrivalScheduled = false;
      this.#arrive();
    });
  }

  #arrive(): void {
    const { clock } = this.#options;
    for (let remaining = READ_BYTES; remaining > 0; ) {
      const head = this.#flight[0];
      if (!head || this.#isDead || !this.#to?.takesInput) break;
      if (Math.max(head.at, this.#stalledUntil) > clock.now) break;
      this.#flight.shift();
      if (head.entry.type === "end") {
        this.#to.ended(head.entry.reason);
        return;
      }
      const { text } = head.entry;
      remaining -= text.length;
      this.#flightBytes -= text.length;
      this.#options.onText(text);
      this.#to.receive(text);
    }
    this.#scheduleFlush();
    this.wake();
  }

  /** Flushes at the end of the sender's tick, like a real socket. */
  #scheduleFlush(): void {
    if (this.#isFlushScheduled) return;
    this.#isFlushScheduled = true;
    this.#options.clock.after(0, () => {
      this.#isFlushScheduled = false;
      this.#flushQueue();
    });
  }

  #flushQueue(): void {
    const { windowBytes } = this.#options;
    for (;;) {
      const next = this.#queue[0];
      if (!next || (this.#flightBytes > 0 && this.#flightBytes >= windowBytes)) break;
      this.#queue.shift();
      if (next.type === "text") {
        this.#queuedBytes -= next.text.length;
        this.#flightBytes += next.text.length;
      }
      this.#flight.push({ entry: next, at: this.#arrivalTime() });
    }
    this.wake();
    if (this.#queue.length > 0 || !this.#hasGrown) return;
    this.#hasGrown = false;
    if (!this.#from?.isOver) this.#from?.onDrain();
  }

  #arrivalTime(): number {
    const { clock, random, latencyMs } = this.#options;
    const before = this.#flight.at(-1)?.at ?? 0;
    return Math.max(before, clock.now + Math.floor(latencyMs * (0.5 + random.next())));
  }

  #loseQueue(): void {
    this.#queue.length = 0;
    this.#queuedBytes = 0;
  }
}
