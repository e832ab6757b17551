import type { ProcessLimits } from "../exec/process-limits.ts";

/** What an operator may set. Durations in milliseconds; the command line takes seconds. */
export interface ServerConfig {
  /** Live processes per session; one more is refused. */
  maxProcesses: number;
  /** Live processes of all sessions and connections together; one more is refused. */
  maxServerProcesses: number;
  /** Connections at once; one more is answered with HTTP 503. */
  maxConnections: number;
  /** The largest message taken; a larger one ends its connection. */
  maxMessageBytes: number;
  /** Output kept per process for cursors. */
  retainedOutputBytes: number;
  /** How long a session without a connection lives on; 0 ends its processes at once, as v0 did. */
  detachedSessionTtlMs: number;
  /** Between TERM and KILL when the server stops. */
  shutdownGraceMs: number;
  allowDirectExec: boolean;
  allowPreparedExec: boolean;
  /** What a detached session does when its retention is full: hold its processes back, or forget the oldest output. */
  onDetach: "pause" | "evict";
  /** What every process may use at most; a client can ask for less, not for more. Nothing is limited by default. */
  limits: ProcessLimits;
}

export const DEFAULT_SERVER_CONFIG: ServerConfig = {
  maxProcesses: 4096,
  // Four full sessions, and half of the process ids a system usually has.
  maxServerProcesses: 16_384,
  maxConnections: 4096,
  maxMessageBytes: 64 * 1024 * 1024,
  retainedOutputBytes: 1024 * 1024,
  detachedSessionTtlMs: 30_000,
  shutdownGraceMs: 2_000,
  allowDirectExec: true,
  allowPreparedExec: true,
  onDetach: "pause",
  limits: {},
};

/** A message is one text for the JSON parser, and a text in JavaScript is no longer than this. */
export const LARGEST_MESSAGE_BYTES = 512 * 1024 * 1024 - 24;

/** How long a closed process can still be read before its id is free again; the reference server's number. */
export const CLOSED_PROCESS_KEPT_MS = 30_000;

/**
 * How long a server that ends waits for what its connections still have under way. All processes have ended by then; a
 * file request may hang in the system for ever.
 */
export const CONNECTIONS_CLOSE_WITHIN_MS = 2_000;

/**
 * How long a client that came back has to read what it missed before it may be evicted: clients do so at once, and one
 * that never does must not keep its processes held back.
 */
export const RESUMED_READ_WITHIN_MS = 10_000;

/**
 * How much a client that came back is told before it has read what it missed, and once more until it had the time to take
 * that in. The reference client keeps what comes ahead of its place in a buffer of 256 events and 1 MiB, goes on filling
 * it while the answer is being looked at, and gives the process up when it is full.
 */
export const RESUMED_AHEAD = { bytes: 256 * 1024, events: 100 };
export const RESUMED_SETTLES_WITHIN_MS = 250;

/**
 * Answers that can be large wait while this much is queued for their peer: one that asks and does not read must not make
 * the server grow.
 */
export const MAX_QUEUED_ANSWER_BYTES = 4 * 1024 * 1024;

/**
 * Everything queued for one connection: pongs, errors, answers, output. Above it the peer is not read until it has taken
 * some, and one that takes nothing at all for long is closed. Output alone never comes this far: it stops at 1 MiB, and
 * answers that can be large at 4 MiB and the one that passed it.
 */
export const MAX_QUEUED_BYTES = 8 * 1024 * 1024;

/**
 * Files that are in memory from being read until they are sent: of one connection, and of all together. A larger one goes
 * alone. One connection's share is what a queue may hold; the whole is what all retained output may be.
 */
export const MAX_CONNECTION_FILE_BYTES = 8 * 1024 * 1024;
export const MAX_FILE_BYTES = 256 * 1024 * 1024;

/**
 * Large messages (above 2 MiB) that are coming in at once, over all connections: one of the largest, or several smaller
 * ones. The rest of the others waits in the system, so they are also looked at one after another, with turns between.
 */
export const MAX_MESSAGE_BYTES_COMING = 64 * 1024 * 1024;

/** An answer with more bytes than this is made and sent in parts, so that nobody waits while it is made. */
export const LONG_ANSWER_BYTES = 512 * 1024;

/**
 * Requests of one connection that have been read but not answered, in bytes of text. Above it the connection is not
 * read until some are answered: a peer that only sends must not make the server grow.
 */
export const MAX_UNANSWERED_BYTES = 128 * 1024 * 1024;

/**
 * Connections that have not said what they want, or are being answered, at once; one more and the oldest is dropped. As
 * many as may wait to be taken, so that a burst of clients finds room; each costs a descriptor and up to a head's 16 KiB.
 */
export const MAX_OUTSIDE = 1024;
