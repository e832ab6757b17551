import { WebSocket } from "ws";

/** Default time between a response and the next request. */
const PAUSE_MS = 20;

/** A client that only requests the server's status, one request at a time, and measures the longest wait. */
export class Bystander {
  readonly #socket: WebSocket;
  readonly #pauseMs: number;
  #longestMs = 0;
  #sentAt = 0;
  #isWaiting = false;
  /** Resolves with the response to `initialize`. */
  readonly initialized: Promise<void>;

  static async connect(url: string, { pauseMs = PAUSE_MS } = {}): Promise<Bystander> {
    const socket = new WebSocket(url, { perMessageDeflate: false });
    await new Promise<void>((resolve, reject) => {
      socket.once("open", resolve);
      socket.once("error", reject);
    });
    return new Bystander(socket, pauseMs);
  }

  private constructor(socket: WebSocket, pauseMs: number) {
    this.#socket = socket;
    this.#pauseMs = pauseMs;
    socket.on("error", () => undefined);
    socket.on("message", () => {
      if (!this.#isWaiting) return;
      this.#longestMs = Math.max(this.#longestMs, performance.now() - this.#sentAt);
      this.#isWaiting = false;
      setTimeout(() => this.#sendRequest(), this.#pauseMs);
    });
    socket.send(JSON.stringify({ id: 0, method: "initialize", params: { clientName: "bystander" } }));
    socket.send(JSON.stringify({ method: "initialized", params: {} }));
    this.initialized = new Promise((resolve) => socket.once("message", () => resolve()));
    void this.initialized.then(() => setTimeout(() => this.#sendRequest(), this.#pauseMs));
  }

  /** A pending request counts with the time that it has waited so far. */
  async longestWaitMs(): Promise<number> {
    const waiting = this.#isWaiting ? performance.now() - this.#sentAt : 0;
    return Math.max(this.#longestMs, waiting);
  }

  /** Forgets the waits so far. */
  reset(): void {
    this.#longestMs = 0;
  }

  close(): void {
    this.#socket.terminate();
  }

  #sendRequest(): void {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    this.#isWaiting = true;
    this.#sentAt = performance.now();
    this.#socket.send(JSON.stringify({ id: 1, method: "environment/status", params: {} }));
  }
}
