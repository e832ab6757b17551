import { fstatSync } from "node:fs";
import { Socket } from "node:net";
import { errorMessage } from "../../base/error-message.ts";
import { BRIDGE_READY_LINE } from "../../client/node/connect-url.ts";
import { bridge } from "../../host/stdio-bridge.ts";
import { connectUnix, connectUserServer, DEFAULT_IDLE_EXIT_SECONDS } from "../../host/user-server.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import { forceExit } from "../support/forced-exit.ts";

const HELP = `Usage: procwire connect [options] [unix:///PATH]

Bridge stdin and stdout to a server on this host; the remote side of --connect ssh://, docker:// and exec:. Without a path
it uses the per-user server: it starts the server on demand, on a socket that only this user can reach. The server keeps
running after this command and exits when it is idle.

  --idle-exit SECONDS  exit the per-user server after SECONDS without connections and processes
                       (default: ${DEFAULT_IDLE_EXIT_SECONDS})

Socket, lock and log are in /tmp/procwire-UID, or in PROCWIRE_RUNTIME_DIR (a directory of this user with mode 0700).
`;

export const command: Command = defineCommand({
  name: "connect",
  summary: "carry a client on stdin and stdout to your server on this machine",
  help: HELP,
  options: { "idle-exit": { type: "string" } },

  async run(values, [to, ...more]) {
    if (more.length > 0) throw new UsageError("give one path at most");
    if (to !== undefined && !to.startsWith("unix:///"))
      throw new UsageError(`cannot connect to \`${to}\`; expected unix:///PATH`);
    const idleExitSeconds = seconds(values["idle-exit"]);
    const [input, output] = [pipe(0), pipe(1)];
    // The interrupt key at the client's terminal is meant for the remote process.
    for (const signal of ["SIGINT", "SIGQUIT"] as const) process.on(signal, () => undefined);
    const open = () => (to === undefined ? connectUserServer({ idleExitSeconds }) : connectTo(to));
    try {
      let first: Socket | null = await open();
      // Starts on a new line: a login shell may have printed text before it.
      output.write(`\n${BRIDGE_READY_LINE}\n`);
      await bridge(input, output, async () => {
        const opened = first ?? (await open());
        first = null;
        return opened;
      });
    } finally {
      // It is read from the beginning on, and would keep this program.
      input.destroy();
      output.destroySoon();
    }
    return forceExit(0);
  },
});

async function connectTo(url: string): Promise<Socket> {
  try {
    return await connectUnix(url.slice("unix://".length));
  } catch (cause) {
    throw new Error(`cannot connect to ${url}: ${errorMessage(cause)}`, { cause });
  }
}

/** A stream of this program that never blocks it: Node's own stdout would, and keep the other direction waiting. */
function pipe(fd: 0 | 1): Socket {
  const found = fstatSync(fd);
  if (!found.isFIFO() && !found.isSocket())
    throw new UsageError(
      "stdin and stdout must be pipes: this is what --connect ssh://HOST runs on that host",
    );
  return new Socket({ fd, readable: fd === 0, writable: fd === 1 });
}

function seconds(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value) || value <= 0)
    throw new UsageError(`--idle-exit \`${text}\` must be a positive number of seconds`);
  return value;
}
