import { connect, type NetConnectOpts, type Socket } from "node:net";

export interface ConnectSocketOptions {
  /** Destination in error messages. */
  label: string;
  timeoutMs: number;
  signal: AbortSignal;
  /** Cause in the error message after an abort. */
  abortCause: string;
}

/** Connects a socket. Rejects with the system's error; `ETIMEDOUT` if the destination does not respond. */
export function connectSocket(
  address: NetConnectOpts,
  { label, timeoutMs, signal, abortCause }: ConnectSocketOptions,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ ...address, allowHalfOpen: true, noDelay: true });
    const finish = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
      socket.removeListener("error", fail);
    };
    const fail = failWith(socket, finish, reject);
    const onAbort = () => fail(new Error(`connect ${label}: ${abortCause}`));
    const onTimeout = () => fail(Object.assign(new Error(`connect ${label}: no response`), { code: "ETIMEDOUT" }));
    const timer = setTimeout(onTimeout, timeoutMs);
    timer.unref();
    socket.once("error", fail);
    socket.once("connect", () => {
      finish();
      resolve(socket);
    });
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
  });
}

/** Destroys a socket and ignores its later errors. */
export function discardSocket(socket: Socket): void {
  socket.on("error", () => undefined);
  socket.destroy();
}

/** Returns a listener that ends an attempt: it calls `finish`, discards the socket and rejects. */
export function failWith(socket: Socket, finish: () => void, reject: (error: Error) => void): (error: Error) => void {
  return (error) => {
    finish();
    discardSocket(socket);
    reject(error);
  };
}
