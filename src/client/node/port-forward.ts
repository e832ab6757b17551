import { errorMessage } from "../../base/error-message.ts";
import { checkArgument, checkOptions, type OptionKind } from "../../exec/options/option-schema.ts";
import { type ByteStream, joinStreams } from "../../forward/byte-stream.ts";
import type { ForwardAddress } from "../../forward/forward-address.ts";
import { connectAddress, listenAddress } from "../../forward/tcp-streams.ts";
import { ExecServerError } from "../../protocol/exec-server-error.ts";
import { CONSOLE_FORWARD_HOST } from "../../protocol/forward-schemas.ts";
import { clientKind, portKind } from "../client-options.ts";
import type { ExecServerClient } from "../exec-server-client.ts";
import type { ForwardedPorts } from "../network/remote-forwards.ts";
import { forwardOptions, forwardSocksOptions } from "./node-options.ts";

export interface ForwardedPort extends AsyncDisposable {
  /** The listening port; null for a Unix socket. */
  readonly port: number | null;
  close(): Promise<void>;
}

export interface ForwardPortOptions {
  /** Listening port; 0 selects a free one. Required without `path`. */
  port?: number | undefined;
  /** Default `127.0.0.1`. */
  host?: string | undefined;
  /** Unix socket to listen on instead of a port. Only this user can connect to it. */
  path?: string | undefined;
  /** Destination of the connections: a TCP address or a Unix socket. */
  target: ForwardAddress;
  /** Called if a connection to the target failed, which closes the accepted connection, or if a forward back ended. */
  onRefused?: ((message: string) => void) | undefined;
}

/** Options of a forward without a fixed target. */
export type ForwardSocksOptions = Omit<ForwardPortOptions, "target">;

/**
 * Forwards a local port: a connection to `port` goes to `target`, resolved on the server's host. Forwarding continues after
 * a reconnect; open connections are reset.
 *
 * @example
 * await using web = await forwardPort(client, { port: 8080, target: { host: "localhost", port: 80 } });
 */
export function forwardPort(
  client: ExecServerClient,
  options: ForwardPortOptions & { port: number },
): Promise<ForwardedPort & { port: number }>;
export function forwardPort(client: ExecServerClient, options: ForwardPortOptions): Promise<ForwardedPort>;
export async function forwardPort(client: ExecServerClient, options: ForwardPortOptions): Promise<ForwardedPort> {
  const address = checkForward("forwardPort", client, options, forwardOptions);
  const { target, onRefused } = options;
  const onStream = (accepted: ByteStream) => joinWhenOpen(accepted, client.forwards.openAddress(target), onRefused);
  return toForwardedPort(await listenAddress(address, onStream));
}

/**
 * Forwards a port of the server's host: a connection to `port` there goes to `target`, resolved on the local host. After a
 * loss of the session the forward continues in a new session, on the same port.
 *
 * @example
 * await using api = await forwardPortBack(client, { port: 9000, target: { host: "localhost", port: 3000 } });
 */
export function forwardPortBack(
  client: ExecServerClient,
  options: ForwardPortOptions & { port: number },
): Promise<ForwardedPort & { port: number }>;
export function forwardPortBack(client: ExecServerClient, options: ForwardPortOptions): Promise<ForwardedPort>;
export async function forwardPortBack(client: ExecServerClient, options: ForwardPortOptions): Promise<ForwardedPort> {
  const address = checkForward("forwardPortBack", client, options, forwardOptions);
  const { target, onRefused } = options;
  const never = new AbortController().signal;
  const listening = client.forwards.listenAddress(
    address,
    (accepted) => joinWhenOpen(accepted, connectAddress(target, never), onRefused),
    (error) => onRefused?.(`cannot listen again after a loss of the session: ${errorMessage(error)}`),
  );
  return toForwardedPort(await listening);
}

/**
 * Runs a SOCKS5 proxy on a local port. Its clients connect from the server's host, which resolves host names. Only CONNECT is
 * supported, without authentication.
 *
 * @example
 * await using proxy = await forwardSocks(client, { port: 1080 });
 */
export function forwardSocks(
  client: ExecServerClient,
  options: ForwardSocksOptions & { port: number },
): Promise<ForwardedPort & { port: number }>;
export function forwardSocks(client: ExecServerClient, options: ForwardSocksOptions): Promise<ForwardedPort>;
export async function forwardSocks(client: ExecServerClient, options: ForwardSocksOptions): Promise<ForwardedPort> {
  const address = checkForward("forwardSocks", client, options, forwardSocksOptions);
  const { onRefused } = options;
  const { SocksProxy } = await import("../../forward/socks-proxy.ts");
  const proxy = new SocksProxy({ connect: (host, port) => client.forwards.open(host, port), onRefused });
  return toForwardedPort(await listenAddress(address, (accepted) => proxy.accept(accepted)));
}

/** Returns the listening address. Throws an `EINVAL` error for invalid arguments, without a port and a path, or with both. */
function checkForward(name: string, client: unknown, options: ForwardSocksOptions, kind: OptionKind): ForwardAddress {
  checkArgument(name, "client", client, clientKind);
  checkOptions(name, options, kind);
  const { port, host = "127.0.0.1", path } = options;
  if (path === undefined) {
    checkArgument(name, "port", port, portKind);
    return { host, port: port ?? 0 };
  }
  if (port === undefined) return { path };
  throw new ExecServerError(`${name}: \`port\` and \`path\` are mutually exclusive`, "EINVAL");
}

function toForwardedPort(listener: { port: number | null; close(): void | Promise<void> }): ForwardedPort {
  const close = async () => listener.close();
  return { port: listener.port, close, [Symbol.asyncDispose]: close };
}

/** Forwards a port of `127.0.0.1` to the web console of a server that listens on a Unix socket. */
export function forwardConsole(
  client: ExecServerClient,
  { port, onRefused }: { port: number; onRefused?: ForwardPortOptions["onRefused"] },
): Promise<ForwardedPort> {
  return forwardPort(client, { port, target: { host: CONSOLE_FORWARD_HOST, port: 0 }, onRefused });
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
