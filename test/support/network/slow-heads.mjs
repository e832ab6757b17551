// Runs as a process with a network proxy: opens COUNT connections, sends nothing or one byte per second of a head that never
// ends, and prints `open`. Prints the response to a complete request meanwhile. Prints whether the proxy sent anything before it
// closed the others.
import { once } from "node:events";
import { connect } from "node:net";

const [http, socks] = [process.env.HTTP_PROXY, process.env.ALL_PROXY].map((url) => Number(new URL(url ?? "").port));
const count = Number(process.argv[2]);
const kinds = [
  { port: http, head: "GET http://good.test/slow HTTP/1.1\r\nX-A: ", byte: "a" },
  { port: http, head: "CONNECT good.test:80 HT", byte: "" },
  { port: http, head: "", byte: "" },
  // A greeting that announces 255 methods.
  { port: socks, head: "\x05\xff", byte: "\x02" },
  { port: socks, head: "", byte: "" },
];

const open = (port) => connect({ port, host: "127.0.0.1" }).on("error", () => undefined);
const slow = Array.from({ length: count }, (_, at) => {
  const { port, head, byte } = kinds[at % kinds.length] ?? kinds[0];
  const socket = open(port);
  let received = 0;
  socket.on("data", (chunk) => {
    received += chunk.length;
  });
  if (head !== "") socket.write(head, "latin1");
  return { socket, byte, closed: once(socket, "close").then(() => received) };
});
await Promise.all(slow.map(({ socket }) => once(socket, "connect")));
process.stdout.write("open\n");
const drip = setInterval(() => {
  for (const { socket, byte } of slow) if (byte !== "" && socket.writable) socket.write(byte, "latin1");
}, 1000);

const quick = open(http);
quick.write("GET http://good.test/same HTTP/1.1\r\nConnection: close\r\n\r\n");
quick.pipe(process.stdout, { end: false });

const received = await Promise.all(slow.map(({ closed }) => closed));
clearInterval(drip);
process.stdout.write(received.every((bytes) => bytes === 0) ? "closed without a response\n" : "responded\n");
