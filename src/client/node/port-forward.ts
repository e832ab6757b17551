import { errorMessage } from "../../base/error-message.ts";
import { type ByteStream, joinStreams } from "../../forward/byte-stream.ts";
import { connectTcp, listenTcp } from "../../forward/tcp-streams.ts";
import type { ExecServerClient } from "../exec-server-client.ts";
import type { ForwardedPorts } from "../network/remote-forwards.ts";

export interface ForwardedPort extends AsyncDisposable {
  /** The listening port. */
  readonly port: number;
  close(): Promise<void>;
}

export interface ForwardPortOptions {
  /** Listening port; 0 selects a free one. */
  port: number;
  /** Default `127.0.0.1`. */
  host?: string | undefined;
  /** Destination of the connections. */
  target: { host: string; port: number };
  /** Called if a connection to the target failed; the accepted connection is closed. */
  onRefused?: ((message: string) => void) | undefined;
}

/**
 * Forwards a local port: a connection to `port` goes to `target`, resolved on the server's host. Forwarding continues after
 * a reconnect; open connections are reset.
 *
 * @example
 * await using web = await forwardPort(client, { port: 8080, target: { host: "localhost", port: 80 } });
 */
export async function forwardPort(
  client: ExecServerClient,
  { port, host = "127.0.0.1", target, onRefused }: ForwardPortOptions,
): Promise<ForwardedPort> {
  const listener = await listenTcp(host, port, (accepted) => {
    joinWhenOpen(accepted, client.forwards.open(target.host, target.port), onRefused);
  });
  const close = async () => listener.close();
  return { port: listener.port, close, [Symbol.asyncDispose]: close };
}

/**
 * Forwards a port of the server's host: a connection to `port` there goes to `target`, resolved on the local host.
 *
 * @example
 * await using api = await forwardPortBack(client, { port: 9000, target: { host: "localhost", port: 3000 } });
 */
export async function forwardPortBack(
  client: ExecServerClient,
  { port, host = "127.0.0.1", target, onRefused }: ForwardPortOptions,
): Promise<ForwardedPort> {
  const never = new AbortController().signal;
  const listener = await client.forwards.listen(host, port, (accepted) => {
    joinWhenOpen(accepted, connectTcp(target.host, target.port, never), onRefused);
  });
  const close = () => listener.close();
  return { port: listener.port, close, [Symbol.asyncDispose]: close };
}

/** Joins an accepted connection with the one to the target, or closes it if that fails. */
function joinWhenOpen(
  accepted: ByteStream,
  opening: Promise<ByteStream>,
  onRefused: ForwardPortOptions["onRefused"],
): void {
  opening.then(
    (opened) => joinStreams(accepted, opened),
    (error: unknown) => {
      accepted.close("refused");
      onRefused?.(errorMessage(error));
    },
  );
}

export interface AutoForwardEvents {
  opened(port: number): void;
  /** For example, the local port is in use. */
  failed(port: number, message: string): void;
  closed(port: number): void;
}

/** Forwards every port that a process of this session listens on, under the same number. */
export async function forwardPortsAutomatically(
  client: ExecServerClient,
  events: AutoForwardEvents,
): Promise<AsyncDisposable> {
  /** Null if forwarding failed: it is not retried until the port was closed. */
  const forwards = new Map<number, ForwardedPort | null>();
  let isClosed = false;
  let pending: Promise<void> = Promise.resolve();
  const update = async (ports: ForwardedPorts): Promise<void> => {
    const listening = new Map(isClosed ? [] : ports.map(({ port, host }) => [port, host]));
    for (const [port, forwarded] of forwards) {
      if (listening.has(port)) continue;
      forwards.delete(port);
      await forwarded?.close();
      if (forwarded && !isClosed) events.closed(port);
    }
    for (const [port, host] of listening) {
      if (forwards.has(port)) continue;
      try {
        forwards.set(port, await forwardPort(client, { port, target: { host, port } }));
        events.opened(port);
      } catch (error) {
        forwards.set(port, null);
        events.failed(port, errorMessage(error));
      }
    }
  };
  const enqueue = (ports: ForwardedPorts) => {
    pending = pending.then(() => update(ports));
    return pending;
  };
  await client.forwards.watchPorts((ports) => void enqueue(ports));
  return {
    [Symbol.asyncDispose]: async () => {
      isClosed = true;
      await enqueue([]);
    },
  };
}
