import { messageOf } from "../../base/error-message.ts";
import { joinStreams } from "../../forward/byte-stream.ts";
import { connectTcp, listenTcp } from "../../forward/tcp-streams.ts";
import type { ExecServerClient } from "../exec-server-client.ts";
import type { ForwardedPorts } from "../network/remote-forwards.ts";

export interface ForwardedPort extends AsyncDisposable {
  /** Where it listens. */
  readonly port: number;
  close(): Promise<void>;
}

export interface ForwardPortOptions {
  /** Where to listen; 0 takes a free port. */
  port: number;
  /** Default `127.0.0.1`. */
  host?: string | undefined;
  /** Where connections are led to. */
  target: { host: string; port: number };
  /** A connection that could not be led there; it is closed. */
  onRefused?: ((message: string) => void) | undefined;
}

/**
 * Offers a port of the server's machine here: a connection to `port` is led to `target` as the server sees it. Goes on
 * after a lost connection; those that were open are reset.
 *
 * @example
 * await using web = await forwardPort(client, { port: 8080, target: { host: "localhost", port: 80 } });
 */
export async function forwardPort(
  client: ExecServerClient,
  { port, host = "127.0.0.1", target, onRefused }: ForwardPortOptions,
): Promise<ForwardedPort> {
  const listener = await listenTcp(host, port, (near) => {
    client.forwards.open(target.host, target.port).then(
      (far) => joinStreams(near, far),
      (error: unknown) => {
        near.close("refused");
        onRefused?.(messageOf(error));
      },
    );
  });
  const close = async () => listener.close();
  return { port: listener.port, close, [Symbol.asyncDispose]: close };
}

/**
 * Offers a port of this machine at the server's: a connection to `port` there is led to `target` as this machine sees it.
 *
 * @example
 * await using api = await forwardPortBack(client, { port: 9000, target: { host: "localhost", port: 3000 } });
 */
export async function forwardPortBack(
  client: ExecServerClient,
  { port, host = "127.0.0.1", target, onRefused }: ForwardPortOptions,
): Promise<ForwardedPort> {
  const never = new AbortController().signal;
  const listener = await client.forwards.listen(host, port, (far) => {
    connectTcp(target.host, target.port, never).then(
      (near) => joinStreams(far, near),
      (error: unknown) => {
        far.close("refused");
        onRefused?.(messageOf(error));
      },
    );
  });
  const close = () => listener.close();
  return { port: listener.port, close, [Symbol.asyncDispose]: close };
}

export interface AutoForwardEvents {
  opened(port: number): void;
  /** This machine has something on that port already, or another reason. */
  failed(port: number, message: string): void;
  closed(port: number): void;
}

/** Offers here, under the same number, every port that a process of this session begins to listen on. */
export async function forwardPortsAutomatically(
  client: ExecServerClient,
  events: AutoForwardEvents,
): Promise<AsyncDisposable> {
  /** Null while it could not be offered: it is not tried again until it has been closed. */
  const offered = new Map<number, ForwardedPort | null>();
  let isOver = false;
  let turn: Promise<void> = Promise.resolve();
  const follow = async (ports: ForwardedPorts): Promise<void> => {
    const wanted = new Map(isOver ? [] : ports.map(({ port, host }) => [port, host]));
    for (const [port, forwarded] of offered) {
      if (wanted.has(port)) continue;
      offered.delete(port);
      await forwarded?.close();
      if (forwarded && !isOver) events.closed(port);
    }
    for (const [port, host] of wanted) {
      if (offered.has(port)) continue;
      try {
        offered.set(port, await forwardPort(client, { port, target: { host, port } }));
        events.opened(port);
      } catch (error) {
        offered.set(port, null);
        events.failed(port, messageOf(error));
      }
    }
  };
  const inTurn = (ports: ForwardedPorts) => {
    turn = turn.then(() => follow(ports));
    return turn;
  };
  await client.forwards.watchPorts((ports) => void inTurn(ports));
  return {
    [Symbol.asyncDispose]: async () => {
      isOver = true;
      await inTurn([]);
    },
  };
}
