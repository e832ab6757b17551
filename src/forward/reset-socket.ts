import type { Socket } from "node:net";

/**
 * Resets a TCP socket, after a pending shutdown if there is one. libuv rejects a reset during the shutdown (EINVAL), and Node
 * then never closes the handle: the socket leaks, and the process spins in its cleanup on exit.
 */
export function resetSocket(socket: Socket): void {
  const isShuttingDown = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
  if (isShuttingDown) socket.once("finish", () => socket.resetAndDestroy());
  else socket.resetAndDestroy();
}
