import type { Socket } from "node:net";

/** The other socket of each joined socket. Shared listeners find it here: closures per tunnel cost more than the rest of it. */
const peers = new WeakMap<Socket, Socket>();

/** Copies bytes between two sockets with backpressure. The end of one direction leaves the other one open. */
export function joinSockets(client: Socket, target: Socket): void {
  if (client.destroyed) {
    target.destroy();
    return;
  }
  peers.set(client, target);
  peers.set(target, client);
  listen(client);
  listen(target);
  client.resume();
  target.resume();
}

function listen(socket: Socket): void {
  socket.on("data", onData);
  socket.on("drain", onDrain);
  socket.on("end", onEnd);
  socket.on("error", onError);
  socket.on("close", onClose);
}

function onData(this: Socket, chunk: Buffer): void {
  if (peers.get(this)?.write(chunk) === false) this.pause();
}

function onDrain(this: Socket): void {
  peers.get(this)?.resume();
}

function onEnd(this: Socket): void {
  peers.get(this)?.end();
}

function onError(this: Socket): void {
  peers.get(this)?.destroy();
}

/** The close of a socket closes the other one too, after its last bytes unless the close was an abort. */
function onClose(this: Socket): void {
  if (this.readableEnded) peers.get(this)?.destroySoon();
  else peers.get(this)?.destroy();
}
