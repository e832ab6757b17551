import { createServer, connect as openSocket, type Server, type Socket } from "node:net";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../protocol/forward-schemas.ts";
import type { ByteStream, ByteStreamEvents } from "./byte-stream.ts";

/** A target on the same host or network accepts within this time. */
const CONNECT_TIMEOUT_MS = 10_000;

/** Rejects with the system's error; `ETIMEDOUT` if the target does not respond. */
export function connectTcp(host: string, port: number, signal: AbortSignal): Promise<ByteStream> {
  return new Promise((resolve, reject) => {
    const socket = openSocket({ host, port, allowHalfOpen: true, noDelay: true });
    const done = (finish: () => void) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      socket.removeListener("error", onError);
      finish();
    };
    const fail = (error: Error) =>
      done(() => {
        socket.on("error", () => undefined);
        socket.destroy();
        reject(error);
      });
    const onError = (error: Error) => fail(error);
    const onAbort = () => fail(new Error(`connect ${host}:${port}: the requesting connection closed`));
    const timer = setTimeout(
      () => fail(Object.assign(new Error(`connect ${host}:${port}: no response`), { code: "ETIMEDOUT" })),
      CONNECT_TIMEOUT_MS,
    );
    socket.once("error", onError);
    socket.once("connect", () => done(() => resolve(new TcpStream(socket))));
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

/** `peer` is the address of the client, for example `127.0.0.1:5000`. Rejects with the system's error. */
export function listenTcp(
  host: string,
  port: number,
  onStream: (stream: ByteStream, peer: string) => void,
): Promise<{ readonly port: number; close(): void }> {
  return new Promise((resolve, reject) => {
    const server: Server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true });
    server.once("error", reject);
    server.on("connection", (socket) =>
      onStream(new TcpStream(socket), `${socket.remoteAddress}:${socket.remotePort}`),
    );
    server.listen({ host, port }, () => {
      server.removeListener("error", reject);
      // A connection that cannot be accepted fails for its peer; the listener continues.
      server.on("error", () => undefined);
      const address = server.address();
      resolve({
        port: typeof address === "object" && address ? address.port : port,
        close: () => void server.close(),
      });
    });
  });
}

class TcpStream implements ByteStream {
  readonly #socket: Socket;
  /** Bytes emitted and not yet acknowledged. */
  #unacknowledgedBytes = 0;
  #events: ByteStreamEvents | null = null;
  #reason: string | null = null;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.pause();
    socket.on("error", (error: Error & { code?: string }) => {
      this.#reason ??= error.code === "ECONNRESET" ? "reset by the other side" : (error.code ?? error.message);
    });
    socket.on("close", () => {
      this.#events?.close(this.#reason);
      this.#events = null;
    });
  }

  open(events: ByteStreamEvents): void {
    if (this.#socket.destroyed) {
      events.close(this.#reason);
      return;
    }
    this.#events = events;
    this.#socket.on("data", (chunk: Buffer) => this.#emit(chunk));
    this.#socket.on("end", () => this.#events?.end());
    this.#socket.resume();
  }

  write(chunk: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.write(chunk, (error) => (error ? reject(error) : resolve()));
    });
  }

  end(): void {
    this.#socket.end();
  }

  acknowledge(bytes: number): void {
    this.#unacknowledgedBytes -= bytes;
    if (this.#unacknowledgedBytes < FORWARD_WINDOW_BYTES) this.#socket.resume();
  }

  close(reason: string | null): void {
    this.#events = null;
    // A reset indicates lost data; an orderly close would claim that all data arrived.
    if (reason !== null) this.#reset();
    else this.#socket.destroySoon();
  }

  /**
   * Resets the socket, after a pending shutdown if there is one. libuv rejects a reset during the shutdown (EINVAL), and Node
   * then never closes the handle: the socket leaks, and the process spins in its cleanup on exit.
   */
  #reset(): void {
    const socket = this.#socket;
    const isShuttingDown = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
    if (isShuttingDown) socket.once("finish", () => socket.resetAndDestroy());
    else socket.resetAndDestroy();
  }

  #emit(chunk: Buffer): void {
    this.#unacknowledgedBytes += chunk.length;
    if (this.#unacknowledgedBytes >= FORWARD_WINDOW_BYTES) this.#socket.pause();
    for (let at = 0; at < chunk.length; at += MAX_FORWARD_CHUNK_BYTES)
      this.#events?.data(chunk.subarray(at, at + MAX_FORWARD_CHUNK_BYTES));
  }
}
