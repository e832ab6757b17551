import { hasStatus } from "../client/session/reconnect-policy.ts";
import { ExecServerError } from "../protocol/exec-server-error.ts";

/** First port of `procwire start`. It serves on another one only while this one is in use. */
const START_PORT = "7070";
const LOOPBACK: ReadonlySet<string> = new Set(["127.0.0.1", "localhost", "[::1]"]);

/**
 * Returns the error of a failed connection with advice for a user of the CLI: how to start a server, or how to send a token.
 * Other errors stay unchanged. The new error has the code of the original, which is its `cause`.
 */
export function withConnectAdvice(error: unknown, url: string): unknown {
  if (!(error instanceof ExecServerError)) return error;
  const message = adviceFor(error, url);
  if (message === null) return error;
  return new ExecServerError(message, error.code, { method: error.method }, { cause: error });
}

function adviceFor(error: ExecServerError, url: string): string | null {
  if (error.code === "ECONNREFUSED" || (error.code === "ENOENT" && isConnectFailure(error)))
    return noServerMessage(url);
  if (error.code === "ENOTFOUND") return `unknown host ${new URL(url).hostname} in ${url}`;
  if (error.code === "REFUSED" && hasStatus(error, 401))
    return `${error.message}; give the token of the server with --token-file PATH or PROCWIRE_TOKEN`;
  return null;
}

/** Returns the message for an address at which no server listens. */
export function noServerMessage(url: string): string {
  if (url.startsWith("unix://"))
    return `no procwire server at ${url.slice("unix://".length)}; start one with "procwire serve --listen ${url}"`;
  const { host, hostname, port, protocol } = new URL(url);
  if (!LOOPBACK.has(hostname) || protocol === "wss:")
    return `no procwire server at ${host}; start one there with "procwire serve --listen ws://IP:PORT"`;
  const start = port === START_PORT ? "start" : `serve --listen ${url.replace("localhost", "127.0.0.1")}`;
  return `no procwire server at ${host}; start one with "procwire ${start}"`;
}

/** Reports whether the socket is missing, rather than a file that the client reads, such as its token. */
function isConnectFailure(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause)
    if ("syscall" in cause) return cause.syscall === "connect";
  return false;
}
