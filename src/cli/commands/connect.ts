import { fstatSync } from "node:fs";
import { Socket } from "node:net";
import { messageOf } from "../../base/error-message.ts";
import { GREETING } from "../../client/node/connect-url.ts";
import { bridge } from "../../host/stdio-bridge.ts";
import { connectOwnServer, connectUnix, DEFAULT_IDLE_EXIT_SECONDS } from "../../host/user-server.ts";
import { type Command, commandOf, UsageError } from "../command.ts";
import { leave } from "../leave.ts";

const HELP = `Usage: procwire connect [options] [unix:///PATH]

The far end of --connect ssh://, docker:// and exec: a bridge from stdin and stdout to a server on this machine. Without
a path that is your own server: it listens on a socket that only you can reach, is started when it does not run, outlives
this program, and ends by itself when nobody has used it for a while.

  --idle-exit SECONDS  when your own server is started: how long it stays without a connection and a live process;
                       default ${DEFAULT_IDLE_EXIT_SECONDS}

Its socket, lock and log are in /tmp/procwire-UID, or in PROCWIRE_RUNTIME_DIR: a directory of yours that nobody else can
use (mode 0700).
`;

export const command: Command = commandOf({
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
    // The interrupt key at the client's terminal is for the program that runs far away.
    for (const signal of ["SIGINT", "SIGQUIT"] as const) process.on(signal, () => undefined);
    const open = () => (to === undefined ? connectOwnServer({ idleExitSeconds }) : connectTo(to));
    try {
      let first: Socket | null = await open();
      // On a line of its own, whatever a login shell has said before.
      output.write(`\n${GREETING}\n`);
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
    return leave(0);
  },
});

async function connectTo(url: string): Promise<Socket> {
  try {
    return await connectUnix(url.slice("unix://".length));
  } catch (cause) {
    throw new Error(`cannot connect to ${url}: ${messageOf(cause)}`, { cause });
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
