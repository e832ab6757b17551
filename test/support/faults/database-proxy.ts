import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { resetSocket } from "../../../src/forward/reset-socket.ts";

/** A proxy to a database. A cut resets its connections and rejects new ones. */
export class DatabaseRoad implements AsyncDisposable {
  #target: URL;
  #server: Server | null = null;
  #port = 0;
  #sockets = new Set<Socket>();

  private constructor(target: URL) {
    this.#target = target;
  }

  static async to(url: string): Promise<DatabaseRoad> {
    const road = new DatabaseRoad(new URL(url));
    await road.giveBack();
    return road;
  }

  get url(): string {
    const url = new URL(this.#target);
    url.port = `${this.#port}`;
    return url.href;
  }

  async takeAway(): Promise<void> {
    const server = this.#server;
    this.#server = null;
    for (const socket of this.#sockets) resetSocket(socket);
    await new Promise((resolve) => server?.close(resolve));
  }

  async giveBack(): Promise<void> {
    this.#server = createServer((client) => {
      const upstream = connect(Number(this.#target.port), this.#target.hostname);
      for (const [socket, other] of [
        [client, upstream],
        [upstream, client],
      ] as const) {
        this.#sockets.add(socket);
        socket.on("error", () => undefined);
        socket.on("close", () => {
          this.#sockets.delete(socket);
          other.destroy();
        });
        socket.pipe(other);
      }
    });
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    const address = this.#server.address();
    if (typeof address === "object" && address) this.#port = address.port;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#server) await this.takeAway();
  }
}
