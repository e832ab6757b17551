import { printableText } from "../../base/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { type Command, defineCommand, UsageError } from "../command.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  connectTo,
  DEFAULT_URL,
  requireServerUrl,
} from "../options/connect-options.ts";
import { startAutoForward } from "../support/auto-forward.ts";
import { forceExit } from "../support/forced-exit.ts";

const HELP = `Usage: procwire forward [options] PORT[:HOST:PORT]...

Forward local ports to the host of a server, until interrupted. PORT forwards to the same port there; PORT:HOST:PORT forwards
to HOST as seen from the server. The server must run with --allow-forward.

  procwire forward 8080                  127.0.0.1:8080 to port 8080 of the server
  procwire forward 5432:db.internal:5432 to a host that the server reaches
  procwire forward -R 9000:localhost:3000  port 9000 of the server to local port 3000

  -R, --reverse      listen on the server and forward to this host
  --forward auto     also forward each port that a process of the session listens on; requires --session
${CONNECT_HELP}
Without --connect: ${DEFAULT_URL}.
Open streams end when the connection to the server is lost; the ports work again after the reconnect.
`;

export interface ForwardSpec {
  port: number;
  target: { host: string; port: number };
}

export const command: Command = defineCommand({
  name: "forward",
  summary: "forward ports to or from the host of a server",
  help: HELP,
  options: {
    ...CONNECT_OPTIONS,
    reverse: { type: "boolean", short: "R" },
    forward: { type: "string" },
  },

  async run(values, words) {
    const specs = words.map(forwardSpec);
    if (specs.length === 0 && values.forward === undefined)
      throw new UsageError("no port given; such as 8080 or 5432:db.internal:5432");
    await using client = await connectTo(requireServerUrl(values.connect), values, ({ type }) => {
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

async function openAll(
  client: ExecServerClient,
  specs: ForwardSpec[],
  isReverse: boolean,
): Promise<AsyncDisposable> {
  const { forwardPort, forwardPortBack } = await import("../../client/node/port-forward.ts");
  const open = isReverse ? forwardPortBack : forwardPort;
  const stack = new AsyncDisposableStack();
  try {
    for (const { port, target } of specs) {
      const onRefused = (message: string) => logLine(`refused: ${message}`);
      const forwarded = stack.use(await open(client, { port, target, onRefused }));
      const [here, there] = isReverse ? [" at the server", ""] : ["", " at the server"];
      logLine(`127.0.0.1:${forwarded.port}${here} leads to ${target.host}:${target.port}${there}`);
    }
    return stack;
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

export function forwardSpec(text: string): ForwardSpec {
  const [, port, host, there] = /^(\d{1,5})(?::(\[[^\]]+\]|[^:]+):(\d{1,5}))?$/.exec(text) ?? [];
  const numbers = [port, there ?? port].map(Number);
  const [own = 0, target = 0] = numbers;
  if (port === undefined || own > 65_535 || target < 1 || target > 65_535)
    throw new UsageError(`\`${text}\` is not a port to forward; expected PORT or PORT:HOST:PORT`);
  return { port: own, target: { host: (host ?? "localhost").replace(/^\[|\]$/g, ""), port: target } };
}

function logLine(text: string): void {
  process.stderr.write(`procwire forward: ${printableText(text)}\n`);
}
