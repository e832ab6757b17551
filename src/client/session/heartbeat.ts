import type { Clock, Timer } from "../../async/clock.ts";
import type { RpcChannel } from "../rpc/rpc-channel.ts";

/** Silence after which the client pings the server: without a ping, a dead connection looks idle. */
const PING_DELAY_MS = 15_000;
/** Time for the ping reply. Together with the delay well below the 30 s that a detached session lives. */
const PING_TIMEOUT_MS = 10_000;

export interface HeartbeatOptions {
  clock: Clock;
  /** Sends a ping; null if the transport has none. */
  ping: () => Promise<unknown> | null;
  /** Reports whether reading is paused: silence then proves nothing. */
  isPaused: () => boolean;
}

/** Detects a connection that died silently, and closes it. */
export class Heartbeat {
  readonly #channel: RpcChannel;
  readonly #options: HeartbeatOptions;
  readonly #clock: Clock;
  #lastActivityMs: number;
  #timer: Timer;

  constructor(channel: RpcChannel, options: HeartbeatOptions) {
    this.#channel = channel;
    this.#options = options;
    this.#clock = options.clock;
    this.#lastActivityMs = this.#clock.monotonic();
    this.#timer = this.#wait();
  }

  /** Called for everything that the server sends. */
  onActivity(): void {
    this.#lastActivityMs = this.#clock.monotonic();
  }

  stop(): void {
    this.#timer.cancel();
  }

  #wait(): Timer {
    const silentMs = this.#clock.monotonic() - this.#lastActivityMs;
    const remainingMs = Math.max(PING_DELAY_MS - silentMs, 1);
    return this.#clock.after(remainingMs, () => this.#check(), { keepAlive: false });
  }

  #check(): void {
    if (this.#options.isPaused()) this.onActivity();
    if (this.#clock.monotonic() - this.#lastActivityMs < PING_DELAY_MS) {
      this.#timer = this.#wait();
      return;
    }
    const ping = this.#options.ping();
    if (ping === null) return;
    const reason = `no ping reply within ${PING_TIMEOUT_MS} ms after ${PING_DELAY_MS} ms of silence`;
    let isDone = false;
    const onReply = () => {
      if (isDone) return;
      isDone = true;
      this.#timer.cancel();
      this.onActivity();
      // A closed channel emits its own event and needs no heartbeat.
      if (!this.#channel.closeInfo) this.#timer = this.#wait();
    };
    const onTimeout = () => (this.#options.isPaused() ? onReply() : this.#channel.close(reason));
    this.#timer = this.#clock.after(PING_TIMEOUT_MS, onTimeout, { keepAlive: false });
    // An error response is a reply too.
    ping.then(onReply, onReply);
  }
}
