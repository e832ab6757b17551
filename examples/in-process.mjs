/**
 * A server and its client in one program, without a socket and without JSON: for tests, and for programs that need the
 * sessions and limits of a server for their own processes.
 *
 *   node examples/in-process.mjs
 */
import { communicate, createLocalHost, ExecServer, ExecServerClient } from "procwire";

await using server = new ExecServer(createLocalHost(), { maxProcesses: 2 });
await using client = await ExecServerClient.connectInProcess(server);

const sort = await client.start({
  processId: "sort",
  argv: ["sort"],
  cwd: "/",
  env: { PATH: "/usr/bin:/bin", LC_ALL: "C" },
  tty: false,
  pipeStdin: true,
});
const { stdout } = await communicate(sort, "pear\napple\nfig\n");
console.log(stdout.trim().split("\n").join(" < "));
