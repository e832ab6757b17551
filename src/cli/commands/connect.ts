import { fstatSync } from "node:fs";
import { Socket } from "node:net";
import { hasErrorCode } from "../../base/error-code.ts";
import { errorMessage } from "../../base/error-message.ts";
import { BRIDGE_READY_LINE } from "../../client/node/connect-url.ts";
import { noServerMessage } from "../../host/connect-advice.ts";
import { bridge } from "../../host/stdio-bridge.ts";
import { transferStdio } from "../../host/stdio-transfer.ts";
import { connectUnix, connectUserServer, DEFAULT_IDLE_EXIT_SECONDS } from "../../host/user-server.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { parsePositive } from "../options/parse-number.ts";
import { forceExit } from "../support/forced-exit.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] [unix:///PATH]"],
  details: `The remote side of --connect ssh://, docker:// and exec:. Without a path it uses the per-user server: it starts
    the server on demand, on a socket that only this user can reach. The server keeps running after this command and exits
    when it is idle. Its socket, lock and log are in /tmp/procwire-UID, or in PROCWIRE_RUNTIME_DIR, a directory of this user
    with mode 0700. If another user owns /tmp/procwire-UID, they are in ~/.procwire/run.`,
  options: {
    "Per-user server": [
      ["--idle-exit SECONDS", `idle time after which the server exits (default: ${DEFAULT_IDLE_EXIT_SECONDS})`],
    ],
  },
  notes: "Options of commands that connect to a server: see `procwire help connect`.",
  examples: [
    [
      "procwire run --connect 'exec:ssh build-host procwire connect' -- make test",
      "through any command that reaches the host",
    ],
    ["procwire run --connect 'exec:kubectl exec -i pod -- procwire connect' -- ls", "in a pod"],
    [
      "procwire run --connect \\\n'exec:ssh build-host procwire connect unix:///run/p.sock' -- ls",
      "a server that is not the per-user server",
    ],
  ],
};

export const command: Command = defineCommand("connect", HELP, {
  options: { "idle-exit": { type: "string" } },

  async run(values, [url, ...more]) {
    if (more.length > 0) throw new UsageError("give at most one unix:///PATH");
    if (url !== undefined && !url.startsWith("unix:///"))
      throw new UsageError(`cannot connect to \`${url}\`; expected unix:///PATH`);
    const idleExitSeconds = parsePositive("idle-exit", values["idle-exit"]);
    for (const fd of [0, 1]) checkPipe(fd);
    // The interrupt key at the client's terminal is meant for the remote process.
    for (const signal of ["SIGINT", "SIGQUIT"] as const) process.on(signal, () => undefined);
    const open = () => (url === undefined ? connectUserServer({ idleExitSeconds }) : connectSocket(url));
    let first: Socket | null = await open();
    const transfer = await transferStdio(first);
    const output = new Socket({ fd: 1, readable: false, writable: true });
    // Starts on a new line: a login shell may have printed text before it.
    output.write(`\n${BRIDGE_READY_LINE}\n`);
    if (transfer) {
      await transfer.ended;
      return forceExit(0);
    }
    // A server that does not confirm a transfer has closed the connection.
    if (first.destroyed) first = null;
    // Starts to read, so it is opened only now.
    const input = new Socket({ fd: 0, readable: true, writable: false });
    try {
      const reopen = async () => {
        const opened = first ?? (await open());
        first = null;
        return opened;
      };
      await bridge(input, output, reopen);
    } finally {
      // An open stdin keeps the process alive.
      input.destroy();
      output.destroySoon();
    }
    return forceExit(0);
  },
});

async function connectSocket(url: string): Promise<Socket> {
  try {
    return await connectUnix(url.slice("unix://".length));
  } catch (cause) {
    const isAbsent = hasErrorCode(cause, "ENOENT", "ECONNREFUSED");
    throw new Error(isAbsent ? noServerMessage(url) : `cannot connect to ${url}: ${errorMessage(cause)}`, { cause });
  }
}

/** Stdin and stdout are opened as sockets. Node's own stdout blocks the event loop, and with it the other direction. */
function checkPipe(fd: number): void {
  const found = fstatSync(fd);
  if (!found.isFIFO() && !found.isSocket())
    throw new UsageError("stdin and stdout must be pipes; --connect ssh://HOST runs this command on HOST");
}
