/**
 * Follows a long build on a server line by line. If the connection is lost meanwhile, the client reconnects:
 * no line is missing or doubled.
 *
 *   node examples/follow-build-log.mjs ws://127.0.0.1:7070
 */
import { ExecServerClient, lines } from "procwire";

const [url] = process.argv.slice(2);
if (url === undefined) throw new Error("usage: node examples/follow-build-log.mjs URL");

await using client = await ExecServerClient.connectWebSocket({
  url,
  onConnectionState: (state) => {
    if (state.type === "reconnecting") console.error("connection lost, reconnecting");
  },
});

const build = await client.start({
  processId: "build",
  argv: ["/bin/sh", "-c", "for i in $(seq 1 50); do echo compiling part $i; sleep 0.02; done; echo built"],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin" },
  tty: false,
});

for await (const line of lines(build)) console.log(line);
process.exitCode = (await build.wait()).exitCode ?? 1;
