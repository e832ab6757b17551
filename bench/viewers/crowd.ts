/** `node crowd.ts URL HANDLE N`: N viewers of one process. Says `ready`, and how much they were sent when asked. */
import { once } from "node:events";
import { WebSocket } from "ws";

const [url = "", handle = "", count = "0"] = process.argv.slice(2);
let bytes = 0;

for (let at = 0; at < Number(count); at++) {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  await once(socket, "open");
  const ask = async (id: number, method: string, params: object) => {
    socket.send(JSON.stringify({ id, method, params }));
    await once(socket, "message");
  };
  await ask(1, "initialize", { clientName: "crowd" });
  socket.send('{"method":"initialized"}');
  await ask(2, "process/attach", { handle, role: "viewer" });
  socket.on("message", (data: Buffer) => {
    bytes += data.length;
  });
}
process.on("message", () => process.send?.(bytes));
process.send?.("ready");
