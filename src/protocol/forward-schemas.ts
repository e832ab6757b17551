import { array, boolean, bytes, id, object, optional, string, u16, u64 } from "./schema.ts";

/** The shapes of `forward/*`: TCP streams over the connection, flow-controlled each by itself. */

/** The window of each direction of a stream: large enough for a distant host, small enough for hundreds of streams. */
export const FORWARD_WINDOW_BYTES = 256 * 1024;
/** The largest piece of a stream in one message. */
export const MAX_FORWARD_CHUNK_BYTES = 64 * 1024;

/** The client names a stream it opens; the server names one that a listener accepted. */
const streamId = id;

export const openParams = object("ForwardOpenParams", { streamId, host: string, port: u16 });
export const writeParams = object("ForwardWriteParams", { streamId, chunk: bytes });
export const streamParams = (name: string) => object(name, { streamId });
export const listenParams = object("ForwardListenParams", {
  listenId: id,
  /** Default `127.0.0.1`. */
  host: optional(string),
  /** 0 takes a free one. */
  port: u16,
});
export const listenResult = object("ForwardListenResult", { port: u16 });
export const unlistenParams = object("ForwardUnlistenParams", { listenId: id });
export const watchPortsParams = object("ForwardWatchPortsParams", { watch: boolean });

export const dataParams = object("ForwardDataNotification", { streamId, chunk: bytes });
export const endedParams = object("ForwardEndedNotification", { streamId });
export const closedParams = object("ForwardClosedNotification", {
  streamId,
  /** Why, when it did not end by itself. */
  reason: optional(string),
});
export const acceptedParams = object("ForwardAcceptedNotification", {
  listenId: id,
  streamId,
  /** Who connected, as `127.0.0.1:5000`. */
  peer: string,
});
export const portsParams = object("ForwardPortsNotification", {
  /** All ports that processes of this session listen on now. */
  ports: array(
    object("ForwardedPort", {
      port: u16,
      /** Where it can be reached on the server's machine. */
      host: string,
      /** The process whose tree listens. */
      processId: id,
    }),
  ),
});
export const ackParams = object("ForwardAckNotification", {
  streamId,
  /** How many more bytes have been processed. */
  bytes: u64,
});
