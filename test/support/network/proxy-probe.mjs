// Runs as a process with a network proxy: sends each request to the proxy that its variables name, and prints the
// responses as one line of JSON.
import { connect } from "node:net";

const ports = {
  http: Number(new URL(process.env.HTTP_PROXY ?? "").port),
  socks: Number(new URL(process.env.ALL_PROXY ?? "").port),
};

/** The connection that the last step left open. */
let kept;

/** Resolves at the end of the stream, or as soon as the received bytes match `until`. */
function exchange({ listener, sent, until, keepsOpen }) {
  return new Promise((resolve) => {
    const socket = kept ?? connect({ host: "127.0.0.1", port: ports[listener] });
    kept = undefined;
    let received = "";
    const finish = (suffix) => {
      socket.removeAllListeners();
      if (keepsOpen) kept = socket;
      else socket.destroy();
      resolve(received + suffix);
    };
    socket.setEncoding("latin1");
    socket.on("data", (chunk) => {
      received += chunk;
      if (until !== undefined && new RegExp(until, "s").test(received)) finish("");
    });
    socket.on("end", () => finish(""));
    socket.on("error", (error) => finish(`<${error.code}>`));
    socket.write(Buffer.from(sent, "latin1"));
  });
}

const results = {};
for (const step of JSON.parse(process.argv[2] ?? "[]")) results[step.name] = await exchange(step);
process.stdout.write(`${JSON.stringify(results)}\n`);
