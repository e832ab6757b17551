import { sleep, systemClock } from "../../async/clock.ts";
import { errorMessage } from "../../base/error-message.ts";
import { printableText } from "../../base/text/printable-text.ts";
import type { ExecServerClient } from "../../client/exec-server-client.ts";
import type { ForwardedPort } from "../../client/node/port-forward.ts";
import { type ForwardAddress, formatAddress } from "../../forward/forward-address.ts";
import { type Command, UsageError } from "../command.ts";
import type { HelpPage } from "../help/help-page.ts";
import { type ForwardSpec, parseDynamicSpec, parseForwardSpec } from "../options/forward-spec.ts";
import { defineServerCommand, openClient } from "../server-command.ts";
import { startAutoForward } from "../support/auto-forward.ts";
import { forceExit } from "../support/forced-exit.ts";

const HELP: HelpPage = {
  usage: ["[OPTIONS] [SPEC...]"],
  details: `Forwards until interrupted. A SPEC is [BIND:]PORT:HOST:PORT as in ssh; HOST is resolved on the side of the target.
    PORT alone forwards to the same port of localhost. The absolute path of a Unix socket can replace BIND:PORT or HOST:PORT.
    A SPEC without a flag is a local forward.

    A server that ssh:// or docker:// starts on demand allows all forwards, any other server those of its --allow-forward. Open
    streams end when the connection to the server is lost; the ports work again after the reconnect, also with a restarted
    server.`,
  options: {
    Forwarding: [
      ["-L, --local SPEC", "listen on this host and forward to the host of the server; repeatable"],
      ["-R, --reverse SPEC", "listen on the host of the server and forward to this host; repeatable"],
      ["-D, --dynamic [BIND:]PORT", "run a SOCKS5 proxy on this host that connects from the server; repeatable"],
      ["--forward auto", "also forward each port that a process of the session listens on; requires --session"],
    ],
  },
  examples: [
    ["procwire forward 8080", "local port 8080 to port 8080 of the server"],
    ["procwire forward --connect ssh://build-host -L 5432:db.internal:5432 -D 1080", "a database, and a SOCKS5 proxy"],
    ["procwire forward -R 9000:localhost:3000 -L 2375:/run/docker.sock", "a local service there, and a socket here"],
  ],
};

/** Delay before a reverse forward is opened again after a failure. */
const REOPEN_DELAY_MS = 1000;

/** A forward to open: the check of the server's rules, and the function that listens and returns a line for the user. */
interface PlannedForward {
  /** Whether the server listens: the listener ends with its session. */
  isReverse: boolean;
  check(client: ExecServerClient): Promise<void>;
  open(
    client: ExecServerClient,
    onRefused: (message: string) => void,
  ): Promise<{ forward: ForwardedPort; line: string }>;
  /** The forward, once it is open. */
  opened?: ForwardedPort;
}

export const command: Command = defineServerCommand("forward", HELP, {
  options: {
    local: { type: "string", short: "L", multiple: true },
    reverse: { type: "string", short: "R", multiple: true },
    dynamic: { type: "string", short: "D", multiple: true },
    forward: { type: "string" },
  },

  async run(values, positionals) {
    const planned = [
      ...positionals.map((text) => portForward(parseForwardSpec(text, "SPEC"), false)),
      ...(values.local ?? []).map((text) => portForward(parseForwardSpec(text, "-L"), false)),
      ...(values.reverse ?? []).map((text) => portForward(parseForwardSpec(text, "-R"), true)),
      ...(values.dynamic ?? []).map((text) => dynamicForward(parseDynamicSpec(text))),
    ];
    if (planned.length === 0 && values.forward === undefined)
      throw new UsageError("nothing to forward; give a SPEC such as 8080 or 8080:localhost:80, -L, -R or -D");
    const end = Promise.withResolvers<void>();
    // The command may fail, and close the client, before it waits.
    end.promise.catch(() => undefined);
    const reverse = planned.filter(({ isReverse }) => isReverse);
    let onSessionLost = (): void => undefined;
    await using client = await openClient(values, (state) => {
      if (state.type === "reconnecting") logLine("connection lost, reconnecting");
      if (state.type === "sessionLost") {
        logLine(`session lost: ${state.reason}`);
        onSessionLost();
      }
      if (state.type === "disconnected") end.reject(state.error);
    });
    await using _ = await startAutoForward(client, values.forward, "forward");
    await using ports = await openAll(client, planned);
    onSessionLost = reopenAfterLoss(client, reverse, ports);
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => end.resolve());
    await end.promise;
    return forceExit(0);
  },
});

/** Opens all forwards, or none: a forward that the server rejects is reported before the first one listens. */
async function openAll(client: ExecServerClient, planned: readonly PlannedForward[]): Promise<AsyncDisposableStack> {
  for (const { check } of planned) await check(client);
  await using stack = new AsyncDisposableStack();
  for (const forward of planned) await openOne(client, forward, stack);
  return stack.move();
}

async function openOne(client: ExecServerClient, planned: PlannedForward, stack: AsyncDisposableStack): Promise<void> {
  const { forward, line } = await planned.open(client, (message) => logLine(`refused: ${message}`));
  planned.opened = stack.use(forward);
  logLine(line);
}

/** Returns a function that opens the reverse forwards again after a loss of the session. Local forwards need no call. */
function reopenAfterLoss(
  client: ExecServerClient,
  reverse: readonly PlannedForward[],
  stack: AsyncDisposableStack,
): () => void {
  let losses = 0;
  let isReopening = false;
  const reopenAll = async () => {
    for (let handled = 0; handled !== losses; ) {
      handled = losses;
      for (const forward of reverse)
        while (handled === losses && !stack.disposed) {
          try {
            await openOne(client, forward, stack);
            break;
          } catch (error) {
            logLine(`cannot forward: ${errorMessage(error)}`);
          }
          await sleep(systemClock, REOPEN_DELAY_MS);
        }
    }
    isReopening = false;
  };
  return () => {
    losses++;
    // The library would open it again too, but once and without a line for the user.
    for (const { opened } of reverse) void opened?.close();
    if (isReopening || reverse.length === 0) return;
    isReopening = true;
    // Never rejects: every failure is logged.
    void reopenAll();
  };
}

/** A local forward listens on this host, a reverse forward on the host of the server. */
function portForward({ listen, target }: ForwardSpec, isReverse: boolean): PlannedForward {
  return {
    isReverse,
    check: (client) => client.forwards.check(isReverse ? listen : target),
    async open(client, onRefused) {
      const { forwardPort, forwardPortBack } = await import("../../client/node/port-forward.ts");
      const forward = await (isReverse ? forwardPortBack : forwardPort)(client, { ...listen, target, onRefused });
      const [from, to] = [boundAddress(listen, forward), formatAddress(target)];
      const line = isReverse ? `${from} on the server forwards to ${to}` : `${from} forwards to ${to} on the server`;
      return { forward, line };
    },
  };
}

function dynamicForward(listen: ForwardAddress): PlannedForward {
  return {
    isReverse: false,
    check: (client) => client.forwards.check(),
    async open(client, onRefused) {
      const { forwardSocks } = await import("../../client/node/port-forward.ts");
      const forward = await forwardSocks(client, { ...listen, onRefused });
      return { forward, line: `${boundAddress(listen, forward)} is a SOCKS5 proxy that connects from the server` };
    },
  };
}

/** Returns the listening address with its real port. */
function boundAddress(listen: ForwardAddress, { port }: ForwardedPort): string {
  return formatAddress(port === null || "path" in listen ? listen : { ...listen, port });
}

function logLine(text: string): void {
  process.stderr.write(`procwire forward: ${printableText(text)}\n`);
}
