import { lstatSync, statSync, unlinkSync } from "node:fs";
import { createServer, connect as openSocket, type Server, type Socket } from "node:net";
import { dirname } from "node:path";
import { FORWARD_WINDOW_BYTES, MAX_FORWARD_CHUNK_BYTES } from "../protocol/forward-schemas.ts";
import type { ByteStream, ByteStreamEvents } from "./byte-stream.ts";
import { connectSocket } from "./connect-socket.ts";
import { type ForwardAddress, formatAddress } from "./forward-address.ts";
import { resetSocket } from "./reset-socket.ts";

/** A target on the same host or network accepts within this time. */
const CONNECT_TIMEOUT_MS = 10_000;

/** Connects to an address. Rejects with the system's error; `ETIMEDOUT` if the target does not respond. */
export async function connectAddress(address: ForwardAddress, signal: AbortSignal): Promise<ByteStream> {
  const socket = await connectSocket(address, {
    label: formatAddress(address),
    timeoutMs: CONNECT_TIMEOUT_MS,
    signal,
    abortCause: "the requesting connection closed",
  });
  return new TcpStream(socket, "path" in address);
}

/** Listens on an address. `port` of the result is null for a Unix socket. */
export function listenAddress(
  address: ForwardAddress,
  onStream: (stream: ByteStream, peer: string) => void,
): Promise<{ readonly port: number | null; close(): void }> {
  return "path" in address ? listenUnix(address.path, onStream) : listenTcp(address.host, address.port, onStream);
}

/** Listens on a Unix socket that only this user can use. Replaces the socket of a process that has ended. */
async function listenUnix(
  path: string,
  onStream: (stream: ByteStream, peer: string) => void,
): Promise<{ readonly port: null; close(): void }> {
  // libuv reports EACCES for a missing directory.
  statSync(dirname(path));
  await removeDeadSocket(path);
  return new Promise((resolve, reject) => {
    const server = createServer({ allowHalfOpen: true, pauseOnConnect: true });
    server.once("error", reject);
    server.on("connection", (socket) => onStream(new TcpStream(socket, true), ""));
    // `listen` binds a path before it returns, so no other user can connect between bind and chmod.
    const mask = process.umask(0o177);
    try {
      server.listen({ path });
    } finally {
      process.umask(mask);
    }
    server.once("listening", () => {
      server.removeListener("error", reject);
      server.on("error", () => undefined);
      resolve({ port: null, close: () => void server.close() });
    });
  });
}

/** Removes a socket file on which no process listens. Other files stay, and the caller cannot bind the path. */
async function removeDeadSocket(path: string): Promise<void> {
  if (!lstatSync(path, { throwIfNoEntry: false })?.isSocket()) return;
  const code = await new Promise<string | undefined>((resolve) => {
    const probe = openSocket({ path });
    probe
      .once("connect", () => resolve(undefined))
      .once("error", (error: NodeJS.ErrnoException) => resolve(error.code));
    probe.once("connect", () => probe.destroy());
  });
  if (code === "ECONNREFUSED") unlinkSync(path);
}

/** `peer` is the address of the client, for example `127.0.0.1:5000`. Rejects with the system's error. */
function listenTcp(
  host: string,
  port: number,
  onStream: (stream: ByteStream, peer: string) => void,
): Promise<{ readonly port: number; close(): void }> {
  return new Promise((resolve, reject) => {
    const server: Server = createServer({ allowHalfOpen: true, noDelay: true, pauseOnConnect: true });
    server.once("error", reject);
    server.on("connection", (socket) =>
      onStream(new TcpStream(socket, false), `${socket.remoteAddress}:${socket.remotePort}`),
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
  readonly #isUnix: boolean;

  constructor(socket: Socket, isUnix: boolean) {
    this.#socket = socket;
    this.#isUnix = isUnix;
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

  #reset(): void {
    // A Unix socket has no reset, and Node throws.
    if (this.#isUnix) this.#socket.destroy();
    else resetSocket(this.#socket);
  }

  #emit(chunk: Buffer): void {
    this.#unacknowledgedBytes += chunk.length;
    if (this.#unacknowledgedBytes >= FORWARD_WINDOW_BYTES) this.#socket.pause();
    for (let at = 0; at < chunk.length; at += MAX_FORWARD_CHUNK_BYTES)
      this.#events?.data(chunk.subarray(at, at + MAX_FORWARD_CHUNK_BYTES));
  }
}
