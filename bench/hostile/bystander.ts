import { WebSocket } from "ws";

/** Time between a response and the next request. */
const PAUSE_MS = 20;

/** A client that only requests the server's status, one request at a time, and measures the longest wait. */
export class Bystander {
  readonly #socket: WebSocket;
  #longestMs = 0;
  #sentAt = 0;
  #isWaiting = false;

  static async connect(url: string): Promise<Bystander> {
    const socket = new WebSocket(url, { perMessageDeflate: false });
    await new Promise<void>((resolve, reject) => {
      socket.once("open", resolve);
      socket.once("error", reject);
    });
    return new Bystander(socket);
  }

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("error", () => undefined);
    socket.on("message", () => {
      if (!this.#isWaiting) return;
      this.#longestMs = Math.max(this.#longestMs, performance.now() - this.#sentAt);
      this.#isWaiting = false;
      setTimeout(() => this.#sendRequest(), PAUSE_MS);
    });
    socket.send(JSON.stringify({ id: 0, method: "initialize", params: { clientName: "bystander" } }));
    socket.send(JSON.stringify({ method: "initialized", params: {} }));
    socket.once("message", () => setTimeout(() => this.#sendRequest(), PAUSE_MS));
  }

  /** A pending request counts with the time that it has waited so far. */
  async longestWaitMs(): Promise<number> {
    const waiting = this.#isWaiting ? performance.now() - this.#sentAt : 0;
    return Math.max(this.#longestMs, waiting);
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
