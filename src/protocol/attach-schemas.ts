import { signalName, terminalSize, terminateMode } from "./process-schemas.ts";
import { array, boolean, bytes, id, nullable, object, oneOf, optional, string, u64 } from "./schema.ts";

/** The shapes of attaching to a process by its handle, from a session that did not start it. */

/** A viewer only reads; a driver also writes, resizes, signals and ends. */
export const role = oneOf("viewer", "driver");

export const attachParams = object("AttachParams", {
  /** The whole handle, as `process/list` and `process/start` tell it. */
  handle: id,
  role,
  /** What the process is called in this session; default: its handle. */
  processId: optional(id),
  /** Only events with a greater seq are told; default 0: everything retained, then live. */
  afterSeq: optional(u64),
  /** The driver's terminal, which becomes the process's; ignored for viewers and without a terminal. */
  size: optional(terminalSize),
});

export const attachResult = object("AttachResult", {
  processId: id,
  handle: string,
  role,
  argv: array(string),
  cwd: string,
  tty: boolean,
  /** Of its terminal, where it has one. */
  size: optional(terminalSize),
  startedAtMs: u64,
  running: boolean,
  /** The seq of the next event. */
  nextSeq: u64,
});

export const killParams = object("KillParams", {
  handle: id,
  /** Sent to its group. Without it the process is ended by `mode`. */
  signal: optional(signalName),
  /** How it is ended; default: by force. Not together with `signal`. */
  mode: optional(terminateMode),
});

export const roleChangedParams = object("RoleChangedNotification", { processId: id, role, reason: string });
export const driverChangedParams = object("DriverChangedNotification", {
  processId: id,
  handle: string,
  /** Whether another session drives the process now. */
  driver: oneOf("attached", "none"),
});
export const resizedParams = object("ResizedNotification", {
  processId: id,
  size: terminalSize,
  /** Output after this seq was written for this size, up to the next change. */
  afterSeq: u64,
  /** In milliseconds since the process began, as the `times` of `process/read` are. */
  atMs: u64,
});
export const gapParams = object("GapNotification", {
  processId: id,
  fromSeq: u64,
  toSeq: u64,
  /** Null where it was not counted. */
  bytes: nullable(u64),
});

/** What one actor typed within a second, or one write where what was typed is kept. */
export const inputEntry = object("InputEntry", {
  /** In milliseconds since the process began, as the `times` of `process/read` are. */
  fromMs: u64,
  toMs: u64,
  /** The session that started the process, or one that had attached to it. */
  role: oneOf("owner", "driver"),
  /** Tells the sessions of a server apart without naming one; as in its audit log. */
  session: u64,
  /** Whose session it is. */
  principal: string,
  /** The `clientName` of that session's connection. */
  client: string,
  bytes: u64,
  writes: u64,
  /** False when the terminal did not show what was typed, as at a password prompt. */
  echo: boolean,
  /** What was typed: only with `recordInput`, and never without echo. */
  chunk: optional(bytes),
});

export const inputsResult = object("InputsResult", {
  /** The oldest first. */
  inputs: array(inputEntry),
  /** How many older entries are no longer there. */
  omitted: u64,
});

export const claimQueriesParams = object("ClaimQueriesParams", {
  processId: id,
  /** Of the output in which a question ends; none before it is claimed later. */
  seq: u64,
});

export const claimQueriesResult = object("ClaimQueriesResult", {
  /** False: they are answered, and must not be shown to a terminal that answers. */
  granted: boolean,
});

export const treeParams = object("TreeParams", { handle: id });

export const treeEntry = object("TreeEntry", {
  pid: u64,
  parentPid: u64,
  /** As the system shows it now; its name in brackets where there is none. Cut at 4096 bytes. */
  argv: array(string),
  /** `waiting`: for a disk or a file system, and no signal reaches it. `dead`: not yet reaped by its parent. */
  state: oneOf("running", "sleeping", "waiting", "stopped", "dead"),
  /** Of all its threads since it began. */
  cpuMs: u64,
  rssBytes: u64,
});

export const treeResult = object("TreeResult", {
  /** The process itself first, then its descendants, also those whose parents have ended. Empty where the system does not tell. */
  processes: array(treeEntry),
  /** How many more there were. */
  omitted: u64,
});

export const shareParams = object("ShareParams", {
  handle: id,
  role,
  /** At most a week. */
  ttlMs: u64,
});

export const shareResult = object("ShareResult", {
  /** Sent like any other token. Answered only once; whoever has it can use it. */
  token: string,
  expiresAtMs: u64,
});
