import { array, boolean, bytes, id, nullish, object, optional, string, u16, u64 } from "./schema.ts";

/** Schemas of `forward/*`: TCP streams over the connection, each with its own flow control. */

/** Host name of `forward/open` that means the server's own console. Its port is 0, which never names a target. */
export const CONSOLE_FORWARD_HOST = "procwire-console";
/** Window of each direction of a stream. Large enough for a remote host, small enough for hundreds of streams. */
export const FORWARD_WINDOW_BYTES = 256 * 1024;
/** Maximum bytes of a stream in one message. */
export const MAX_FORWARD_CHUNK_BYTES = 64 * 1024;

/** The client chooses the id of a stream that it opens, the server that of an accepted stream. */
const streamId = id;

export const openParams = object("ForwardOpenParams", () => ({
  streamId,
  /** Host of a TCP target; requires `port`. */
  host: nullish(string),
  port: nullish(u16),
  /** Unix socket on the server's host, instead of `host` and `port`. */
  path: nullish(string),
  /** Only checks whether the server allows the target, or any target if there is none; opens no stream. */
  check: nullish(boolean),
}));
export const writeParams = object("ForwardWriteParams", () => ({ streamId, chunk: bytes }));
export const streamParams = (name: string) => object(name, () => ({ streamId }));
export const listenParams = object("ForwardListenParams", () => ({
  listenId: id,
  /** Default: `127.0.0.1`. */
  host: nullish(string),
  /** 0 selects a free port. */
  port: nullish(u16),
  /** Unix socket on the server's host, instead of `host` and `port`. Only the user of the server can connect to it. */
  path: nullish(string),
}));
export const listenResult = object("ForwardListenResult", () => ({
  /** The listening port; absent for a Unix socket. */
  port: optional(u16),
}));
export const unlistenParams = object("ForwardUnlistenParams", () => ({ listenId: id }));
export const watchPortsParams = object("ForwardWatchPortsParams", () => ({ watch: boolean }));

export const dataParams = object("ForwardDataNotification", () => ({ streamId, chunk: bytes }));
export const endedParams = object("ForwardEndedNotification", () => ({ streamId }));
export const closedParams = object("ForwardClosedNotification", () => ({
  streamId,
  /** The error that closed the stream; absent after a normal end. */
  reason: optional(string),
}));
export const acceptedParams = object("ForwardAcceptedNotification", () => ({
  listenId: id,
  streamId,
  /** Address of the peer, for example `127.0.0.1:5000`. */
  peer: string,
}));
export const portsParams = object("ForwardPortsNotification", () => ({
  /** All current listening ports of this session's processes. */
  ports: array(
    object("ForwardedPort", () => ({
      port: u16,
      /** Address on the server's host. */
      host: string,
      /** The process whose tree owns the port. */
      processId: id,
    })),
  ),
}));
export const ackParams = object("ForwardAckNotification", () => ({
  streamId,
  /** Bytes processed since the previous acknowledgement. */
  bytes: u64,
}));
