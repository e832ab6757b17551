import { listedLabels } from "./process-labels.ts";
import { gapFields, signalName, terminalSize, terminateMode } from "./process-schemas.ts";
import type { Infer } from "./schema.ts";
import { array, boolean, bytes, enumOf, extended, id, nullish, object, optional, string, u64 } from "./schema.ts";

/** Schemas of the methods that access a process by its handle, from a session that did not start it. */

/** A viewer only reads. A driver also writes, resizes, signals and terminates. */
export const role = enumOf("viewer", "driver");

export const attachParams = object("AttachParams", () => ({
  /** The complete handle, as returned by `process/list` and `process/start`. */
  handle: id,
  role,
  /** Id of the process in this session. Default: its handle. */
  processId: nullish(id),
  /** Sends only events with a greater sequence number. Default: 0, all retained events and then live ones. */
  afterSeq: nullish(u64),
  /** Terminal size of the driver, applied to the process. Ignored for viewers and for processes without a terminal. */
  size: nullish(terminalSize),
  /**
   * Returns the rendered screen, and sends only events after it. `afterSeq` then applies only if there is no screen.
   * Default: false.
   */
  screen: nullish(boolean),
}));

const driver = enumOf("attached", "none");

export const screen = object("TerminalScreen", () => ({
  /** The screen includes the output up to this sequence number. */
  seq: u64,
  size: terminalSize,
  /** Zero-based. */
  cursor: object("CursorPosition", () => ({ row: u64, col: u64 })),
  /** Whether the alternate screen is active, as in full-screen programs. */
  alternate: boolean,
  title: string,
  /**
   * Terminal output that draws the screen on a terminal of this size, whatever the state of that terminal: characters,
   * colors, cursor, modes, scroll region and title. Contains no terminal queries.
   */
  data: bytes,
  /** The start of an escape sequence or character that ends in later output. Belongs between `data` and that output. */
  incomplete: bytes,
}));

export const attachResult = object("AttachResult", () => ({
  processId: id,
  handle: string,
  role,
  argv: array(string),
  cwd: string,
  tty: boolean,
  /** Terminal size; absent without a terminal. */
  size: optional(terminalSize),
  startedAtMs: u64,
  running: boolean,
  /** Sequence number of the next event. */
  nextSeq: u64,
  /** Whether another session drives the process: its driver, or its owner while it is connected. */
  driver: optional(driver),
  /** The rendered screen, if requested. Absent without a terminal, for more than 200,000 cells, and after a rendering error. */
  screen: optional(screen),
  /** Name from the start request; absent without one. */
  name: extended(string),
  /** Labels from the start request; absent without labels. */
  labels: extended(listedLabels),
}));

export const killParams = object("KillParams", () => ({
  handle: id,
  /** Signal for the process group. Without it, `mode` applies. */
  signal: nullish(signalName),
  /** How to terminate the process. Default: `force`. Mutually exclusive with `signal`. */
  mode: nullish(terminateMode),
}));

export const roleChangedParams = object("RoleChangedNotification", () => ({ processId: id, role, reason: string }));
export const driverChangedParams = object("DriverChangedNotification", () => ({
  processId: id,
  handle: string,
  /**
   * `attached` if another session drives the process now. `none` if its driver detached, lost its connection or expired.
   * For a viewer, the connected owner counts as a driver.
   */
  driver,
}));
export const resizedParams = object("ResizedNotification", () => ({
  processId: id,
  size: terminalSize,
  /** The size applies to output after this sequence number, up to the next change. */
  afterSeq: u64,
  /** Milliseconds since the start of the process, like `times` of `process/read`. */
  atMs: u64,
}));
export const gapParams = object("GapNotification", () => ({ processId: id, ...gapFields }));

/** Input of one session within one second, or a single write if the process records input. */
export const inputEntry = object("InputEntry", () => ({
  /** Milliseconds since the start of the process, like `times` of `process/read`. */
  fromMs: u64,
  toMs: u64,
  /** `owner` is the session that started the process, `driver` an attached one. */
  role: enumOf("owner", "driver"),
  /** Number of the session within the server, as in its audit log. Not the secret session id. */
  session: u64,
  /** Principal of the session. */
  principal: string,
  /** `clientName` of the session's connection. */
  client: string,
  bytes: u64,
  writes: u64,
  /** False if the terminal did not echo the input, as at a password prompt. */
  echo: boolean,
  /** The input bytes. Present only with `recordInput` and only if they were echoed. */
  chunk: optional(bytes),
}));

export const inputsResult = object("InputsResult", () => ({
  /** Oldest first. */
  inputs: array(inputEntry),
  /** Number of older entries that were evicted. */
  omitted: u64,
}));

export const claimQueriesParams = object("ClaimQueriesParams", () => ({
  processId: id,
  /** Claims all queries that end in output up to this sequence number. Must not decrease. */
  seq: u64,
}));

export const claimQueriesResult = object("ClaimQueriesResult", () => ({
  /** False if the server already replied. The client must then strip the queries before it displays the output. */
  granted: boolean,
}));

export const treeParams = object("TreeParams", () => ({ handle: id }));

export const treeEntry = object("TreeEntry", () => ({
  pid: u64,
  parentPid: u64,
  /** Current command line, or the process name in brackets if it has none. Truncated to 4096 bytes. */
  argv: array(string),
  /** `waiting`: uninterruptible sleep, for example on a disk. `dead`: not yet reaped by its parent. */
  state: enumOf("running", "sleeping", "waiting", "stopped", "dead"),
  /** CPU time of all threads since the start. */
  cpuMs: u64,
  rssBytes: u64,
}));

export const treeResult = object("TreeResult", () => ({
  /** The leader first, then its descendants, including orphans. Empty if the system cannot list processes. */
  processes: array(treeEntry),
  /** Number of further processes that are not listed. */
  omitted: u64,
}));

export const shareEntry = object("ShareEntry", () => ({
  /** Identifies the link for `process/revokeShare`. Not a secret. */
  shareId: string,
  /** Handle of the process. */
  handle: optional(string),
  role,
  createdAtMs: u64,
  expiresAtMs: u64,
  /** Principal that created the link. */
  principal: string,
  /** Number of open connections that use the link. */
  connections: u64,
}));

export const listSharesParams = object("ListSharesParams", () => ({
  /** Absent: the links of all processes that the principal may see. */
  handle: nullish(id),
}));

export const listSharesResult = object("ListSharesResult", () => ({
  /** Links that are neither expired nor revoked, oldest first. */
  shares: array(shareEntry),
}));

export const revokeShareParams = object("RevokeShareParams", () => ({ handle: id, shareId: id }));

export const revokeShareResult = object("RevokeShareResult", () => ({
  /** False if the link was unknown, expired or revoked before. */
  revoked: boolean,
}));

export const shareParams = object("ShareParams", () => ({
  handle: id,
  role,
  /** At most one week. */
  ttlMs: u64,
}));

export const shareResult = object("ShareResult", () => ({
  /** A bearer token: every holder can use it. The server returns it only once. */
  token: string,
  expiresAtMs: u64,
  /** Identifies the link for `process/revokeShare`. Not a secret. */
  shareId: optional(string),
}));

export const accessEntry = object("AccessEntry", () => ({
  /** Identifies the access for `access/revoke`. Not a secret. */
  accessId: string,
  /** An open connection, or a browser that is signed in to the web console. */
  kind: enumOf("connection", "console"),
  principal: string,
  /** Address of the client; empty for a console session. */
  peer: string,
  /** `user-agent` of the browser; empty for a connection. */
  device: string,
  sinceMs: u64,
  /** Time of the last message or HTTP request. */
  lastUsedAtMs: u64,
  /** End of its token or console session. Absent: unlimited. */
  expiresAtMs: optional(u64),
  /** Claim `jti` of its token, for `token/revoke`. */
  tokenId: optional(string),
  /** True for the connection that sends the request. */
  isCurrent: boolean,
}));
export interface AccessEntry extends Infer<typeof accessEntry> {}

export const listAccessesResult = object("ListAccessesResult", () => ({
  /** Oldest first. */
  accesses: array(accessEntry),
}));

export const revokeAccessParams = object("RevokeAccessParams", () => ({ accessId: id }));

export const revokeAccessResult = object("RevokeAccessResult", () => ({
  /** False if the access was unknown or has ended. */
  revoked: boolean,
}));

export const revokeTokenParams = object("RevokeTokenParams", () => ({
  /** Claim `jti` of the token. */
  tokenId: id,
}));

export const revokeTokenResult = object("RevokeTokenResult", () => ({
  /** Number of connections, console sessions and share links that ended. */
  ended: u64,
}));
