/**
 * `node many-viewers.ts URL HANDLE N`: N connections that become viewers of one process on the command `attach`, and
 * detach on the command `detach`. The response to each command is the number of bytes received so far.
 */
import { once } from "node:events";
import { WebSocket } from "ws";

const [url = "", handle = "", count = "0"] = process.argv.slice(2);
let bytes = 0;

class Viewer {
  readonly #socket: WebSocket;
  #id = 0;
  #onResponse: () => void = () => undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on("message", (data: Buffer) => {
      bytes += data.length;
      // The messages are not parsed.
      if (data.includes(`{"id":${this.#id},`, 0)) this.#onResponse();
    });
  }

  static async open(): Promise<Viewer> {
    const socket = new WebSocket(url, { perMessageDeflate: false });
    await once(socket, "open");
    const viewer = new Viewer(socket);
    await viewer.call("initialize", { clientName: "viewers" });
    socket.send('{"method":"initialized"}');
    return viewer;
  }

  call(method: string, params: object): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onResponse = resolve;
    this.#socket.send(JSON.stringify({ id: ++this.#id, method, params }));
    return promise;
  }
}

const viewers: Viewer[] = [];
for (let at = 0; at < Number(count); at++) viewers.push(await Viewer.open());

async function runCommand(command: unknown): Promise<void> {
  for (const viewer of viewers) {
    if (command === "attach") await viewer.call("process/attach", { handle, role: "viewer" });
    if (command === "detach") await viewer.call("process/detach", { processId: handle });
  }
  process.send?.(bytes);
}
process.on("message", (command) => void runCommand(command));
process.send?.(0);
