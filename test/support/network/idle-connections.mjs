// Runs as a process with a network proxy: at a line of stdin opens COUNT tunnels to HOST:PORT, prints `open`, and keeps
// them open until the next line. Then it closes them and prints `closed`.
import { once } from "node:events";
import { connect } from "node:net";
import { createInterface } from "node:readline";

const [count, target] = process.argv.slice(2);
const { port } = new URL(process.env.HTTP_PROXY ?? "");

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function open() {
  const socket = connect({ host: "127.0.0.1", port: Number(port) });
  socket.write(`CONNECT ${target} HTTP/1.1\r\n\r\n`);
  await once(socket, "data");
  return socket;
}

while (!(await lines.next()).done) {
  const sockets = await Promise.all(Array.from({ length: Number(count) }, open));
  process.stdout.write("open\n");
  await lines.next();
  for (const socket of sockets) socket.destroy();
  process.stdout.write("closed\n");
}
