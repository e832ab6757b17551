/** A TCP proxy that can be cut at any moment: both sides see a closed connection. */

import { connect, createServer, type Server, type Socket } from "node:net";
import { resetSocket } from "../../../src/forward/reset-socket.ts";

/** Number of most recent bytes that are retained for inspection. */
const RECENT_CHARS = 4096;

export class CuttingProxy implements AsyncDisposable {
  readonly url: string;
  readonly #server: Server;
  readonly #pairs = new Set<[Socket, Socket]>();
  /** Bytes forwarded to the client since the last cut. */
  forwarded = 0;
  /** Called after each chunk that the proxy sent to the client. */
  onForward: () => void = () => undefined;
  connections = 0;
  /** Closes new connections at once while true. */
  isClosed = false;
  #recent = "";

  private constructor(server: Server, url: string, target: { port: number; host: string }) {
    this.#server = server;
    this.url = url;
    server.on("connection", (client) => {
      if (this.isClosed) return void client.destroy();
      this.connections++;
      const upstream = connect(target.port, target.host);
      const pair: [Socket, Socket] = [client, upstream];
      this.#pairs.add(pair);
      const drop = () => {
        this.#pairs.delete(pair);
        client.destroy();
        upstream.destroy();
      };
      for (const socket of pair) {
        socket.on("error", drop);
        socket.on("close", drop);
      }
      client.pipe(upstream);
      upstream.on("data", (chunk: Buffer) => {
        if (!client.write(chunk)) {
          upstream.pause();
          client.once("drain", () => upstream.resume());
        }
        this.forwarded += chunk.length;
        this.#recent = (this.#recent + chunk.toString("latin1")).slice(-RECENT_CHARS);
        this.onForward();
      });
    });
  }

  /** Starts a proxy in front of the server at this `ws://` URL. */
  static async to(url: string): Promise<CuttingProxy> {
    const { hostname, port } = new URL(url);
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    if (typeof address !== "object" || address === null) throw new Error("no address");
    return new CuttingProxy(server, `ws://127.0.0.1:${address.port}`, { port: Number(port), host: hostname });
  }

  /** Reports whether this text was recently sent to the client. Frames of a server are not masked. */
  sawText(text: string): boolean {
    return this.#recent.includes(text);
  }

  /** Closes every connection. Accepts new connections. */
  cut(): void {
    this.forwarded = 0;
    this.#recent = "";
    for (const [client, upstream] of this.#pairs) {
      resetSocket(client);
      resetSocket(upstream);
    }
    this.#pairs.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}
