import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";
import { resetSocket } from "../../../src/forward/reset-socket.ts";

export type Direction = "toServer" | "toClient";

/** Faults of a connection through the proxy. Default: none. */
export interface Fault {
  /** Cuts after exactly this many bytes were delivered in this direction. */
  cutAfter?: { bytes: number; direction: Direction };
  /** `both`: both sides see the end. `client`: only the client sees it; the server has a half-open connection. */
  side?: "both" | "client";
  /** Cuts with a TCP reset instead of a close. */
  reset?: boolean;
  /** The proxy delays every chunk by this time. */
  delayMs?: number;
  /** Delivers chunks of at most this many bytes. */
  pieceBytes?: number;
}

/** A TCP proxy on loopback that injects faults into its connections. */
export class FaultProxy implements AsyncDisposable {
  /** Returns the faults of the next connection. Connections are numbered from 1. */
  faultFor: (connectionNumber: number) => Fault = () => ({});
  cuts = 0;
  connections = 0;
  readonly #server: Server;
  readonly #target: { port: number };
  readonly #port: number;
  readonly #live = new Set<Relay>();
  readonly #sockets = new Set<Socket>();
  #isStalled = false;

  private constructor(server: Server, target: { port: number }) {
    this.#server = server;
    this.#target = target;
    // `address()` of a listening TCP server is never null or a string.
    this.#port = (server.address() as AddressInfo).port;
    server.on("connection", (client) => this.#accept(client));
  }

  /** Starts a proxy in front of the server at this `ws://` URL. */
  static async before(url: string): Promise<FaultProxy> {
    const server = createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return new FaultProxy(server, { port: Number(new URL(url).port) });
  }

  get url(): string {
    return `ws://127.0.0.1:${this.#port}`;
  }

  /** Cuts all open connections. */
  cut(fault: Pick<Fault, "side" | "reset"> = {}): void {
    for (const relay of [...this.#live]) relay.cut(fault);
  }

  /** Silently stops delivery until `resume`. */
  stall(): void {
    this.#isStalled = true;
    for (const relay of this.#live) relay.stall(true);
  }

  resume(): void {
    this.#isStalled = false;
    for (const relay of this.#live) relay.stall(false);
  }

  /** Rejects new connections from now on. */
  async refuse(): Promise<void> {
    const closed = once(this.#server, "close");
    this.#server.close();
    this.cut();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** Accepts connections on the same port again, after `refuse`. */
  async listenAgain(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#server.listening) await this.refuse();
    for (const socket of this.#sockets) socket.destroy();
  }

  #accept(client: Socket): void {
    const server = connect({ port: this.#target.port, host: "127.0.0.1" });
    for (const socket of [client, server]) {
      socket.setNoDelay(true);
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
      socket.on("error", () => undefined);
    }
    const relay = new Relay(client, server, this.faultFor(++this.connections), () => {
      this.cuts++;
    });
    this.#live.add(relay);
    if (this.#isStalled) relay.stall(true);
    client.on("close", () => {
      this.#live.delete(relay);
    });
  }
}

class Relay {
  readonly #client: Socket;
  readonly #server: Socket;
  readonly #fault: Fault;
  readonly #onCut: () => void;
  readonly #passed = { toServer: 0, toClient: 0 };
  #isCut = false;

  constructor(client: Socket, server: Socket, fault: Fault, onCut: () => void) {
    this.#client = client;
    this.#server = server;
    this.#fault = fault;
    this.#onCut = onCut;
    this.#pump(client, server, "toServer");
    this.#pump(server, client, "toClient");
  }

  cut(how: Pick<Fault, "side" | "reset"> = this.#fault): void {
    if (this.#isCut) return;
    this.#isCut = true;
    this.#onCut();
    const end = (socket: Socket) => (how.reset ? resetSocket(socket) : socket.destroy());
    end(this.#client);
    if (how.side === "client") this.#server.resume();
    else end(this.#server);
  }

  stall(isStalled: boolean): void {
    for (const socket of [this.#client, this.#server]) {
      if (isStalled) socket.pause();
      else socket.resume();
    }
  }

  #pump(from: Socket, to: Socket, direction: Direction): void {
    const { delayMs, pieceBytes } = this.#fault;
    from.on("data", (data: Buffer) => {
      if (this.#isCut) return;
      const size = pieceBytes ?? data.length;
      for (let at = 0; at < data.length; at += size) {
        const piece = data.subarray(at, at + size);
        if (delayMs === undefined) this.#deliver(to, piece, direction);
        else setTimeout(() => this.#deliver(to, piece, direction), delayMs);
      }
      if (!this.#isCut && to.writableNeedDrain) {
        from.pause();
        to.once("drain", () => from.resume());
      }
    });
    from.on("end", () => to.end());
    from.on("close", () => {
      if (!this.#isCut) to.destroy();
    });
  }

  #deliver(to: Socket, piece: Buffer, direction: Direction): void {
    if (this.#isCut) return;
    const { cutAfter } = this.#fault;
    const allowed =
      cutAfter?.direction === direction ? cutAfter.bytes - this.#passed[direction] : Number.POSITIVE_INFINITY;
    const part = piece.subarray(0, Math.max(0, allowed));
    this.#passed[direction] += part.length;
    if (part.length < allowed) {
      to.write(part);
      return;
    }
    // Bytes from before the cut must arrive, so the proxy first passes them to the kernel.
    to.write(part, () => this.cut());
    this.#stopAt();
  }

  /** No byte passes between the last byte and the cut. */
  #stopAt(): void {
    this.#client.pause();
    this.#server.pause();
  }
}
