import { signalName, terminalSize, terminateMode } from "./process-schemas.ts";
import { array, boolean, id, nullable, object, oneOf, optional, string, u64 } from "./schema.ts";

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
export const gapParams = object("GapNotification", {
  processId: id,
  fromSeq: u64,
  toSeq: u64,
  /** Null where nobody has counted. */
  bytes: nullable(u64),
});
