import { visibleText } from "../../base/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import { type Command, commandOf, UsageError } from "../command.ts";
import { leave } from "../leave.ts";
import {
  CONNECT_HELP,
  CONNECT_OPTIONS,
  connectTo,
  DEFAULT_URL,
  neededServerUrl,
} from "../options/connect-options.ts";
import { automaticForwards } from "../support/auto-forward.ts";

const HELP = `Usage: procwire forward [options] PORT[:HOST:PORT]...

Offers ports of a server's machine here, until interrupted. PORT alone is the same port there; PORT:HOST:PORT leads to HOST
as the server sees it. The server must be started with --allow-forward.

  procwire forward 8080                  its port 8080, here at 127.0.0.1:8080
  procwire forward 5432:db.internal:5432 what only it can reach
  procwire forward -R 9000:localhost:3000  the other way: its port 9000 leads to port 3000 here

  -R, --reverse      listen at the server, and lead to this machine
  --forward auto     also each port that a process of this session begins to listen on; needs --session to name one
${CONNECT_HELP}
Without --connect: ${DEFAULT_URL}.
Connections that are open end when the connection to the server is lost; the ports stay and go on when it is back.
`;

export interface ForwardSpec {
  port: number;
  target: { host: string; port: number };
}

export const command: Command = commandOf({
  name: "forward",
  summary: "offer ports of a server's machine here, or the other way round",
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
    await using client = await connectTo(neededServerUrl(values.connect), values, ({ type }) => {
      if (type === "reconnecting") say("connection lost, reconnecting");
    });
    await using _ = await automaticForwards(client, values.forward, "forward");
    await using _ports = await openAll(client, specs, values.reverse === true);
    await new Promise<void>((resolve) => {
      for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
    });
    return leave(0);
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
      const onRefused = (message: string) => say(`refused: ${message}`);
      const forwarded = stack.use(await open(client, { port, target, onRefused }));
      const [here, there] = isReverse ? [" at the server", ""] : ["", " at the server"];
      say(`127.0.0.1:${forwarded.port}${here} leads to ${target.host}:${target.port}${there}`);
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

function say(text: string): void {
  process.stderr.write(`procwire forward: ${visibleText(text)}\n`);
}
