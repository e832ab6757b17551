import type { Socket } from "node:net";

/** Copies bytes between two sockets with backpressure. The end of one direction leaves the other one open. */
export function joinSockets(client: Socket, target: Socket): void {
  if (client.destroyed) {
    target.destroy();
    return;
  }
  joinDirection(client, target);
  joinDirection(target, client);
  client.pipe(target);
  target.pipe(client);
}

/** The close of a socket closes the other one too, after its last bytes unless the close was an abort. */
function joinDirection(source: Socket, destination: Socket): void {
  source.on("error", () => destination.destroy());
  source.on("close", () => {
    if (source.readableEnded) destination.destroySoon();
    else destination.destroy();
  });
}
