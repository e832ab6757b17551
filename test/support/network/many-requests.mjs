// Runs as a process with a network proxy. Reads lines `COUNT URL`, sends COUNT requests at once on separate connections, and
// prints `done` with the number of responses per status. Requests that wait do not delay the next line.
import { connect } from "node:net";
import { createInterface } from "node:readline";

const { port } = new URL(process.env.HTTP_PROXY ?? "");

function send(url) {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port: Number(port) });
    let received = "";
    socket.setEncoding("latin1");
    socket.on("data", (chunk) => {
      received += chunk;
    });
    socket.on("error", (error) => resolve(error.code));
    socket.on("end", () => resolve(/^HTTP\/1\.1 (\d+)/.exec(received)?.[1] ?? "none"));
    socket.write(`GET ${url} HTTP/1.1\r\nConnection: close\r\n\r\n`);
  });
}

createInterface({ input: process.stdin }).on("line", async (line) => {
  const [count, url] = line.split(" ");
  const found = {};
  for (const result of await Promise.all(Array.from({ length: Number(count) }, () => send(url))))
    found[result] = (found[result] ?? 0) + 1;
  process.stdout.write(`done ${JSON.stringify(found)}\n`);
});
