import type { ProcessLimits } from "../exec/backend/process-limits.ts";

/** What an operator may set. Durations in milliseconds; the command line takes seconds. */
export interface ServerConfig {
  /** Live processes per session; one more is refused. */
  maxProcesses: number;
  /** Live processes of all sessions and connections together; one more is refused. */
  maxServerProcesses: number;
  /** Connections at once; one more is answered with HTTP 503. */
  maxConnections: number;
  /** What all connections together may have under way at once; one more is refused. */
  caps: ServerCaps;
  /** Everything kept in memory for all peers together; see `MEMORY_SHARES`. */
  memoryBudgetBytes: number;
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
  /** Where clients may connect to and listen by `forward/*`: null nowhere, else `loopback` and `HOST:PORT`. */
  allowForward: readonly string[] | null;
  /** What every process may use at most; a client can ask for less, not for more. Nothing is limited by default. */
  limits: ProcessLimits;
}

/** How many of one thing there may be, of one owner and of the whole server. */
export interface Cap {
  each: number;
  all: number;
}

/** Things that cost a descriptor, a timer or programs of the host, beside the processes that were asked for. */
export interface ServerCaps {
  /** `process/wait` under way, of a connection and of the server. */
  waits: Cap;
  /** Paths watched by `fs/watchMissing`, of the server; the protocol has 64 for a connection. */
  watchedPaths: number;
  /** Files open by `fs/open`, of the server; the protocol has 128 for a connection. */
  fileHandles: number;
  /** `http/request` under way, streamed bodies included. */
  httpRequests: Cap;
  /** Streams of `forward/*` that are open. */
  forwardStreams: Cap;
  /** Listeners of `forward/listen`, of the server. */
  forwardListeners: number;
  /** Servers behind walls that carry out file requests with a sandbox intent, of a session and of the server. */
  walledFileServers: Cap;
}

export const DEFAULT_SERVER_CAPS: ServerCaps = {
  // A wait sees every event of its process and may hold a compiled pattern; one for every process of a server fits.
  waits: { each: 1024, all: 16_384 },
  // Each may cost a watch of the system, of which a user often has 8,192: half of them.
  watchedPaths: 4096,
  // Each costs a descriptor, which processes and connections need too: sixteen connections with all they may have.
  fileHandles: 2048,
  // Each costs a socket here and one at its server, and up to 64 KiB of head.
  httpRequests: { each: 128, all: 1024 },
  // Each costs a socket and up to a window of 256 KiB, half of what may be unanswered on a connection: 256 fit there.
  forwardStreams: { each: 256, all: 1024 },
  // Each costs a socket, and a port of the machine.
  forwardListeners: 256,
  // Each costs three programs and about 60 MB until it has not been asked for ten seconds.
  walledFileServers: { each: 4, all: 16 },
};

export const DEFAULT_SERVER_CONFIG: ServerConfig = {
  maxProcesses: 4096,
  // Four full sessions, and half of the process ids a system usually has.
  maxServerProcesses: 16_384,
  maxConnections: 4096,
  caps: DEFAULT_SERVER_CAPS,
  // All retained output and all snapshots at their bounds, and an eighth each for files and messages on their way.
  memoryBudgetBytes: 512 * 1024 * 1024,
  maxMessageBytes: 64 * 1024 * 1024,
  retainedOutputBytes: 1024 * 1024,
  detachedSessionTtlMs: 30_000,
  shutdownGraceMs: 2_000,
  allowDirectExec: true,
  allowPreparedExec: true,
  onDetach: "pause",
  allowForward: null,
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
 * Between TERM and KILL for what is not kept when another server takes this one's place, also where `shutdownGraceMs` is
 * more. With the time connections have to close it stays far below the ten seconds the keeper waits.
 */
export const HAND_OVER_GRACE_MS = 2_000;

/** Between two signs of life to the keeper, which takes a server for hung after `--hung-after` seconds. */
export const SIGN_OF_LIFE_EVERY_MS = 1_000;
export const DEFAULT_HUNG_AFTER_MS = 30_000;

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
 * What each kind may have of the memory budget, as parts of it. Together they are more than the whole: output that is only
 * kept for later gives way to what is under way, and whatever else finds no room waits or is refused. One answer or one
 * message always goes, however large it is, so a server that has one of each kind under way can pass its budget by those.
 */
export const MEMORY_SHARES = {
  /** Retained output of all processes: 256 MiB by default, 256 processes with a full retention. */
  retention: 1 / 2,
  /** Heads and tails for snapshots: 128 MiB, 128 processes with a whole one. */
  snapshots: 1 / 4,
  /** Messages of 64 KiB to 2 MiB that have not come whole: 64 MiB. The rest waits in the system. */
  smallMessages: 1 / 8,
  /** Larger ones: 64 MiB, one of the largest. */
  largeMessages: 1 / 8,
  /** Answers from being made until they are sent: files, blocks, listings, snapshots. */
  answers: 1 / 2,
  /** Bodies of `http/request` that are not streamed: 128 MiB, one of the largest. */
  httpBodies: 1 / 4,
} as const;

/** What a listing counts for, since nobody knows before how long it is: about 50,000 names, the most of `fs/readDirectory`. */
export const LISTING_ANSWER_BYTES = 4 * 1024 * 1024;

/** What a snapshot counts for: head and tail of two streams at their default size. */
export const SNAPSHOT_ANSWER_BYTES = 2 * 1024 * 1024;

/** An answer with more bytes than this is made and sent in parts, so that nobody waits while it is made. */
export const LONG_ANSWER_BYTES = 512 * 1024;

/**
 * Requests of one connection that have been read but not answered, in bytes of text. Above it the connection is not
 * read until some are answered: a peer that only sends must not make the server grow.
 */
export const MAX_UNANSWERED_BYTES = 128 * 1024 * 1024;

/** The same while the memory budget is used up: those who have this much under way are not read until there is room. */
export const MAX_UNANSWERED_BYTES_WHEN_FULL = 1024 * 1024;

/**
 * Connections that have not said what they want, or are being answered, at once; one more and the oldest is dropped. As
 * many as may wait to be taken, so that a burst of clients finds room; each costs a descriptor and up to a head's 16 KiB.
 */
export const MAX_OUTSIDE = 1024;

/**
 * What all viewers of a server together may cost it: so many bytes a millisecond, and so many at once. A message counts
 * for its bytes and for what it costs besides (a notification built, its part of a system call), which is about what these
 * many bytes cost. That is 8 MB/s for one viewer of a flood, or 2,000 short messages a second for all of them: a few
 * hundredths of one processor (`bench/viewers/run.ts`).
 */
export const VIEWER_COST_PER_MS = 8 * 1024;
export const VIEWER_BURST = 512 * 1024;
export const VIEWER_MESSAGE_COST = 4 * 1024;
/** Between two turns of viewers while there is more to tell than they may be told. */
export const VIEWER_TURN_MS = 5;
/** What one viewer is told before it is the next one's turn. */
export const VIEWER_STEP_BYTES = 64 * 1024;

/** How long a process that outlived its session can still be read after its end: time to look what became of it. */
export const HELD_ENDED_KEPT_MS = 10 * 60_000;
/** How many of those stay at most; the one that ended first goes first. Each keeps up to a retention of output. */
export const MAX_HELD_ENDED = 256;
