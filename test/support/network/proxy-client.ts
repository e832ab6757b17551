import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** Opens a connection to a proxy on loopback. */
export async function openConnection(port: number): Promise<Socket> {
  const socket = connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  await once(socket, "connect");
  return socket;
}

/** Sends bytes on a new connection and returns everything until the end of the stream. `<CODE>` is an error. */
export async function exchange(
  port: number,
  sent: string | Uint8Array,
  half: "open" | "close" = "open",
): Promise<string> {
  const socket = connect({ host: "127.0.0.1", port, allowHalfOpen: true });
  let received = "";
  socket.setEncoding("latin1");
  socket.on("data", (text) => {
    received += text;
  });
  const ended = Promise.withResolvers<void>();
  socket.on("error", (error: NodeJS.ErrnoException) => {
    received += `<${error.code}>`;
    ended.resolve();
  });
  socket.on("end", () => ended.resolve());
  socket.on("close", () => ended.resolve());
  if (half === "close") socket.end(sent);
  else socket.write(sent);
  await ended.promise;
  socket.destroy();
  return received;
}

/** Returns the bytes of a SOCKS5 handshake that connects to a name. */
export function socksConnect(host: string, port: number, command = 1): Uint8Array {
  const name = Buffer.from(host, "latin1");
  return Buffer.from([5, 1, 0, 5, command, 0, 3, name.length, ...name, port >> 8, port & 255]);
}

/** Splits a response into its status line, headers with lower-case names, and body. */
export function parseResponse(text: string): { status: string; headers: Record<string, string>; body: string } {
  const [head = "", ...rest] = text.split("\r\n\r\n");
  const [status = "", ...lines] = head.split("\r\n");
  const headers = Object.fromEntries(
    lines.map((line) => [line.slice(0, line.indexOf(":")).toLowerCase(), line.slice(line.indexOf(":") + 1).trim()]),
  );
  return { status, headers, body: rest.join("\r\n\r\n") };
}
