import type { Clock, Timer } from "../async/clock.ts";
import type { FrameSocket } from "./frame-socket.ts";
import { CloseCode } from "./websocket-frames.ts";

/** Interval between pings to a peer. Same value as in Codex. */
const PING_INTERVAL_MS = 30_000;
/** Time after which a peer without a pong counts as disconnected. */
const PONG_TIMEOUT_MS = 15_000;

/** The connection, as seen by its keep-alive. */
export interface PingedConnection {
  readonly socket: Pick<FrameSocket, "receivedBytes" | "sentBytes" | "queuedBytes">;
  /** Whether other connections wait for memory that the peer's incomplete message reserves. */
  isBlockingOthers(): boolean;
  /** Whether responses are queued that hold memory which other connections need. */
  hasQueuedResponses(): boolean;
  sendPing(): void;
  close(code: number, reason: string, problem: string): void;
  /** Closes the connection without a close frame. */
  drop(problem: string): void;
}

/** Pings the peer of a WebSocket connection. Closes the connection of a silent or stalled peer. */
export class WebSocketKeepAlive {
  readonly #connection: PingedConnection;
  readonly #clock: Clock;
  #timer: Timer | null = null;
  #receivedAtPing = 0;
  /** `sentBytes` at the last ping. */
  #sentAtPing: number | null = null;

  constructor(connection: PingedConnection, clock: Clock) {
    this.#connection = connection;
    this.#clock = clock;
    this.#pingAfter(PING_INTERVAL_MS);
  }

  stop(): void {
    this.#timer?.cancel();
  }

  #pingAfter(delayMs: number): void {
    this.#timer = this.#clock.after(delayMs, () => this.#ping(), { keepAlive: false });
  }

  #ping(): void {
    const { receivedBytes, sentBytes } = this.#connection.socket;
    if (this.#sentAtPing !== null && receivedBytes === this.#receivedAtPing && this.#connection.isBlockingOthers()) {
      const reason = `a large message stalled for ${PING_INTERVAL_MS} ms`;
      this.#connection.close(CloseCode.policy, reason, "the peer stalled within a large message");
      return;
    }
    // Output may wait indefinitely, responses may not.
    if (this.#sentAtPing !== null && sentBytes <= this.#sentAtPing && this.#connection.hasQueuedResponses()) {
      const reason = `responses were not read for ${PING_INTERVAL_MS} ms`;
      this.#connection.close(CloseCode.policy, reason, "the peer does not read its responses");
      return;
    }
    this.#sentAtPing = sentBytes;
    this.#receivedAtPing = receivedBytes;
    this.#connection.sendPing();
    this.#timer = this.#clock.after(PONG_TIMEOUT_MS, () => this.#checkPong(), { keepAlive: false });
  }

  /** Closes a silent connection. A peer that still reads a long queue may reply late and is not silent. */
  #checkPong(): void {
    const { receivedBytes, queuedBytes } = this.#connection.socket;
    if (receivedBytes === this.#receivedAtPing && queuedBytes === 0)
      this.#connection.drop(`no pong within ${PONG_TIMEOUT_MS} ms`);
    else this.#pingAfter(PING_INTERVAL_MS - PONG_TIMEOUT_MS);
  }
}
