import { printableText } from "../../base/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { type Command, UsageError } from "../command.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { startAutoForward } from "../support/auto-forward.ts";
import { forceExit } from "../support/forced-exit.ts";

const HELP = `Usage: procwire forward [OPTIONS] PORT[:HOST:PORT]...

Forward local ports to the host of a server, until interrupted. PORT forwards to the same port there; PORT:HOST:PORT
forwards to HOST as seen from the server. The server must run with --allow-forward. Open streams end when the connection to
the server is lost; the ports work again after the reconnect.

Options:
  -R, --reverse   listen on the server and forward to this host
  --forward auto  also forward each port that a process of the session listens on; requires --session
`;

const NOTES = `
Examples:
  procwire forward 8080                    local port 8080 to port 8080 of the server
  procwire forward 5432:db.internal:5432   local port 5432 to a host that the server reaches
  procwire forward -R 9000:localhost:3000  port 9000 of the server to local port 3000
`;

export interface ForwardSpec {
  port: number;
  target: { host: string; port: number };
}

export const command: Command = defineServerCommand({
  help: HELP,
  notes: NOTES,
  options: { reverse: { type: "boolean", short: "R" }, forward: { type: "string" } },

  async run(values, positionals) {
    const specs = positionals.map(parseForwardSpec);
    if (specs.length === 0 && values.forward === undefined)
      throw new UsageError("no port given; expected PORT or PORT:HOST:PORT");
    await using client = await openClient(values, ({ type }) => {
      if (type === "reconnecting") logLine("connection lost, reconnecting");
    });
    await using _ = await startAutoForward(client, values.forward, "forward");
    await using _ports = await openAll(client, specs, values.reverse === true);
    await new Promise<void>((resolve) => {
      for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
    });
    return forceExit(0);
  },
});

async function openAll(client: ExecServerClient, specs: ForwardSpec[], isReverse: boolean): Promise<AsyncDisposable> {
  const { forwardPort, forwardPortBack } = await import("../../client/node/port-forward.ts");
  const open = isReverse ? forwardPortBack : forwardPort;
  const stack = new AsyncDisposableStack();
  try {
    for (const { port, target } of specs) {
      const onRefused = (message: string) => logLine(`refused: ${message}`);
      const forwarded = stack.use(await open(client, { port, target, onRefused }));
      const [fromNote, toNote] = isReverse ? [" on the server", ""] : ["", " on the server"];
      logLine(`127.0.0.1:${forwarded.port}${fromNote} forwards to ${target.host}:${target.port}${toNote}`);
    }
    return stack;
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

export function parseForwardSpec(text: string): ForwardSpec {
  const [, port, host, targetPort] = /^(\d{1,5})(?::(\[[^\]]+\]|[^:]+):(\d{1,5}))?$/.exec(text) ?? [];
  const [own = 0, target = 0] = [port, targetPort ?? port].map(Number);
  if (port === undefined || own > 65_535 || target < 1 || target > 65_535)
    throw new UsageError(`invalid port \`${text}\`; expected PORT or PORT:HOST:PORT`);
  return { port: own, target: { host: (host ?? "localhost").replace(/^\[|\]$/g, ""), port: target } };
}

function logLine(text: string): void {
  process.stderr.write(`procwire forward: ${printableText(text)}\n`);
}
