/** The peer of an accepted connection, as far as the server can identify its process. */
export type PeerAddress =
  /** `peerName` is the address and port of the peer: `127.0.0.1:5000`, or `::1:5000`. */
  | { type: "tcp"; peerName: string; localPort: number }
  /** A Unix socket whose file all sandboxes hide, so that no sandboxed process can connect. */
  | { type: "hiddenSocket" }
  /** Any other Unix socket, or a reset connection: nothing identifies the process. */
  | { type: "unknown" };
